"""ringbuf's RingBuffer, many messages by a call on both sides."""

from collections.abc import Callable

from benchmarks.py.channels import ring
from ringbuf import RingBuffer

if not hasattr(RingBuffer, "get_many"):
    raise ImportError("this version of ringbuf has no put_many and get_many")

LABEL = "ringbuf put_many/get_many"

versions = ring.versions


class Channel(ring.Channel):
    def sender(self) -> Callable[[list[bytes]], None]:
        def send(messages: list[bytes]) -> None:
            sent = 0
            while sent < len(messages):
                sent += self._ring.put_many(messages[sent:])

        return send

    def receiver(self) -> Callable[[int], list[bytes]]:
        def receive(count: int) -> list[bytes]:
            got: list[bytes] = []
            while len(got) < count:
                got += self._ring.get_many(count - len(got))
            return got

        return receive
