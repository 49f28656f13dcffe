"""torch's DataLoader. Its own collate function writes into a shared segment made for each batch."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils.data import DataLoader

from benchmarks.py.workloads import Workload

LABEL = "torch DataLoader"


def versions() -> dict[str, str]:
    return {"torch": torch.__version__}


@contextmanager
def open(workload: Workload, *, start: str = "fork", persistent: bool = True) -> Iterator[DataLoader]:
    dataset = workload.dataset(torch.from_numpy)
    loader = DataLoader(
        dataset,
        batch_size=workload.batch_size,
        num_workers=workload.workers,
        prefetch_factor=workload.prefetch,
        persistent_workers=persistent,
        collate_fn=dataset.collate_fn,
        multiprocessing_context=start,
    )
    yield loader
    loader._iterator = None  # ends persistent workers
