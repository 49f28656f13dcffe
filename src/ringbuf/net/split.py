"""Who gets which batch, where each goes to one client.

All clients are in the same epoch. It is over when each of its batches was given to somebody who is done with it: so
if a client dies with batches in hand, there are others left in the epoch whom they can be given to. Then the
loop of every client ends, of those that come later at once, for they have missed it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from ringbuf.net.session import Batch, Session

__all__ = ["Split"]


class Split:
    """Decides; sends nothing. After any call, `steps()` says what is to be sent now.

    epochs: how many there are; None for no end.
    epoch: the one that is being divided.
    dropped_below: batches of earlier epochs are wanted by nobody.
    """

    def __init__(self, epochs: int | None = None, epoch: int = 0, index: int = 0):
        self.epochs = epochs
        self.epoch = epoch
        self.sessions: list[Session] = []
        self.delivered = 0
        self._waiting: list[tuple[int, int, Batch]] = []  # a heap: the oldest place first
        self._lengths: dict[int, int] = {}
        self._done: set[int] = set(range(index))  # indices of this epoch
        self._first_open = index  # all before it are done
        self._begun = index > 0  # whether anything of this epoch was sent

    # ---- the source

    def add(self, batch: Batch) -> None:
        if batch.epoch < self.epoch or (batch.epoch == self.epoch and batch.index in self._done):
            return
        heapq.heappush(self._waiting, (*batch.place, batch))

    def end_epoch(self, epoch: int, length: int) -> None:
        """The source gave all batches of an epoch."""
        self._lengths[epoch] = length

    @property
    def stored(self) -> int:
        """Batches that wait to be sent."""
        return len(self._waiting)

    # ---- clients

    def join(self, session: Session, now: bool = True) -> None:
        """A client is there. It takes part from now on, or from the next epoch."""
        self.sessions.append(session)
        if not now and self._begun:
            session.epoch = self.epoch + 1

    def begin(self, session: Session, limit: int) -> None:
        session.begin(limit)
        if session.epoch is None:
            session.epoch = self.epoch

    def go_on(self, session: Session, done: int, limit: int) -> None:
        self._finish(session.go_on(done, limit))

    def leave(self, session: Session, done: int) -> None:
        """Its loop ended early: what it did not look at is for others."""
        if not session.inside:
            return
        finished, returned = session.leave(done)
        self._finish(finished)
        for batch in returned:
            self.add(batch)
        session.epoch += 1

    def remove(self, session: Session) -> None:
        """A client is gone: what it was not done with is for others."""
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        for batch in session.open.values():
            self.add(batch)
        session.open.clear()
        session.held.clear()

    def begin_at(self, session: Session, epoch: int, index: int, done: list[int]) -> str | None:
        """A client had come so far in an earlier session, and was done with these besides: nobody shall get them again.
        Returns why that cannot be."""
        if epoch > self.epoch:
            return f"the server is in epoch {self.epoch}, and the client wants to go on in epoch {epoch}, which is still to come"
        session.epoch = epoch
        if epoch == self.epoch:
            self._done.update(range(index), done)
            self._advance_first_open()
            self._waiting = [entry for entry in self._waiting if entry[0] != epoch or entry[1] not in self._done]
            heapq.heapify(self._waiting)
        return None

    @property
    def first_open(self) -> int:
        """All batches of this epoch before this index are done."""
        return self._first_open

    def is_late(self, session: Session, now: float, **limits: Any) -> bool:
        """Nobody is in anybody's way: each takes what it can."""
        return False

    def lag(self, session: Session) -> int:
        """Batches that it was sent and is not done with."""
        return len(session.open)

    @property
    def finished(self) -> bool:
        """Whether the last epoch is over."""
        return self.epochs is not None and self.epoch >= self.epochs

    # ---- what is to be sent

    def steps(self) -> Iterator[tuple[Session, Batch | int | None]]:
        """What is to be sent now, one after another: a batch; the length of the epoch that is over for a client; None where no
        further epoch comes. To be sent before the next one is asked for."""
        while True:
            yield from self._ends()
            if self.finished:
                return
            yield from self._deliveries()
            if not self._over():
                return
            self._next_epoch()

    def _ends(self) -> Iterator[tuple[Session, int | None]]:
        for session in list(self.sessions):
            while session.inside and session.epoch < self.epoch:
                length = self._lengths.get(session.epoch, 0)
                session.end_loop()
                yield session, length
            if session.inside and self.finished:
                session.inside = False
                yield session, None

    def _deliveries(self) -> Iterator[tuple[Session, Batch]]:
        while self._waiting and self._waiting[0][0] == self.epoch:
            able = [session for session in self.sessions if session.epoch == self.epoch and session.room > 0]
            if not able:
                return
            session = min(able, key=lambda session: (len(session.open), session.sent))
            batch = heapq.heappop(self._waiting)[2]
            self.delivered += 1
            self._begun = True
            yield session, batch

    def _over(self) -> bool:
        """Whether the epoch is: all is done, or all who were in it have left it and somebody wants the next."""
        length = self._lengths.get(self.epoch)
        if length is not None and len(self._done) >= length:
            return True
        inside = [session.epoch for session in self.sessions if session.inside]
        return bool(inside) and min(inside) > self.epoch

    def _next_epoch(self) -> None:
        self._lengths.setdefault(self.epoch, len(self._done))
        self.epoch += 1
        self._done.clear()
        self._first_open, self._begun = 0, False
        while self._waiting and self._waiting[0][0] < self.epoch:
            heapq.heappop(self._waiting)

    def _finish(self, batches: list[Batch]) -> None:
        self._done.update(batch.index for batch in batches if batch.epoch == self.epoch)
        self._advance_first_open()

    def _advance_first_open(self) -> None:
        while self._first_open in self._done:
            self._first_open += 1
