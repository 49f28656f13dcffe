"""The ceiling: forked processes that stack samples into shared slots, and a pair of semaphores for each.

The slots are mapped and their pages exist before anybody is timed, and there is no protocol to speak of: worker w
makes batches w, w + n, ... in slots that nobody else touches, and counts them. A worker that dies hangs the
consumer, a batch that is kept is overwritten, all sizes are known beforehand.
"""

from __future__ import annotations

import mmap
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.py.workload import Batches, Images, Workload

LABEL = "ideal (stack into warm slots)"

fork = multiprocessing.get_context("fork")


def versions() -> dict[str, str]:
    return {"numpy": np.__version__}


@contextmanager
def open(dataset: Images, workload: Workload) -> Iterator[Batches]:
    yield Ideal(dataset, workload)


class Ideal:
    """Batches in order, each a view of a slot that is valid until the next one is asked for."""

    def __init__(self, dataset: Images, workload: Workload):
        self._dataset = dataset
        self._workload = workload
        self._slots = [[Slot(workload) for _ in range(workload.prefetch)] for _ in range(workload.workers)]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        workload = self._workload
        filled = [fork.Semaphore(0) for _ in self._slots]
        free = [fork.Semaphore(workload.prefetch) for _ in self._slots]
        workers = []
        for w, slots in enumerate(self._slots):
            args = self._dataset, workload, w, slots, filled[w], free[w]
            workers.append(fork.Process(target=fill, args=args, daemon=True))
            workers[w].start()
        for batch in range(workload.batches):
            turn, w = divmod(batch, workload.workers)
            filled[w].acquire()
            slot = self._slots[w][turn % workload.prefetch]
            yield slot.images, slot.labels
            free[w].release()
        for worker in workers:
            worker.join()


class Slot:
    """Room for one batch in memory that forked children share."""

    def __init__(self, workload: Workload):
        memory = np.frombuffer(mmap.mmap(-1, workload.batch_bytes), np.uint8)
        memory[:] = 0  # now every page is there
        labels = workload.batch_size * 8
        self.labels = memory[:labels].view(np.int64)
        self.images = memory[labels:].reshape(workload.batch_size, *workload.image_shape)


def fill(dataset: Images, workload: Workload, w: int, slots: list[Slot], filled: Any, free: Any) -> None:
    """The life of worker w. `filled` and `free` are semaphores that count its slots."""
    for turn, batch in enumerate(range(w, workload.batches, workload.workers)):
        first = batch * workload.batch_size
        samples = [dataset[index] for index in range(first, first + workload.batch_size)]
        free.acquire()
        slot = slots[turn % workload.prefetch]
        np.stack([image for image, _ in samples], out=slot.images)
        slot.labels[:] = [label for _, label in samples]
        filled.release()
