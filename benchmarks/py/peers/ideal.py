"""The ceiling: forked processes that stack samples into shared slots, and a pair of semaphores for each.

The slots are mapped beforehand, their pages come into being as the workers first write to them, and there is no protocol
to speak of: worker w fills slots that nobody else touches, and counts them. A worker that dies hangs the consumer, a batch
that is kept is overwritten, all sizes are known beforehand.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from benchmarks.py import crew
from benchmarks.py.workloads import Fields, Samples, Workload

LABEL = "ideal (memcpy into warm slots)"


def versions() -> dict[str, str]:
    return {"numpy": np.__version__}


def open(workload: Workload) -> AbstractContextManager[Any]:
    return crew.working(workload, Slots)


class Slots(crew.Channel):
    """As many slots as may be under way, used in turn. A batch is a view of one."""

    def __init__(self, dataset: Samples, workload: Workload):
        super().__init__(dataset, workload)
        self._filled = crew.fork.Semaphore(0)
        self._free = crew.fork.Semaphore(workload.prefetch)
        size = dataset.batch_bytes
        self._slots = [np.frombuffer(mmap.mmap(-1, size), np.uint8) for _ in range(workload.prefetch)]
        self._turns = self._turn()

    def _turn(self) -> Iterator[np.ndarray]:
        """Sender and receiver go round on their own, each in its process."""
        while True:
            yield from self._slots

    def send(self, samples: list[Any]) -> None:
        self._free.acquire()
        self.write(samples, next(self._turns))
        self._filled.release()

    def write(self, samples: list[Any], slot: np.ndarray) -> None:
        self.dataset.write(samples, slot)

    def receive(self) -> Fields:
        self._filled.acquire()
        return self.dataset.view(next(self._turns))

    def release(self) -> None:
        self._free.release()
