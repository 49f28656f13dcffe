"""What has to survive a connection: messages that were sent and may not have arrived.

Each side numbers its messages from 1, and says with each how many of the other's it has. When a connection was lost
and there is a new one, each learns what the other has, and sends the rest again. Nothing in here talks to anybody.

    envelope of 16 bytes | message              number of the message, how many of the other side's were received

Number 0 is not counted: an envelope alone, and the words with which a connection begins (HELLO, RESUME and its answer).
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

from ringbuf.net.protocol import ProtocolError

__all__ = ["ENVELOPE_BYTES", "Link", "envelope", "open_envelope"]

_ENVELOPE = struct.Struct("<QQ")
ENVELOPE_BYTES = _ENVELOPE.size


def envelope(number: int, received: int) -> bytes:
    return _ENVELOPE.pack(number, received)


def open_envelope(data: memoryview) -> tuple[int, int, memoryview]:
    """Number, how many were received, and the message, which may be empty. Raises ProtocolError."""
    if len(data) < ENVELOPE_BYTES:
        raise ProtocolError(f"a message has at least {ENVELOPE_BYTES} bytes, here are {len(data)}")
    number, received = _ENVELOPE.unpack_from(data)
    return number, received, data[ENVELOPE_BYTES:]


class Link:
    """One side.

    received: messages of the other side that are here, all up to this one.
    told: how many of them the other side knows of.
    """

    def __init__(self) -> None:
        self.received = 0
        self.told = 0
        self._entries: deque[Any] = deque()  # what the other side is not known to have
        self._first = 1  # number of the first of them
        self._sent = 0  # how many of them went over this connection

    # ---- what goes out

    def put(self, entry: Any) -> None:
        self._entries.append(entry)

    @property
    def idle(self) -> bool:
        """Whether the other side is known to have everything."""
        return not self._entries

    def next(self) -> tuple[int, Any] | None:
        """The number of what is to be sent next, and that itself; until advance() it stays so."""
        if self._sent >= len(self._entries):
            return None
        return self._first + self._sent, self._entries[self._sent]

    def advance(self) -> None:
        self._sent += 1

    def rewind(self) -> None:
        """There is a new connection: what is not known to have arrived is to be sent again."""
        self._sent = 0

    def clear(self) -> None:
        self._first += len(self._entries)
        self._entries.clear()
        self._sent = 0

    def seal(self, number: int = 0) -> bytes:
        """The envelope of a message."""
        self.told = self.received
        return envelope(number, self.received)

    # ---- what comes in

    def due(self, number: int) -> None:
        """Raises ProtocolError unless this message is the next one."""
        if number != self.received + 1:
            raise ProtocolError(f"message {number} came, and {self.received + 1} was due")

    def arrived(self) -> None:
        """The next message is here, all of it."""
        self.received += 1

    def acknowledge(self, received: int) -> list[Any]:
        """The other side has all up to this one. Returns those that it was not known to have. Raises ProtocolError."""
        if not self._first - 1 <= received < self._first + len(self._entries):
            last = self._first + len(self._entries) - 1
            raise ProtocolError(f"{received} messages have arrived, it is said, of {last} and after {self._first - 1}")
        entries = [self._entries.popleft() for _ in range(received - self._first + 1)]
        self._first += len(entries)
        self._sent = max(0, self._sent - len(entries))
        return entries
