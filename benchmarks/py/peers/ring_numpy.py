"""ringbuf's RingLoader for numpy, as anyone would call it."""

from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any

from benchmarks.py.workloads import Into, Workload
from ringbuf import RingLoader

LABEL = "ringbuf RingLoader (numpy)"


def versions() -> dict[str, str]:
    return {"ringloader": version("ringloader")}


def open(workload: Workload, *, into: bool = False, **options: Any) -> AbstractContextManager[Any]:
    """`into`: the dataset writes its samples into the batch itself."""
    dataset = workload.dataset()
    return RingLoader(
        Into(dataset) if into else dataset,
        batch_size=workload.batch_size,
        num_workers=workload.workers,
        prefetch_factor=workload.prefetch,
        persistent_workers=True,
        collate_fn=dataset.collate_fn,
        multiprocessing_context="fork",
        **options,
    )
