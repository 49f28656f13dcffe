"""A loader's account of itself: what its pages say (telemetry), and what is too rare or too long for them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ringbuf.loader.advice import warn
from ringbuf.loader.substitute import MOST_KEPT, FailedSample, PassedOver
from ringbuf.telemetry.snapshot import Snapshot, WorkerSnapshot
from ringbuf.tensors import is_tensor

__all__ = ["Account", "LoaderStats", "array_bytes"]

@dataclass(frozen=True)
class LoaderStats:
    """What a loader has done since it was made, over all its iterators; `str()` is a small table."""

    batches: int
    """Batches handed out."""
    bytes: int
    """Their size: as they lay in their slots, or the size of their arrays where there are no workers."""
    copies: int
    """Batches that were handed out as private copies, because the consumer held too many slots."""
    wait_ns: int
    """Nanoseconds that the consumer waited in next()."""
    workers: int
    """Worker processes of an iterator."""
    slots: int
    """Slots of the data ring; 0 before the first iterator, and without workers."""
    slot_bytes: int
    """Room for arrays in each of them."""
    generations: int
    """Data rings that were made: one, and one each time that batches outgrew the slots."""
    restarts: int
    """Workers that took the place of dead ones."""
    errors: int
    """Samples that failed and were passed over, with on_error="skip" or a function."""
    failed: tuple[FailedSample, ...]
    """The last 64 of them: index, error, and whether another sample took the place. Not in the table."""
    use_ns: int
    """Nanoseconds between two calls of next() in a pass: what the consumer does with a batch."""
    load_ns: int
    """Nanoseconds in the dataset, of all workers together. This and the next three are 0 where there was no memory for a page."""
    collate_ns: int
    """Collating and copying, of all workers together."""
    wait_task_ns: int
    """Waiting for something to do, of all workers together."""
    wait_slot_ns: int
    """Waiting for a free slot, of all workers together."""
    by_worker: tuple[WorkerSnapshot, ...]
    """The same for each worker. Without workers there is one, which is this process."""

    def __str__(self) -> str:
        rows = [(field.name, getattr(self, field.name)) for field in fields(self)]
        lines = [_shown(name, value) for name, value in rows if isinstance(value, int)]
        width = max(len(value) for _, value in lines)
        table = [f"{name:<12}{value:>{width}}" for name, value in lines]
        return "\n".join(table + _table_of(self.by_worker))


COLUMNS = ("pid", "batches", "samples", "load_ns", "collate_ns", "wait_task_ns", "wait_slot_ns")


def _table_of(workers: Iterable[WorkerSnapshot]) -> list[str]:
    cells = [[("worker", str(worker.id)), *(_shown(name, getattr(worker, name)) for name in COLUMNS)] for worker in workers]
    if not cells:
        return []
    heads = [name for name, _ in cells[0]]
    rows = [heads, *([value for _, value in line] for line in cells)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["", *("  ".join(f"{value:>{width}}" for value, width in zip(row, widths)) for row in rows)]


def _shown(name: str, value: int) -> tuple[str, str]:
    """A number and what it is called, times in seconds."""
    if name.endswith("_ns"):
        return name.removesuffix("ns") + "s", f"{value / 1e9:.3f}"
    return name, str(value) if name == "pid" else f"{value:,}"


class Account:
    """The same while it is being written; one for each loader, shared by its iterators."""

    def __init__(self) -> None:
        self.slots = 0
        self.slot_bytes = 0
        self.generations = 0
        self.restarts = 0
        self.errors = 0
        self.failed: deque[FailedSample] = deque(maxlen=MOST_KEPT)
        self.warned_of_copies = False

    def ring(self, *, slots: int, slot_bytes: int, generations: int) -> None:
        """Note the data ring as it is now."""
        self.slots, self.slot_bytes, self.generations = slots, slot_bytes, generations

    def note(self, passed_over: PassedOver) -> None:
        """Take down samples that were passed over; say so when it is the first time."""
        count, last = passed_over
        if not count:
            return
        first_time = not self.errors
        self.errors += count
        self.failed.extend(FailedSample(*failed) for failed in last)
        if first_time:
            index, error, replaced = last[0] if last else (None, "its error is lost", False)
            which = "a sample of the iterable dataset" if index is None else f"sample {index!r}"
            end = " (a generator that raised is at its end: what it had left is lost)" if index is None else ""
            warn(
                f"RingLoader: {which} failed ({error}) and was {'replaced' if replaced else 'left out'}, as on_error "
                f"says{end}. stats().errors counts, stats().failed lists those that will follow",
                RuntimeWarning,
            )

    def stats(self, *, workers: int, snapshots: Sequence[Snapshot]) -> LoaderStats:
        """snapshots: of all pages of the loader."""
        consumers = [snapshot.consumer for snapshot in snapshots]
        by_worker = tuple(worker for snapshot in snapshots for worker in snapshot.workers if worker.state != "absent")
        return LoaderStats(
            batches=sum(consumer.batches for consumer in consumers),
            bytes=sum(consumer.nbytes for consumer in consumers),
            copies=sum(consumer.copies for consumer in consumers),
            wait_ns=sum(consumer.wait_ns for consumer in consumers),
            workers=workers,
            slots=self.slots,
            slot_bytes=self.slot_bytes,
            generations=self.generations,
            restarts=self.restarts,
            errors=self.errors,
            failed=tuple(self.failed),
            use_ns=sum(consumer.use_ns for consumer in consumers),
            load_ns=sum(worker.load_ns for worker in by_worker),
            collate_ns=sum(worker.collate_ns for worker in by_worker),
            wait_task_ns=sum(worker.wait_task_ns for worker in by_worker),
            wait_slot_ns=sum(worker.wait_slot_ns for worker in by_worker),
            by_worker=by_worker,
        )


def array_bytes(batch: Any) -> int:
    """The size of the arrays or tensors of a batch, in the containers that collation makes."""
    if isinstance(batch, (np.ndarray, np.generic)):
        return batch.nbytes
    if is_tensor(batch):
        return batch.nbytes if batch.layout is sys.modules["torch"].strided and not batch.is_nested else 0
    if isinstance(batch, dict):
        return sum(map(array_bytes, batch.values()))
    if isinstance(batch, (list, tuple)):
        return sum(map(array_bytes, batch))
    return 0
