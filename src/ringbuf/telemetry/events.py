"""The event logs of a page: what the consumer and each worker did last, one span after the other."""

from __future__ import annotations

from typing import NamedTuple

from ringbuf.errors import CorruptSegment
from ringbuf.telemetry import _meter
from ringbuf.telemetry._meter import Kind, Sizes
from ringbuf.telemetry.snapshot import PageHeader

__all__ = ["Cursor", "Event", "Events", "cursor_of", "read_events"]

KINDS = {
    Kind.WAIT: "wait",
    Kind.USE: "use",
    Kind.READY_SLOTS: "ready",
    Kind.WAIT_TASK: "wait for a task",
    Kind.WAIT_SLOT: "wait for a slot",
    Kind.LOAD: "load",
    Kind.COLLATE: "collate",
}

Cursor = tuple[int, ...]
"""How many records of each log were read: first the consumer's, then the workers'."""


class Event(NamedTuple):
    """A span of the life of the consumer or of a worker."""

    kind: str
    """Of the consumer: "wait" in next(), "use" of a batch until it asks for the next one, "ready", a count. Of a worker: "wait
    for a task", "load", "wait for a slot", "collate". Samples are loaded and laid down in turns: the loads of a batch are put
    together at its beginning, and what is left is "collate"."""
    worker: int | None
    """Whose it is; None: the consumer's."""
    batch: int | None
    """The number of the batch in its pass; None for a wait that was for none. Of "ready": how many batches were ready."""
    number: int
    """Of the pass, from 0."""
    maker: int | None
    """The worker that made the batch, in a span of the consumer, if that is known."""
    begin_ns: int
    """By CLOCK_MONOTONIC."""
    duration_ns: int


class Events(NamedTuple):
    """What was read."""

    events: list[Event]
    """Those of the consumer, then those of each worker; each in order."""
    missed: int
    """Records that were written over before they could be read."""
    cursor: Cursor
    """For the next call, which goes on from here."""


def cursor_of(words: memoryview, header: PageHeader) -> Cursor:
    """Where all logs are now."""
    return tuple(_head(words[_log_at(row, header)]) for row in range(-1, header.rows))


def read_events(words: memoryview, header: PageHeader, since: Cursor | None) -> Events:
    """What was logged since then; None: all that is still there.

    words: the whole page.
    """
    if since is not None and len(since) != header.rows + 1:
        raise ValueError(f"the cursor is of {len(since)} logs, and this page has {header.rows + 1}")
    found: list[Event] = []
    missed = 0
    cursor = []
    for row in range(-1, header.rows):
        begin = None if since is None else since[row + 1]
        events, lost, end = _read_log(words, header, row, begin)
        found += events
        missed += lost
        cursor.append(end)
    return Events(found, missed, tuple(cursor))


def _read_log(words: memoryview, header: PageHeader, row: int, begin: int | None) -> tuple[list[Event], int, int]:
    at, records = _log_at(row, header), header.records
    end = _head(words[at])
    wanted = max(end - records, 0) if begin is None else min(max(begin, 0), end)
    first = max(wanted, end - records)
    _meter.fence()
    body = at + Sizes.LOG_HEAD
    copies = []
    for sequence in range(first, end):
        place = body + (sequence % records) * Sizes.RECORD
        copies.append(words[place : place + Sizes.RECORD].tolist())
    _meter.fence()
    # Whatever may have been written over meanwhile, and what is being written over now.
    sound = max(first, _head(words[at]) - records + 1) if copies else first
    events = [_event(copy, row, sequence) for sequence, copy in enumerate(copies, first) if sequence >= sound]
    skipped = 0 if begin is None else min(sound, end) - wanted
    return events, skipped, end


def _event(record: list[int], row: int, sequence: int) -> Event:
    head, batch, began, took = record
    kind = head & 0xFF
    if kind not in KINDS or head >> 24 != sequence or batch < 0 or began < 0 or took < 0:
        raise CorruptSegment(f"record {sequence} of log {row} is {record}")
    maker = (head >> 8 & 0xFFFF) - 1
    number = (batch & ((1 << 40) - 1)) - 1
    return Event(
        kind=KINDS[kind],
        worker=None if row < 0 else row,
        batch=None if number < 0 else number,
        number=batch >> 40,
        maker=None if maker < 0 else maker,
        begin_ns=began,
        duration_ns=took,
    )


def _log_at(row: int, header: PageHeader) -> int:
    return _meter.log_at(row, header.rows, header.records)


def _head(value: int) -> int:
    if value < 0:
        raise CorruptSegment(f"a log in it says that it has had {value} records")
    return value
