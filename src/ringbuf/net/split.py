"""Who gets which batch, where each goes to one client.

All clients are in the same epoch. It is over when each of its batches was given to somebody who is done with it: so
if a client dies with batches in hand, there are others left in the epoch whom they can be given to. Then the
loop of every client ends, of those that come later at once, for they have missed it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

from ringbuf.net.session import Batch, Session

__all__ = ["Split"]


class Split:
    """Decides; sends nothing. After any call, `steps()` says what is to be sent now.

    epochs: how many there are; None for no end.
    epoch: the one that is being divided.
    wanted_from: batches of earlier epochs are wanted by nobody.
    first_open: all batches of the epoch before this index are done.
    """

    def __init__(self, epochs: int | None = None, epoch: int = 0, index: int = 0):
        self.epochs = epochs
        self.epoch = epoch
        self.sessions: list[Session] = []
        self.delivered = 0
        self._waiting: list[tuple[int, int, Batch]] = []  # a heap: the oldest place first
        self._lengths: dict[int, int] = {}
        self.first_open = index
        self._done: set[int] = set()  # later indices of this epoch
        self._foretold: dict[int, tuple[int, set[int]]] = {}  # likewise of epochs to come: first open, done
        self._begun = index > 0  # whether anything of this epoch was sent

    # ---- the source

    def add(self, batch: Batch) -> None:
        if not self._is_done(batch):
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
        session.epoch = self.epoch + (self._begun and not now)

    def begin(self, session: Session, limit: int) -> None:
        session.begin(limit)

    def go_on(self, session: Session, done: int, limit: int) -> None:
        self._finish(session.go_on(done, limit))

    def leave(self, session: Session, done: int) -> None:
        """Its loop ended early: what it did not look at is for others."""
        inside = session.inside
        finished, returned = session.leave(done)
        self._finish(finished)
        for batch in returned:
            self.add(batch)
        if inside:  # otherwise its END was under way
            session.epoch += 1

    def remove(self, session: Session) -> None:
        """A client is gone: what it was not done with is for others."""
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        for batch in session.open.values():
            self.add(batch)
        session.open.clear()

    def begins_before(self, epoch: int, index: int) -> bool:
        """Whether a client that had come so far needs nothing that was given before this began."""
        return True  # what was before is done

    def begin_at(self, session: Session, epoch: int, index: int, done: list[int]) -> str | None:
        """A client had come so far in an earlier session, and was done with these besides: nobody shall get them again.
        Returns why that cannot be."""
        if self.epochs is not None and epoch > self.epochs:
            return f"there are {self.epochs} epochs, and the client wants to go on in epoch {epoch}"
        session.epoch = epoch
        if epoch == self.epoch:
            self._know(index, done)
        elif epoch > self.epoch:
            first_open, known = self._foretold.get(epoch, (0, set()))
            self._foretold[epoch] = max(first_open, index), known.union(done)
        return None

    def epoch_of(self, session: Session) -> int:
        """The epoch that it is in, or that comes next for it."""
        return session.epoch

    @property
    def wanted_from(self) -> int:
        return self.epoch

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
        inside = [session.epoch for session in self.sessions if session.inside]
        length = self._lengths.get(self.epoch)
        if length is not None and self.first_open >= length and (self._begun or inside):
            return True  # one without batches is not over before somebody came for it
        return bool(inside) and min(inside) > self.epoch

    def _next_epoch(self) -> None:
        self._lengths.setdefault(self.epoch, self.first_open + len(self._done))
        self.epoch += 1
        oldest = min((session.epoch for session in self.sessions), default=self.epoch)
        self._lengths = {epoch: length for epoch, length in self._lengths.items() if epoch >= oldest}
        self.first_open, self._begun = 0, False
        self._done.clear()
        self._know(*self._foretold.pop(self.epoch, (0, ())))

    def _is_done(self, batch: Batch) -> bool:
        if batch.epoch != self.epoch:
            return batch.epoch < self.epoch
        return batch.index < self.first_open or batch.index in self._done

    def _finish(self, batches: list[Batch]) -> None:
        self._done.update(batch.index for batch in batches if not self._is_done(batch) and batch.epoch == self.epoch)
        self._advance()

    def _know(self, first_open: int, done: Iterable[int]) -> None:
        """These are done: nobody gets them."""
        self.first_open = max(self.first_open, first_open)
        self._done = {index for index in self._done.union(done) if index >= self.first_open}
        self._advance()
        self._waiting = [entry for entry in self._waiting if not self._is_done(entry[2])]
        heapq.heapify(self._waiting)

    def _advance(self) -> None:
        while self.first_open in self._done:
            self._done.remove(self.first_open)
            self.first_open += 1
