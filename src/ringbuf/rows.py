"""Batches of which each row is written by another process, in place.

    learner                                             process of row i
    hand_out(): claim a slot, send a grant per row  ->  take the grant, write row i in the slot,
    wait(): until all grants are gone               <-  release the grant: the row is in
    publish(): the batch is a message like any other

A second ring carries the grants, and what it guarantees of messages is what holds of rows. A grant is in one place at any
instant: not taken yet, in the hands of a process that lives, or gone. That of a process that was killed is there again, for
whoever takes that process's place. The learner can take a grant back that nobody has taken; nobody will ever write by that.

Key invariant: a slot is published, or freed, only when all of its grants are gone. So nobody ever writes into a slot that has
been handed on, however late: of a row whose writer lives but does not come back, the learner publishes the batch as a copy, and
keeps the slot until the grant is gone.

Who serves a row holds the row's seat, a message of the second ring, and so the learner sees in whose place nobody is. The learner
holds one too, which is for anyone: who gets that knows that the learner is dead.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringbuf import checks, frame
from ringbuf._core import Claim, Lease, generation
from ringbuf.buffer import SLOT_BYTES_MAX, RingBuffer
from ringbuf.dtypes import spec_of
from ringbuf.errors import Closed, Empty, Full

if TYPE_CHECKING:
    import numpy.typing as npt

ROWS_MAX = 4096
SLICE_S = 0.1  # between two looks for late rows while a slot is waited for
LOOK_AGAIN_S = 0.005  # between two looks for writers that are not there yet
ALIGNMENT = 64  # of arrays in a slot

SEATS = 1 << 62  # tags of the second ring: SEATS + row, LEARNER; below them, of a grant, round * rows + row
LEARNER = SEATS - 1
PRESENT = "present"


class RowRing:
    """A ring of batches whose rows come from several processes. Who makes it is the learner; the others get it inherited or
    pickled, by any start method, and `serve` their rows.

    rows: of a batch. fields: {name: (shape, dtype)} of one row; a batch has arrays of shape ``(rows, *shape)``, and `present`,
        which rows are in it. slots: batches at a time, those counted that somebody still looks at; one more than that lets
        the learner go on while a writer is late. message_bytes: bytes of arrays that a message to a row may have.

    Attributes
    ----------
    ring
        The RingBuffer of the finished batches. Any process may take from it; only this object puts into it.
    """

    def __init__(
        self,
        rows: int,
        fields: Mapping[str, tuple[Sequence[int], npt.DTypeLike]],
        *,
        slots: int = 4,
        message_bytes: int = 1024,
    ) -> None:
        rows = checks.whole("rows", rows, at_least=1, at_most=ROWS_MAX)
        slots = checks.whole("slots", slots, at_least=1, at_most=ROWS_MAX)
        if PRESENT in fields:
            raise ValueError(f"no field may be called {PRESENT!r}: that says which rows a batch has")
        layout = {name: ((rows, *map(_length, shape)), np.dtype(dtype)) for name, (shape, dtype) in fields.items()}
        layout[PRESENT] = ((rows,), np.dtype(bool))
        for _, dtype in layout.values():
            spec_of(dtype)
        data_bytes = sum(math.prod(shape) * dtype.itemsize + ALIGNMENT for shape, dtype in layout.values())
        ring = RingBuffer(slots, data_bytes)
        # Grants of all slots, seats, one seat more for each that somebody gives back as another is made, the learner's.
        self._open(rows, layout, ring, RingBuffer(rows * slots + 2 * rows + 1, message_bytes))
        self._learner_in = generation()
        for row in range(rows):
            self._grants.put(None, tag=SEATS + row, target=rows + row)
        self._grants.put(None, tag=LEARNER)
        self._seat = self._grants._core.take(tag=LEARNER)

    def _open(self, rows: int, layout: dict, ring: RingBuffer, grants: RingBuffer) -> None:
        self.rows = rows
        self.ring = ring
        self._layout = layout
        self._grants = grants
        self._windows: dict[int, dict[str, np.ndarray]] = {}
        self._rounds = 0
        self._late: list[tuple[Claim, int, int]] = []  # slots that wait for grants, first to last
        self._learner_in: int | None = None
        self._seat: Lease | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.rows, self._layout, self.ring, self._grants)

    # ---- the learner

    def hand_out(self, messages: Any = None, *, rows: Sequence[int] | None = None, timeout: float | None = None) -> Round:
        """Claim a slot and let each row's process write its row.

        messages: what to send along, a sequence or dict with an entry for each row, such as actions; None sends None.
        rows: only these; the others are not in the batch. timeout: seconds to wait for a slot.
        Several rounds may be out at a time; each row's process gets them in order. Raises Full when `timeout` passes.
        """
        self._must_be_the_learner()
        asked = list(range(self.rows)) if rows is None else sorted({self._checked(row) for row in rows})
        self._rounds += 1
        number = self._rounds
        claim = self._claim(number, timeout)
        this = Round(self, number, claim, asked)
        try:
            self._grants._put_together(
                [(claim.index, None if messages is None else messages[row]) for row in asked],
                [number * self.rows + row for row in asked],
                asked,
            )
        except BaseException:
            this.abort()
            raise
        return this

    def wait_for_writers(self, timeout: float | None = None) -> list[int]:
        """Wait until each row has a process that serves it, `timeout` seconds at most. Returns the rows that have none."""
        self._must_be_the_learner()
        checks.seconds("timeout", timeout)
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._grants.recover()
            vacant = sorted(set(range(self.rows)) - self._seated())
            if not vacant or (until is not None and time.monotonic() >= until):
                return vacant
            time.sleep(LOOK_AGAIN_S)

    def close(self) -> None:
        """Leave. The learner's close ends every serve(), once that has no more to hand in. Batches that are held stay valid."""
        if self._learner_in == generation() and not self._grants.closed:
            self._grants.finish()
            self.ring.finish()
        self._seat = None
        self._windows.clear()
        self._late.clear()
        self._grants.close()
        self.ring.close()

    def __enter__(self) -> RowRing:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _must_be_the_learner(self) -> None:
        if self._learner_in != generation():
            raise RuntimeError("only the process that made this RowRing hands out rows; other ones serve() them")

    def _checked(self, row: int) -> int:
        return checks.whole("row", row, at_least=0, at_most=self.rows - 1)

    def _claim(self, number: int, timeout: float | None) -> Claim:
        checks.seconds("timeout", timeout)
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._free_late_slots()
            left = SLICE_S if until is None else min(SLICE_S, max(0.0, until - time.monotonic()))
            try:
                return self.ring._core.claim(tag=number, timeout=left)
            except Full:
                if until is not None and time.monotonic() >= until:
                    held = f"; {len(self._late)} wait for rows that are late" if self._late else ""
                    raise Full(
                        f"none of the {self.ring.slots} slots came free within {timeout} s{held}; "
                        "drop batches, or make the RowRing with more slots"
                    ) from None

    def _free_late_slots(self) -> None:
        late, self._late = self._late, []
        for claim, first, last in late:
            if self._grants._core.await_no_tag(first, last, timeout=0):
                self._late.append((claim, first, last))
            else:
                claim.abort()

    def _seated(self) -> set[int]:
        return {
            view.tag - SEATS
            for view in self._grants._core.look()
            if view.state == "reading" and view.tag is not None and view.tag >= SEATS
        }

    def _out(self, first: int, last: int) -> set[int]:
        """Rows of which the grant is not gone."""
        views = self._grants._core.look()
        return {view.tag - first for view in views if view.tag is not None and first <= view.tag <= last}

    def _arrays_in(self, exporter: Any) -> tuple[frame.Writer, dict[str, np.ndarray]]:
        """The arrays of a batch in a slot: in the same places in each."""
        writer = frame.Writer(exporter, data_limit=self.ring.slot_bytes)
        return writer, {name: writer.empty(shape, dtype) for name, (shape, dtype) in self._layout.items()}

    # ---- the processes of the rows

    def serve(self, row: int, *, timeout: float | None = None) -> Iterator[Row]:
        """Write this row of each batch: `for row in rows.serve(3):`. Ends when the learner closes, or is dead.

        A row is in when the loop comes round again; if the block raises, or leaves the loop, it is missing. If the process is
        killed, the row is there again for the next one that serves it.
        timeout: seconds to wait for each, None for ever; then Empty.
        Raises RuntimeError when another process serves this row.
        """
        try:
            with contextlib.closing(Seat(self, row)) as seat:
                while (given := seat.next(timeout)) is not None:
                    yield given
                    seat.hand_in()
        except Closed:
            return


