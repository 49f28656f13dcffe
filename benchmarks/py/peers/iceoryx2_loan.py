"""iceoryx2: the worker makes the batch in memory loaned from its publisher, the consumer sleeps until an event says so."""

from __future__ import annotations

import ctypes
import itertools
import os
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any

import iceoryx2 as iox2
import numpy as np

from benchmarks.py import crew
from benchmarks.py.workloads import Fields, Samples, Workload

LABEL = "iceoryx2 (loan, event)"
NUMBERS = itertools.count()


def versions() -> dict[str, str]:
    return {"iceoryx2": version("iceoryx2")}


def open(workload: Workload) -> AbstractContextManager[Any]:
    iox2.set_log_level(iox2.LogLevel.Error)
    return crew.working(workload, Service)


class Service(crew.Channel):
    """A publisher in the worker and a subscriber in the consumer; one event for each batch, and one for each given back."""

    def __init__(self, dataset: Samples, workload: Workload):
        super().__init__(dataset, workload)
        self._name = f"benchmark/{os.getpid()}/{next(NUMBERS)}"
        self._free = crew.fork.Semaphore(workload.prefetch)  # a publisher that waits for room would poll
        self._ready = crew.fork.Semaphore(0)  # what is published before anybody subscribes would be lost
        self._sample: Any = None

    def _services(self) -> tuple[Any, Any]:
        self._node = iox2.NodeBuilder.new().signal_handling_mode(iox2.SignalHandlingMode.Disabled).create(iox2.ServiceType.Ipc)
        data = (
            self._node.service_builder(iox2.ServiceName.new(self._name))
            .publish_subscribe(iox2.Slice[ctypes.c_uint8])
            .payload_alignment(iox2.Alignment.new(64))
            .enable_safe_overflow(False)
            .history_size(0)
            .max_publishers(1)
            .max_subscribers(1)
            .subscriber_max_buffer_size(self.workload.prefetch)
            .subscriber_max_borrowed_samples(2)
            .open_or_create()
        )
        return data, self._node.service_builder(iox2.ServiceName.new(self._name)).event().open_or_create()

    def open_sender(self) -> None:
        data, event = self._services()
        self._publisher = (
            data.publisher_builder()
            .initial_max_slice_len(self.dataset.batch_bytes)
            .max_loaned_samples(1)
            .create()
        )
        self._ready.acquire()
        self._notifier = event.notifier_builder().create()

    def send(self, samples: list[Any]) -> None:
        self._free.acquire()
        sample = self._publisher.loan_slice_uninit(self.dataset.batch_bytes)
        self.dataset.write(samples, np.frombuffer(sample.payload().as_memory_view(), np.uint8))
        sample.assume_init().send()
        self._notifier.notify()

    def open_receiver(self) -> None:
        data, event = self._services()
        self._subscriber = data.subscriber_builder().create()
        self._listener = event.listener_builder().create()
        self._ready.release()

    def receive(self) -> Fields:
        while (sample := self._subscriber.receive()) is None:
            self._listener.blocking_wait()
        self._sample = sample
        return self.dataset.view(np.frombuffer(sample.payload().as_memory_view(), np.uint8))

    def release(self) -> None:
        self._sample.delete()
        self._free.release()
