"""What a page says at one moment, as plain records. Whatever stands there was written by another process, and is looked at as
such: a word that cannot be is a CorruptSegment that names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringbuf.checks import ring_name
from ringbuf.errors import CorruptSegment
from ringbuf.telemetry import _meter
from ringbuf.telemetry._meter import Consumer, Header, Sizes, State, Worker

__all__ = ["ConsumerSnapshot", "PageHeader", "Snapshot", "WorkerSnapshot", "header_of", "snapshot_of"]

MOST_ROWS = 1024
MOST_RECORDS = 1 << 20
WORD = 8

STATES = {
    State.ABSENT: "absent",
    State.IDLE: "idle",
    State.WAITING: "waiting",
    State.USING: "using",
    State.WAITING_FOR_TASK: "waiting for a task",
    State.WAITING_FOR_SLOT: "waiting for a slot",
    State.LOADING: "loading",
    State.COLLATING: "collating",
    State.ENDED: "ended",
}


@dataclass(frozen=True)
class PageHeader:
    """What does not change in the life of a page."""

    name: str
    pid: int
    """Of the trainer, as that one knows it: in a container it has another number outside."""
    program: str
    """The name of its script."""
    started_ns: int
    """When the loader began its first pass, by CLOCK_MONOTONIC."""
    started_wall_ns: int
    """The same, in nanoseconds since 1970."""
    rows: int
    """Workers that there is room for."""
    records: int
    """Of each event log."""


@dataclass(frozen=True)
class ConsumerSnapshot:
    """The trainer's side. Counts and times are sums over the life of the loader; all times are in nanoseconds."""

    state: str
    """What it does: "idle" between passes, "waiting" in next(), "using" between two calls of next()."""
    since_ns: int
    """When that began, by CLOCK_MONOTONIC."""
    batches: int
    """Handed out."""
    nbytes: int
    """Their bytes: in their slots, or of their arrays where there are no workers."""
    copies: int
    """Batches among them that were private copies, because the consumer held too many slots."""
    wait_ns: int
    """Spent in next()."""
    use_ns: int
    """Spent between two calls of next() in a pass."""
    waits: tuple[int, ...]
    """48 counts of calls of next(): in place b those that took less than 2**b ns, and not less than half of that."""
    batch: int | None
    """The number in its pass of the last batch that was handed out."""
    held: int
    """Slots that the consumer still looks at. This one and the next two are some milliseconds old, and 0 without workers."""
    ready: int
    """Batches that are made and not yet taken."""
    out: int
    """Tasks that workers were given and that are not answered, or whose answer is not yet taken."""
    restarts: int
    """Workers that took the place of dead ones."""
    errors: int
    """Samples that failed and were passed over."""


@dataclass(frozen=True)
class WorkerSnapshot:
    """One worker, or the trainer itself where there are none. Sums are over the life of the loader, also where another
    process has taken a dead one's place; all times are in nanoseconds.

    A worker waits for a task when all it may make is made: then the ring is full, and the consumer is what is slow.
    """

    id: int
    pid: int
    state: str
    """What it does: "waiting for a task", "waiting for a slot", "loading" (in the dataset), "collating" (also copying into the
    slot), "ended", "dead" for a process that has ended and could not say so, "absent" before it began, "idle" without workers."""
    since_ns: int
    """When that began, by CLOCK_MONOTONIC. A batch that is collated sample by sample counts as loading until it is made."""
    batch: int | None
    """The number in its pass of the batch in hand, or of the last one."""
    batches: int
    """Made; each one is counted just before it is published."""
    samples: int
    nbytes: int
    """Bytes of its batches, as they lie in slots."""
    load_ns: int
    """Spent in the dataset. Where batches take less than a millisecond, only one of 64 is timed sample by sample, and the others
    are divided into loading and collating as the last one that was."""
    collate_ns: int
    """Spent on the rest of a batch: collating and copying. To wake who waits for it counts as waiting for the next task."""
    wait_task_ns: int
    wait_slot_ns: int
    """Spent waiting, until the batch in hand; a wait that is not over is told by `state` and `since_ns`."""


@dataclass(frozen=True)
class Snapshot:
    """One look at a loader. Two of them make rates: batches per second are
    (b.consumer.batches - a.consumer.batches) * 1e9 / (b.taken_ns - a.taken_ns)."""

    name: str
    pid: int
    program: str
    started_ns: int
    started_wall_ns: int
    taken_ns: int
    """When it was taken, by CLOCK_MONOTONIC."""
    num_workers: int
    """Worker processes of the pass; 0 where the trainer makes batches itself."""
    slots: int
    """Of the data ring; 0 without workers."""
    slot_bytes: int
    passes: int
    """That were begun."""
    epoch: int | None
    """What set_epoch() said."""
    length: int | None
    """Batches of the pass, where that is known."""
    consumer: ConsumerSnapshot
    workers: tuple[WorkerSnapshot, ...]


