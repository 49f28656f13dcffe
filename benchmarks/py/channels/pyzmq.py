"""pyzmq: PUSH and PULL over ipc. Its own threads gather messages, so neither side enters the kernel for each."""

import os
import tempfile
from collections.abc import Callable

import zmq

LABEL = "pyzmq ipc"


def versions() -> dict[str, str]:
    return {"pyzmq": zmq.__version__, "libzmq": zmq.zmq_version()}


class Channel:
    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="benchmark-zmq-")
        self._address = f"ipc://{self._folder}/socket"

    def sender(self) -> Callable[[list[bytes]], None]:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.connect(self._address)
        put = self._socket.send

        def send(messages: list[bytes]) -> None:
            for message in messages:
                put(message)

        return send

    def receiver(self) -> Callable[[int], list[bytes]]:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.bind(self._address)
        get = self._socket.recv
        return lambda count: [get() for _ in range(count)]

    def close(self) -> None:
        self._context.destroy(linger=0)
        for name in os.listdir(self._folder):
            os.unlink(f"{self._folder}/{name}")
        os.rmdir(self._folder)
