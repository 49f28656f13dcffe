"""Workers for peers that move bytes and have no loader of their own: what a careful user would write around them.

Worker w of n is forked, makes batches w, w + n, ... of every epoch and sends each through a channel of its own; the
consumer takes from the channels in turn, so batches come in order. A channel has

    Channel(dataset, workload)      made in the consumer, before its worker is forked
    open_sender()                   called in the worker
    send(samples)                   the worker has a batch to be made of these; waits while `prefetch` are under way
    open_receiver()                 called in the consumer, once the workers run
    receive()                       the next batch, valid until release()
    release()
    close()                         called in the consumer, when all is over
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.py.workloads import Samples, Workload

fork = multiprocessing.get_context("fork")


class Channel:
    """The calls that many channels have no use for."""

    def __init__(self, dataset: Samples, workload: Workload):
        self.dataset = dataset
        self.workload = workload

    def open_sender(self) -> None:
        pass

    def open_receiver(self) -> None:
        pass

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


class Crew:
    """Yields the batches of one epoch each time it is iterated; the workers live on."""

    def __init__(self, workload: Workload, make_channel: Callable[[Samples, Workload], Any]):
        self._workload = workload
        self._dataset = workload.dataset()
        self._make_channel = make_channel
        self._channels: list[Any] = []
        self._workers: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        if not self._workers:
            self._start()
        for go in self._go:
            go.release()
        for number in range(self._workload.batches):
            channel = self._channels[number % len(self._channels)]
            yield channel.receive()
            channel.release()

    def _start(self) -> None:
        count = self._workload.workers
        self._go = [fork.Semaphore(0) for _ in range(count)]
        self._channels = [self._make_channel(self._dataset, self._workload) for _ in range(count)]
        for w, (channel, go) in enumerate(zip(self._channels, self._go)):
            self._workers.append(fork.Process(target=_work, args=(self._dataset, self._workload, w, channel, go), daemon=True))
            self._workers[w].start()
        for channel in self._channels:
            channel.open_receiver()

    def close(self) -> None:
        for worker in self._workers:
            worker.terminate()
            worker.join()
        for channel in self._channels:
            channel.close()


def _work(dataset: Samples, workload: Workload, w: int, channel: Any, go: Any) -> None:
    """The life of worker w."""
    channel.open_sender()
    while True:
        go.acquire()
        for number in range(w, workload.batches, workload.workers):
            channel.send(dataset.batch(number))


@contextmanager
def working(workload: Workload, make_channel: Callable[[Samples, Workload], Any]) -> Iterator[Crew]:
    crew = Crew(workload, make_channel)
    try:
        yield crew
    finally:
        crew.close()
