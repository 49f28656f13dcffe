"""faster-fifo, many messages by a call on both sides."""

from collections.abc import Callable

from benchmarks.py.channels import faster_fifo_get

LABEL = "faster-fifo put_many/get_many"

versions = faster_fifo_get.versions
TIMEOUT_S = faster_fifo_get.TIMEOUT_S


class Channel(faster_fifo_get.Channel):
    def sender(self) -> Callable[[list[bytes]], None]:
        return lambda messages: self._queue.put_many(messages, timeout=TIMEOUT_S)

    def receiver(self) -> Callable[[int], list[bytes]]:
        def receive(count: int) -> list[bytes]:
            got: list[bytes] = []
            while len(got) < count:
                got += self._queue.get_many(timeout=TIMEOUT_S, max_messages_to_get=count - len(got))
            return got

        return receive
