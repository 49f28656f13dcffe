"""pyzmq over ipc: the batch's bytes in one message without a copy on this side, which the kernel copies twice."""

import os
import tempfile
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import zmq

from benchmarks.py import crew
from benchmarks.py.workloads import Fields, Samples, Workload

LABEL = "pyzmq (PUSH/PULL, ipc)"


def versions() -> dict[str, str]:
    return {"pyzmq": zmq.__version__, "libzmq": zmq.zmq_version()}


def open(workload: Workload) -> AbstractContextManager[Any]:
    return crew.working(workload, Socket)


class Socket(crew.Channel):
    def __init__(self, dataset: Samples, workload: Workload):
        super().__init__(dataset, workload)
        self._folder = tempfile.mkdtemp(prefix="benchmark-zmq-")
        self._address = f"ipc://{self._folder}/socket"

    def open_sender(self) -> None:
        self._socket = zmq.Context().socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, 1)
        self._socket.connect(self._address)

    def send(self, samples: list[Any]) -> None:
        memory = np.empty(self.dataset.batch_bytes, np.uint8)  # a new one: the old one may still be on its way
        used = self.dataset.write(samples, memory)
        self._socket.send(memory[:used], copy=used < zmq.COPY_THRESHOLD)

    def open_receiver(self) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.RCVHWM, 1)
        self._socket.bind(self._address)

    def receive(self) -> Fields:
        return self.dataset.view(np.frombuffer(self._socket.recv(copy=False).buffer, np.uint8))

    def close(self) -> None:
        self._context.destroy(linger=0)
        for name in os.listdir(self._folder):
            os.unlink(f"{self._folder}/{name}")
        os.rmdir(self._folder)
