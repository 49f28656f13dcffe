"""faster-fifo, one call for each message, bytes as they are instead of pickled."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from faster_fifo import Queue

LABEL = "faster-fifo put/get"
ROOM = 1_000_000  # its default: the bytes of some ten thousand messages
TIMEOUT_S = 60


def versions() -> dict[str, str]:
    return {"faster-fifo": version("faster-fifo")}


def as_it_is(data: Any) -> Any:
    return data


class Channel:
    def __init__(self) -> None:
        self._queue = Queue(ROOM, loads=bytes, dumps=as_it_is)

    def sender(self) -> Callable[[list[bytes]], None]:
        put = self._queue.put

        def send(messages: list[bytes]) -> None:
            for message in messages:
                put(message, timeout=TIMEOUT_S)

        return send

    def receiver(self) -> Callable[[int], list[bytes]]:
        get = self._queue.get
        return lambda count: [get(timeout=TIMEOUT_S) for _ in range(count)]

    def close(self) -> None:
        self._queue.close()
