"""faster-fifo with raw bytes: a circular buffer in shared memory, which both sides copy through."""

from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any

import numpy as np
from faster_fifo import Queue

from benchmarks.py import crew
from benchmarks.py.workloads import Fields, Samples, Workload

LABEL = "faster-fifo (raw bytes)"
ROOM = 1 << 16


def versions() -> dict[str, str]:
    return {"faster-fifo": version("faster-fifo")}


def open(workload: Workload) -> AbstractContextManager[Any]:
    return crew.working(workload, Fifo)


def as_it_is(data: Any) -> Any:
    return data


class Fifo(crew.Channel):
    def __init__(self, dataset: Samples, workload: Workload):
        super().__init__(dataset, workload)
        room = workload.prefetch * dataset.batch_bytes + ROOM
        self._queue = Queue(room, maxsize=workload.prefetch, loads=bytes, dumps=as_it_is)

    def open_sender(self) -> None:
        self._memory = np.empty(self.dataset.batch_bytes, np.uint8)

    def send(self, samples: list[Any]) -> None:
        used = self.dataset.write(samples, self._memory)
        self._queue.put(self._memory[:used].tobytes(), timeout=60)

    def receive(self) -> Fields:
        return self.dataset.view(np.frombuffer(self._queue.get(timeout=60), np.uint8))
