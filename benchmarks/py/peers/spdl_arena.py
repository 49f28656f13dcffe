"""SPDL's iterate_in_subprocess with its pool of shared segments, one process for each worker, taken from in turn."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

from spdl.pipeline import SharedMemorySegmentPool, iterate_in_subprocess

from benchmarks.py.workloads import Samples, Workload

LABEL = "SPDL (shared arena)"


def versions() -> dict[str, str]:
    return {"spdl": version("spdl")}


class Share:
    """The batches that worker w makes."""

    def __init__(self, dataset: Samples, workload: Workload, w: int):
        self._dataset = dataset
        self._numbers = range(w, workload.batches, workload.workers)

    def __iter__(self) -> Iterator[Any]:
        return (self._dataset.collate(self._dataset.batch(number)) for number in self._numbers)


@contextmanager
def open(workload: Workload) -> Iterator[Any]:
    dataset = workload.dataset()
    shares = [
        iterate_in_subprocess(
            partial(Share, dataset, workload, w),
            buffer_size=workload.prefetch,
            mp_context="fork",
            daemon=True,
            arena=SharedMemorySegmentPool(dataset.batch_bytes + 4096, workload.prefetch + 1),
        )
        for w in range(workload.workers)
    ]
    yield Merged(shares)
    shares.clear()  # a process ends when nobody can ask it for batches any more
    gc.collect()


class Merged:
    def __init__(self, shares: list[Any]):
        self._shares = shares

    def __iter__(self) -> Iterator[Any]:
        """A batch of each in turn; the first to have none is the one whose turn the epoch's end is."""
        iterators = [iter(share) for share in self._shares]
        alive = True
        while alive:
            for iterator in iterators:
                try:
                    yield next(iterator)
                except StopIteration:
                    alive = False
