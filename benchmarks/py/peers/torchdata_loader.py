"""torchdata's StatefulDataLoader: torch's DataLoader, whose place can be saved."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torchdata import __version__
from torchdata.stateful_dataloader import StatefulDataLoader

from benchmarks.py.workloads import Workload

LABEL = "torchdata StatefulDataLoader"


def versions() -> dict[str, str]:
    return {"torchdata": __version__, "torch": torch.__version__}


@contextmanager
def open(workload: Workload) -> Iterator[StatefulDataLoader]:
    dataset = workload.dataset(torch.from_numpy)
    loader = StatefulDataLoader(
        dataset,
        batch_size=workload.batch_size,
        num_workers=workload.workers,
        prefetch_factor=workload.prefetch,
        persistent_workers=True,
        collate_fn=dataset.collate_fn,
        multiprocessing_context="fork",
    )
    yield loader
    loader._iterator = None  # ends persistent workers
