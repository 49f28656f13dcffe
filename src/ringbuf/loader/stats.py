"""A loader's account of itself."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ringbuf.loader.advice import warn
from ringbuf.loader.substitute import MOST_KEPT, FailedSample, PassedOver
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

    def __str__(self) -> str:
        rows = [(field.name, getattr(self, field.name)) for field in fields(self) if field.name != "failed"]
        shown = [("wait_s", f"{value / 1e9:.3f}") if name == "wait_ns" else (name, f"{value:,}") for name, value in rows]
        width = max(len(value) for _, value in shown)
        return "\n".join(f"{name:<12}{value:>{width}}" for name, value in shown)


class Account:
    """The same while it is being written; one for each loader, shared by its iterators."""

    def __init__(self) -> None:
        self.batches = 0
        self.bytes = 0
        self.copies = 0
        self.wait_ns = 0
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

    def stats(self, *, workers: int) -> LoaderStats:
        return LoaderStats(
            batches=self.batches,
            bytes=self.bytes,
            copies=self.copies,
            wait_ns=self.wait_ns,
            workers=workers,
            slots=self.slots,
            slot_bytes=self.slot_bytes,
            generations=self.generations,
            restarts=self.restarts,
            errors=self.errors,
            failed=tuple(self.failed),
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
