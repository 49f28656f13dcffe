"""multiprocessing.Queue: the batch is pickled, and goes through a pipe."""

import platform
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.py import crew
from benchmarks.py.workloads import Samples, Workload

LABEL = "multiprocessing.Queue"


def versions() -> dict[str, str]:
    return {"python": platform.python_version()}


def open(workload: Workload) -> AbstractContextManager[Any]:
    return crew.working(workload, Queue)


class Queue(crew.Channel):
    def __init__(self, dataset: Samples, workload: Workload):
        super().__init__(dataset, workload)
        self._queue = crew.fork.Queue(workload.prefetch)

    def send(self, samples: list[Any]) -> None:
        self._queue.put(self.dataset.collate(samples))

    def receive(self) -> Any:
        return self._queue.get()