class Round:
    """A batch of which the rows are out, from RowRing.hand_out()."""

    def __init__(self, owner: RowRing, number: int, claim: Claim, asked: list[int]) -> None:
        self.number = number
        """Which it is, from 1; the tag of the batch."""
        self._owner = owner
        self._claim: Claim | None = claim
        self._asked = asked
        self._first = number * owner.rows
        self._last = self._first + owner.rows - 1
        self._writer: frame.Writer | None
        self._writer, self._arrays = owner._arrays_in(claim)
        self._arrays[PRESENT][...] = False

    def wait(self, timeout: float | None = None) -> list[int]:
        """Wait until each row that is not in has nobody left who would write it, or `timeout` seconds. Returns those rows.

        What to do about them: publish() or batch() goes on without them. Or start other processes, wait_for_writers(), and
        wait() again: what was handed out to the dead is there for them. After `timeout`, one that only takes long is among them.
        """
        self._must_be_out()
        checks.seconds("timeout", timeout)
        owner = self._owner
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            if owner._grants._core.await_no_tag(self._first, self._last, timeout=left) == 0:
                return self._not_in(set())
            seated = owner._seated()  # before: who hands in and then leaves is not to be missed
            out = owner._out(self._first, self._last)
            if not out & seated or left == 0:
                return self._not_in(out)

    def publish(self, timeout: float | None = None) -> None:
        """Publish the batch in `RowRing.ring`, in place, with the rows that are in; others are zero and not `present`.

        While somebody still has one of its rows in hand, as is possible where wait() did not return [], the batch is a copy in
        another slot: `timeout` seconds to wait for that, then Full, and the round stays out.
        """
        self._must_be_out()
        held = self._take_back()
        missing = [row for row in range(self._owner.rows) if row in held or not self._arrays[PRESENT][row]]
        claim, writer, arrays = self._claim, self._writer, self._arrays
        if held:
            claim = self._owner._claim(self.number, timeout)
            writer, arrays = self._owner._arrays_in(claim)
            for name, array in arrays.items():
                array[...] = self._arrays[name]
        for array in arrays.values() if missing else ():
            array[missing] = np.zeros((), array.dtype)
        claim.commit(writer.finish(arrays))
        self._over(held, published=claim)

    def batch(self, timeout: float | None = None) -> dict[str, np.ndarray]:
        """publish() it, and get() it from the ring: arrays of shape ``(rows, *shape)``, views of the slot that keep it."""
        self.publish(timeout)
        return self._owner.ring.get(tag=self.number, timeout=0)

    def abort(self) -> None:
        """Give the batch up. Idempotent."""
        if self._claim is not None:
            self._over(self._take_back())

    def __del__(self) -> None:
        with contextlib.suppress(Closed):
            if self._owner._learner_in == generation():  # else a fork's copy
                self.abort()

    def _must_be_out(self) -> None:
        if self._claim is None:
            raise RuntimeError("this round is over: it was published or aborted before")
        self._owner._must_be_the_learner()

    def _not_in(self, out: set[int]) -> list[int]:
        return [row for row in self._asked if row in out or not self._arrays[PRESENT][row]]

    def _take_back(self) -> set[int]:
        """Take back every grant that nobody has in hand. Returns the rows of the others, which living processes may write to."""
        grants = self._owner._grants
        for _ in range(2):
            for row in self._owner._out(self._first, self._last):
                with contextlib.suppress(Empty):
                    grants._core.take(tag=self._first + row, timeout=0)
                    self._arrays[PRESENT][row] = False  # of who was killed after his last act but one
            held = self._owner._out(self._first, self._last)
            if not held:
                break
            grants.recover()  # those in the hands of the dead are there again
        return held

    def _over(self, held: set[int], published: Claim | None = None) -> None:
        claim, self._claim, self._writer = self._claim, None, None
        if held:
            self._owner._late.append((claim, self._first, self._last))
        elif claim is not published:
            claim.abort()
        for array in self._arrays.values():
            array.flags.writeable = False  # the slot is about to be somebody else's
        self._arrays = {}


