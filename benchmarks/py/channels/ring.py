"""ringbuf's RingBuffer, one call for each message."""

from collections.abc import Callable
from importlib.metadata import version

from ringbuf import RingBuffer

LABEL = "ringbuf put/get"
SLOTS = 64  # eight times the default. A take looks at every slot: with 1024 it moves less than half as many


def versions() -> dict[str, str]:
    return {"ringloader": version("ringloader")}


class Channel:
    def __init__(self) -> None:
        self._ring = RingBuffer(slots=SLOTS, slot_bytes=256)

    def sender(self) -> Callable[[list[bytes]], None]:
        put = self._ring.put

        def send(messages: list[bytes]) -> None:
            for message in messages:
                put(message)

        return send

    def receiver(self) -> Callable[[int], list[bytes]]:
        get = self._ring.get
        return lambda count: [get() for _ in range(count)]

    def close(self) -> None:
        self._ring.close()
