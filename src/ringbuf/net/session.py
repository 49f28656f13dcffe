"""One client, as its server sees it: what it was sent, what it is done with, what it may be sent, and an account.

Batches of a session have numbers, from 1 without a gap. The client is *done* with a batch when it asks for the next
one (or lets go of the batch): then nobody gets it again. It *holds* a batch until the last view of it is gone: then its
memory can be used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ringbuf.net.protocol import ProtocolError

__all__ = ["Batch", "Session"]

MOST_AHEAD = 64
"""Batches that a client may have in hand, or on the way to it, at most."""


class Batch:
    """A batch that the source gave, and where its bytes are.

    epoch, index: its place, both from 0.
    parcel: what lies in memory; kept for as long as this object is.
    """

    __slots__ = ("epoch", "index", "parcel")

    def __init__(self, epoch: int, index: int, parcel: Any):
        self.epoch, self.index, self.parcel = epoch, index, parcel

    @property
    def place(self) -> tuple[int, int]:
        return self.epoch, self.index

    def __repr__(self) -> str:
        return f"<Batch {self.index} of epoch {self.epoch}>"


class Session:
    """A client.

    number: tells it from others, for people.
    label: what it calls itself.
    wire: how messages get to it: `send(message, body=None)`, `send_batch(message, batch)`; `part()` when it is to get nothing
        more, `gone()` when it is not there any more.
    epoch: the one that its loop is over, or the next one that it will be; None in a broadcast, before its first batch.
    inside: whether it is in a loop.
    index: of that epoch's batches, the one behind the newest that it was sent.
    open: batches that it was sent and is not done with, by number.
    held: batches whose memory it may still look at, by number.
    """

    def __init__(self, number: int, label: str, wire: Any, clock: Callable[[], float] = time.monotonic):
        self.number = number
        self.label = label
        self.wire = wire
        self.epoch: int | None = None
        self.inside = False
        self.index = 0
        self.open: dict[int, Batch] = {}
        self.held: dict[int, Batch] = {}
        self.sent = 0
        self.done = 0
        self.limit = 0
        self.sent_bytes = 0
        self.waits = 0
        self.waited_s = 0.0
        self.since = self.progress_at = clock()
        self._clock = clock
        self._waiting_since: float | None = None

    # ---- what the client says

    def begin(self, limit: int) -> None:
        if self.inside:
            raise ProtocolError("a loop began inside of another one")
        self._check_limit(self.done, limit)
        self.inside = True
        self.progress_at = self._clock()
        self._allow(limit)

    def go_on(self, done: int, limit: int) -> list[Batch]:
        """It is done with all up to `done`, and may be sent all up to `limit`. Returns those that it is done with now."""
        self._check_limit(done, limit)  # first of all: what is refused changes nothing
        batches = self._finish(done)
        self._allow(limit)
        return batches

    def leave(self, done: int) -> tuple[list[Batch], list[Batch]]:
        """Its loop ended early. Returns those that it is done with now, and those that it will not look at."""
        finished = self._finish(done)
        returned = list(self.open.values())
        for seq in self.open:
            self.held.pop(seq, None)
        self.open.clear()
        self.done = self.sent
        self.inside = False
        self.index = 0
        self._has_room(False)
        return finished, returned

    def free(self, seq: int) -> None:
        """It looks at this one no more."""
        if not 1 <= seq <= self.sent:
            raise ProtocolError(f"batch {seq} was given back, and {self.sent} were sent")
        self.held.pop(seq, None)

    def forget_after(self, seq: int) -> None:
        """It goes, and will not look at what came after this one."""
        for later in [other for other in self.held if other > seq]:
            del self.held[later]

    # ---- what the server does

    @property
    def room(self) -> int:
        """Batches that it may be sent now."""
        return self.limit - self.sent if self.inside else 0

    def send(self, batch: Batch) -> int:
        """Count this one as sent; returns its number."""
        self.sent += 1
        self.index = batch.index + 1
        self.open[self.sent] = self.held[self.sent] = batch
        self.sent_bytes += batch.parcel.nbytes
        self._has_room(self.room > 0)
        return self.sent

    def end_loop(self) -> None:
        """Its loop is over."""
        self.inside = False
        self.epoch += 1
        self.index = 0
        self._has_room(False)

    @property
    def waiting_s(self) -> float:
        """Seconds in which it could have been sent a batch and there was none, in all."""
        now = 0.0 if self._waiting_since is None else self._clock() - self._waiting_since
        return self.waited_s + now

    def _finish(self, done: int) -> list[Batch]:
        if not self.done <= done <= self.sent:
            raise ProtocolError(f"batch {done} is done with, after {self.done} and of {self.sent} that were sent")
        if done > self.done:
            self.progress_at = self._clock()
        batches = [self.open.pop(seq) for seq in range(self.done + 1, done + 1)]
        self.done = done
        return batches

    def _check_limit(self, done: int, limit: int) -> None:
        if not done <= limit <= done + MOST_AHEAD:
            raise ProtocolError(f"{limit - done} batches in advance were asked for; at most {MOST_AHEAD} are sent")

    def _allow(self, limit: int) -> None:
        self.limit = max(self.limit, limit)
        self._has_room(self.room > 0 and not self.open)

    def _has_room(self, waits: bool) -> None:
        """Count it as waiting: it is in its loop, and has nothing in hand."""
        waits = waits and not self.open
        if waits and self._waiting_since is None:
            self._waiting_since = self._clock()
            self.waits += 1
        elif not waits and self._waiting_since is not None:
            self.waited_s += self._clock() - self._waiting_since
            self._waiting_since = None
