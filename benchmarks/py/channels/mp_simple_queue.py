"""multiprocessing.SimpleQueue: a pipe with a lock at each end."""

import multiprocessing
import platform
from collections.abc import Callable
from typing import Any

LABEL = "multiprocessing.SimpleQueue"


def versions() -> dict[str, str]:
    return {"python": platform.python_version()}


class Channel:
    def __init__(self) -> None:
        self._queue = self._make()

    def _make(self) -> Any:
        return multiprocessing.get_context("fork").SimpleQueue()

    def sender(self) -> Callable[[list[bytes]], None]:
        put = self._queue.put

        def send(messages: list[bytes]) -> None:
            for message in messages:
                put(message)

        return send

    def receiver(self) -> Callable[[int], list[bytes]]:
        get = self._queue.get
        return lambda count: [get() for _ in range(count)]

    def close(self) -> None:
        self._queue.close()
