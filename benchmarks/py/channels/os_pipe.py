"""A bare pipe: one write for each message, which POSIX keeps whole, and reads of as much as there is."""

import os
import platform
from collections.abc import Callable

from benchmarks.py.messages import SIZE

LABEL = "os.pipe, bytes only"


def versions() -> dict[str, str]:
    return {"python": platform.python_version()}


class Channel:
    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def sender(self) -> Callable[[list[bytes]], None]:
        def send(messages: list[bytes]) -> None:
            for message in messages:
                os.write(self._write, message)

        return send

    def receiver(self) -> Callable[[int], list[bytes]]:
        def receive(count: int) -> list[bytes]:
            parts, missing = [], count * SIZE
            while missing:
                parts.append(os.read(self._read, min(missing, 1 << 16)))
                missing -= len(parts[-1])
            data = b"".join(parts)
            return [data[at : at + SIZE] for at in range(0, len(data), SIZE)]

        return receive

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
