"""ringbuf's RingLoader for torch, called as torch's DataLoader is."""

from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any

import torch

from benchmarks.py.workloads import Workload
from ringbuf.torch import RingLoader

LABEL = "ringbuf RingLoader (torch)"


def versions() -> dict[str, str]:
    return {"ringloader": version("ringloader"), "torch": torch.__version__}


def open(workload: Workload, *, start: str = "fork", **options: Any) -> AbstractContextManager[Any]:
    dataset = workload.dataset(torch.from_numpy)
    return RingLoader(
        dataset,
        batch_size=workload.batch_size,
        num_workers=workload.workers,
        prefetch_factor=workload.prefetch,
        persistent_workers=True,
        collate_fn=dataset.collate_fn,
        multiprocessing_context=start,
        **options,
    )
