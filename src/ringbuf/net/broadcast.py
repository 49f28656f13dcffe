"""Who gets which batch, where each goes to every client, in the same order.

Batches and ends of epochs lie on a *shelf*, oldest first, until every client has passed them; each client has a cursor.
A client that joins begins with the oldest one on the shelf, or with the first epoch of which that has all; one that leaves
its loop passes what is left of the epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ringbuf.net.session import Batch, Session

__all__ = ["Broadcast"]


class _End:
    """The end of an epoch, on the shelf."""

    __slots__ = ("epoch", "length")

    def __init__(self, epoch: int, length: int):
        self.epoch, self.length = epoch, length

    @property
    def place(self) -> tuple[int, float]:
        return self.epoch, float("inf")


class Broadcast:
    """Decides; sends nothing. After any call, `steps()` says what is to be sent now. See split.Split, whose twin this is.

    clients: nothing is sent before so many are there.
    """

    def __init__(self, epochs: int | None = None, epoch: int = 0, index: int = 0, clients: int = 1):
        self.epochs = epochs
        self.epoch = epoch
        self.sessions: list[Session] = []
        self.delivered = 0
        self._clients = clients
        self._shelf: deque[Batch | _End] = deque()
        self._first = 0  # number of the first entry of the shelf, counted over all times
        self._stored = 0
        self._cursors: dict[Session, int] = {}
        self._skip: dict[Session, tuple[int, float]] = {}  # places below it are not for this one
        self._newest = 0  # number of the entry behind the newest batch that was sent to anybody
        self._waited_for: dict[Session, float] = {}  # who is in the way of others, and since when
        self._oldest = epoch, index  # what is before this place is not to be had any more
        self.wanted_from = epoch

    # ---- the source

    def add(self, batch: Batch) -> None:
        self._shelf.append(batch)
        self._stored += 1

    def end_epoch(self, epoch: int, length: int) -> None:
        self._shelf.append(_End(epoch, length))

    @property
    def stored(self) -> int:
        """Batches that not all have passed."""
        return self._stored

    # ---- clients

    def join(self, session: Session, now: bool = True) -> None:
        """A client is there, and from now on the others wait for it."""
        self.sessions.append(session)
        self._cursors[session] = self._first
        if not now and self._oldest[1] > 0:
            self._skip[session] = self._oldest[0] + 1, 0

    def begin(self, session: Session, limit: int) -> None:
        session.begin(limit)

    def go_on(self, session: Session, done: int, limit: int) -> None:
        session.go_on(done, limit)

    def leave(self, session: Session, done: int) -> None:
        """Its loop ended early: it passes what is left of the epoch."""
        inside = session.inside
        session.leave(done)
        if not inside:  # its END was under way
            return
        epoch = self.epoch_of(session)
        self._skip[session] = max(self._skip.get(session, (0, 0)), (epoch + 1, 0))
        session.epoch = epoch + 1

    def remove(self, session: Session) -> None:
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        del self._cursors[session]
        self._skip.pop(session, None)
        self._waited_for.pop(session, None)
        session.open.clear()

    def begins_before(self, epoch: int, index: int) -> bool:
        """See Split.begins_before()."""
        return self._oldest <= (epoch, index)

    def take_over(self, other: Broadcast) -> None:
        """The clients of another one, which gave nobody anything yet, and began later than this one."""
        for session in other.sessions:
            self.join(session)
            self._skip[session] = max(other._skip.get(session, (0, 0)), other._oldest)

    def begin_at(self, session: Session, epoch: int, index: int, done: list[int]) -> str | None:
        """A client had come so far in an earlier session. Returns why it cannot go on there."""
        if not self.begins_before(epoch, index):
            oldest = self._oldest
            return f"batch {index} of epoch {epoch} was given up already, the oldest there is {oldest[1]} of epoch {oldest[0]}"
        self._skip[session] = (epoch, index)
        session.epoch = epoch
        return None

    @property
    def first_open(self) -> int:
        return 0  # each client knows what it has had

    def lag(self, session: Session) -> int:
        """Batches that it was not sent yet, and another one was; and those that it is not done with."""
        behind = sum(
            isinstance(entry, Batch) for entry in self._between(self._cursors.get(session, self._newest), self._newest)
        )
        return behind + len(session.open)

    def is_late(self, session: Session, now: float, *, seconds: float | None, batches: int | None, full: bool) -> bool:
        """Whether a client is in the way of the others for longer, or by more, than it may.

        full: whether the source waits for somebody to make room.
        """
        cursor = self._cursors[session]
        if batches is not None and self.lag(session) > batches and cursor == min(self._cursors.values()):
            return True
        if not (full and cursor <= self._first and any(self._starves(other) for other in self.sessions)):
            self._waited_for.pop(session, None)
            return False
        since = max(self._waited_for.setdefault(session, now), session.progress_at)
        return seconds is not None and now - since > seconds

    def _starves(self, session: Session) -> bool:
        """Whether it wants a batch, and has had all that there are."""
        return session.room > 0 and self._entry(self._cursors[session]) is None

    @property
    def finished(self) -> bool:
        """Whether every client that there was has had the last epoch."""
        return self.epochs is not None and self.epoch >= self.epochs

    # ---- what is to be sent

    def steps(self) -> Iterator[tuple[Session, Batch | int | None]]:
        """See Split.steps()."""
        if len(self.sessions) < self._clients and not self.delivered:
            return
        for session in list(self.sessions):
            yield from self._steps_of(session)
        self._clear()
        past = min((self._skip.get(session, (0, 0))[0] for session in self.sessions), default=0)
        self.wanted_from = max(self.epoch, past)

    def _steps_of(self, session: Session) -> Iterator[tuple[Session, Batch | int | None]]:
        while session in self._cursors:
            entry = self._entry(self._cursors[session])
            if entry is None:
                break
            skipped = entry.place < self._skip.get(session, (0, 0))
            if isinstance(entry, Batch):
                if not skipped:
                    if session.room <= 0:
                        break
                    session.epoch = entry.epoch
                    self._newest = max(self._newest, self._cursors[session] + 1)
                    self.delivered += 1
                    self._cursors[session] += 1
                    yield session, entry
                    continue
            elif not skipped:
                if not session.inside:
                    break
                session.epoch = entry.epoch
                session.end_loop()
                self._cursors[session] += 1
                yield session, entry.length
                continue
            self._cursors[session] += 1
        if session.inside and self.epochs is not None and self.epoch_of(session) >= self.epochs:
            session.inside = False
            yield session, None

    def _entry(self, at: int) -> Batch | _End | None:
        """What stands at this number, if it is there yet."""
        return self._shelf[at - self._first] if at - self._first < len(self._shelf) else None

    def _between(self, first: int, end: int) -> Iterator[Batch | _End]:
        for at in range(max(first, self._first), end):
            entry = self._entry(at)
            if entry is not None:
                yield entry

    def epoch_of(self, session: Session) -> int:
        """See Split.epoch_of()."""
        entry = self._entry(self._cursors[session])
        epoch = self._epoch_after_shelf() if entry is None else entry.epoch
        return max(epoch, self._skip.get(session, (0, 0))[0], session.epoch or 0)

    def _epoch_after_shelf(self) -> int:
        """The epoch of what the source gives next."""
        if not self._shelf:
            return self.epoch
        last = self._shelf[-1]
        return last.epoch + (1 if isinstance(last, _End) else 0)

    def _clear(self) -> None:
        """Let go of what all have passed."""
        if not self._cursors:
            return
        oldest = min(self._cursors.values())
        while self._first < oldest:
            entry = self._shelf.popleft()
            self._first += 1
            if isinstance(entry, Batch):
                self._stored -= 1
                self.epoch = entry.epoch
                self._oldest = entry.epoch, entry.index + 1
            else:
                self.epoch = entry.epoch + 1
                self._oldest = self.epoch, 0
