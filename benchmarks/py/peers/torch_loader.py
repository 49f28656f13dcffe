"""torch's DataLoader with its own collate function, which writes into a shared segment made for each batch."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils.data import DataLoader

from benchmarks.py.workload import Batches, Images, Workload

LABEL = "torch DataLoader"


def versions() -> dict[str, str]:
    return {"torch": torch.__version__}


@contextmanager
def open(dataset: Images, workload: Workload) -> Iterator[Batches]:
    yield DataLoader(
        dataset,
        batch_size=workload.batch_size,
        num_workers=workload.workers,
        prefetch_factor=workload.prefetch,
        multiprocessing_context="fork",
    )