class Row:
    """A row being written, inside `for row in rows.serve(i):`.

    `row["obs"] = value` writes a field; `row["obs"]` is the array inside the slot, of the field's shape, to be written in
    place. Not to be kept: when the loop comes round, the row is the learner's.
    """

    __slots__ = ("_views", "message", "number")

    def __init__(self, number: int, message: Any, views: dict[str, np.ndarray]) -> None:
        self.number = number
        """Of the round, from 1."""
        self.message = message
        """What the learner sent along, as private arrays."""
        self._views = views

    def __getitem__(self, name: str) -> np.ndarray:
        return self._views[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._views[name][...] = value


class Seat:
    """The right to write one row of each batch, held by one process at a time."""

    def __init__(self, owner: RowRing, row: int) -> None:
        self._owner = owner
        self._row = owner._checked(row)
        self._grant: Lease | None = None
        self._given: Row | None = None
        self._present: np.ndarray | None = None
        self._seat: Lease | None = self._take_seat()

    def _take_seat(self) -> Lease:
        grants, tag = self._owner._grants, SEATS + self._row
        grants.recover()
        for _ in range(2):
            try:
                return grants._core.take(tag=tag, timeout=0)
            except Empty:
                if self._row in self._owner._seated():
                    raise RuntimeError(f"row {self._row} is served already; one process at a time can") from None
            grants.put(None, tag=tag, target=self._owner.rows + self._row, timeout=0)  # whoever left took it along
        raise RuntimeError(f"row {self._row} is served already; one process at a time can")

    def next(self, timeout: float | None = None) -> Row | None:
        """The next row to write, or None when the learner is no more. Empty after `timeout` seconds."""
        owner, grants = self._owner, self._owner._grants
        lease = grants._core.take(target=self._row, timeout=timeout)
        if lease.tag == LEARNER:
            grants.finish()  # the others learn it by this; were we killed before, they would get what we have got
            return None
        index, message = frame.read(lease, copy=True, imports=True)
        arrays = owner._windows.get(index)
        if arrays is None:
            arrays = owner._windows[index] = owner._arrays_in(owner.ring._core.window(index))[1]
        views = {name: array[self._row, ...] for name, array in arrays.items()}
        self._grant, self._present = lease, views.pop(PRESENT)
        self._given = Row(lease.tag // owner.rows, message, views)
        return self._given

    def hand_in(self) -> None:
        """The row is written."""
        self._present[...] = True
        self._end()

    def close(self) -> None:
        """Serve no more; a row that was not handed in is missing. Idempotent."""
        self._end()
        self._seat = None

    def _end(self) -> None:
        if self._given is not None:
            for view in (*self._given._views.values(), self._present):
                view.flags.writeable = False
        self._given = self._present = None
        self._grant = None  # the release: all that was written is written before


def _length(axis: int) -> int:
    return checks.whole("a field's axis", axis, at_least=0, at_most=SLOT_BYTES_MAX)


def _rebuilt(rows: int, layout: dict, ring: RingBuffer, grants: RingBuffer) -> RowRing:
    self = RowRing.__new__(RowRing)
    self._open(rows, layout, ring, grants)
    return self
