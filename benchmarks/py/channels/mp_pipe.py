"""multiprocessing.Pipe: a write and two reads for each message."""

import multiprocessing
import platform
from collections.abc import Callable

LABEL = "multiprocessing.Pipe"
PRODUCERS = 1


def versions() -> dict[str, str]:
    return {"python": platform.python_version()}


class Channel:
    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)

    def sender(self) -> Callable[[list[bytes]], None]:
        put = self._writer.send_bytes

        def send(messages: list[bytes]) -> None:
            for message in messages:
                put(message)

        return send

    def receiver(self) -> Callable[[int], list[bytes]]:
        get = self._reader.recv_bytes
        return lambda count: [get() for _ in range(count)]

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