def header_of(words: Sequence[int], nbytes: int) -> PageHeader:
    """The header, from the words of that at the beginning of a page of so many bytes. Raises CorruptSegment."""
    if words[Header.MAGIC_AT] != _meter.MAGIC:
        raise CorruptSegment("it is no loader's page, or one that is not complete yet")
    version = words[Header.VERSION_AT]
    if version != _meter.LAYOUT_VERSION:
        raise CorruptSegment(
            f"it has layout {version}, and this ringbuf reads layout {_meter.LAYOUT_VERSION}; look at it with the ringbuf that "
            "the trainer uses"
        )
    rows, records = words[Header.ROWS], words[Header.RECORDS]
    if not 1 <= rows <= MOST_ROWS or not 1 <= records <= MOST_RECORDS or records & (records - 1):
        raise CorruptSegment(f"it says that it has {rows} rows and logs of {records} records")
    needed = WORD * _meter.page_words(rows, records)
    if words[Header.PAGE_WORDS] * WORD != needed or nbytes < needed:
        raise CorruptSegment(f"it has {nbytes} bytes, and {rows} rows with logs of {records} records need {needed}")
    name = _text(words[Header.NAME_AT : Header.PROGRAM_AT])
    try:
        ring_name(name)
    except ValueError as error:
        raise CorruptSegment(f"it has a name that no loader can have: {error}") from None
    return PageHeader(
        name=name,
        pid=_count(words, Header.PID),
        program=_text(words[Header.PROGRAM_AT : Sizes.HEADER]),
        started_ns=_count(words, Header.STARTED_NS),
        started_wall_ns=_count(words, Header.STARTED_WALL_NS),
        rows=rows,
        records=records,
    )


def consumer_of(row: Sequence[int]) -> ConsumerSnapshot:
    """The consumer's side, from the words of its row."""
    return ConsumerSnapshot(
        state=_state(row[Consumer.STATE]),
        since_ns=_count(row, Consumer.SINCE_NS),
        batches=_count(row, Consumer.BATCHES),
        nbytes=_count(row, Consumer.NBYTES),
        copies=_count(row, Consumer.COPIES),
        wait_ns=_count(row, Consumer.WAIT_NS),
        use_ns=_count(row, Consumer.USE_NS),
        waits=tuple(_count(row, word) for word in range(Consumer.WAITS, Consumer.WAITS + Sizes.BUCKETS)),
        batch=_number(row, Consumer.BATCH),
        held=_count(row, Consumer.HELD),
        ready=_count(row, Consumer.READY),
        out=_count(row, Consumer.OUT),
        restarts=_count(row, Consumer.RESTARTS),
        errors=_count(row, Consumer.ERRORS),
    )


def worker_of(number: int, row: Sequence[int]) -> WorkerSnapshot:
    """One worker, from the words of its row."""
    return WorkerSnapshot(
        id=number,
        pid=_count(row, Worker.W_PID),
        state=_state(row[Worker.W_STATE]),
        since_ns=_count(row, Worker.W_SINCE_NS),
        batch=_number(row, Worker.W_BATCH),
        batches=_count(row, Worker.W_BATCHES),
        samples=_count(row, Worker.W_SAMPLES),
        nbytes=_count(row, Worker.W_NBYTES),
        load_ns=_count(row, Worker.W_LOAD_NS),
        collate_ns=_count(row, Worker.W_COLLATE_NS),
        wait_task_ns=_count(row, Worker.W_WAIT_TASK_NS),
        wait_slot_ns=_count(row, Worker.W_WAIT_SLOT_NS),
    )


def snapshot_of(header: PageHeader, words: Sequence[int], taken_ns: int) -> Snapshot:
    """All of it, from the words of header and rows."""
    row = words[_meter.row_at(-1) :]
    num_workers = _count(row, Consumer.WORKERS)
    if num_workers > header.rows:
        raise CorruptSegment(f"it says that it has {num_workers} workers, and has {header.rows} rows")
    workers = []
    for number in range(header.rows):
        at = _meter.row_at(number)
        worker = worker_of(number, words[at : at + Sizes.WORKER_ROW])
        if number < num_workers or worker.state != "absent":
            workers.append(worker)
    return Snapshot(
        name=header.name,
        pid=header.pid,
        program=header.program,
        started_ns=header.started_ns,
        started_wall_ns=header.started_wall_ns,
        taken_ns=taken_ns,
        num_workers=num_workers,
        slots=_count(row, Consumer.SLOTS),
        slot_bytes=_count(row, Consumer.SLOT_BYTES),
        passes=_count(row, Consumer.PASSES),
        epoch=_number(row, Consumer.EPOCH),
        length=_number(row, Consumer.LENGTH),
        consumer=consumer_of(row),
        workers=tuple(workers),
    )


def _count(row: Sequence[int], word: int) -> int:
    value = row[word]
    if value < 0:
        raise CorruptSegment(f"its word {getattr(word, 'name', word)} is {value}")
    return value


def _number(row: Sequence[int], word: int) -> int | None:
    value = _count(row, word)
    return value - 1 if value else None


def _state(value: int) -> str:
    try:
        return STATES[value]
    except KeyError:
        raise CorruptSegment(f"a state in it is {value}") from None


def _text(words: Sequence[int]) -> str:
    """A text as it may be shown: of whatever characters somebody has put there, those that can be printed."""
    data = b"".join(word.to_bytes(WORD, "little", signed=True) for word in words).partition(b"\0")[0]
    return "".join(letter if letter.isprintable() else "?" for letter in data.decode("utf-8", "replace"))
