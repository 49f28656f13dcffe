"""How much is measured: for how long, with how many workers, on how much memory."""

from __future__ import annotations

import os
from typing import NamedTuple

from ringbuf import memory
from ringbuf.cli.outcome import Failed
from ringbuf.cli.units import nbytes

__all__ = ["BATCH_ROWS", "FULL", "PREFETCH", "QUICK", "SMALL", "TINY", "Shape", "Size", "fit", "under_way", "worker_counts"]

BATCH_ROWS = 32
PREFETCH = 2  # batches that each worker may be ahead: what both loaders do unless told
LEAST_ROW_BYTES = 1024  # of a large batch
SHARE = 4  # one part in so many of what is free


class Shape(NamedTuple):
    """Samples of one kind: bytes of each, and how many there are, an odd number, so that each batch has other ones."""

    row_bytes: int
    rows: int


class Size(NamedTuple):
    """budget_s: seconds that all timed runs together should take. large: samples of the large batches."""

    name: str
    budget_s: float
    rounds: int
    large: Shape


SMALL = Shape(256, 193)
LARGE = Shape(256 * 256 * 3 * 4, 193)  # 152 MB, which is more than most caches
FULL = Size("full", 46.0, 5, LARGE)
QUICK = Size("quick", 5.0, 3, LARGE)
TINY = Size("tiny", 0.1, 2, Shape(LEAST_ROW_BYTES, 193))


def worker_counts() -> list[int]:
    """1, 2 and 4, as far as there are cores for them."""
    cores = len(os.sched_getaffinity(0))
    return [count for count in (1, 2, 4) if count == 1 or count <= cores]


def under_way(workers: int) -> int:
    """Batches of a loader that there are at a time: those ahead, the one in hand, and the one before it."""
    return PREFETCH * workers + 2


def fit(large: Shape, workers: int, *, torch: bool) -> tuple[Shape, str]:
    """Samples for large batches, halved until all of it fits, and why they are smaller, or "". Failed: it never does.

    workers: the most there will be. torch: whether a loader of torch's runs too, whose batches lie in /dev/shm.
    """
    try:
        free, free_shm = memory.free_bytes(named=False), memory.free_bytes(named=True)
    except (OSError, LookupError, ValueError) as error:
        raise Failed(f"how much memory is free cannot be found out: {error}") from None
    row_bytes, why = large.row_bytes, ""
    while short := _short(_shape(large, row_bytes, free), workers, free, free_shm, torch=torch):
        if row_bytes // 2 < LEAST_ROW_BYTES:
            raise Failed(f"too little memory: {short}, and it takes more even with the smallest batches")
        row_bytes //= 2
        batches = f"{nbytes(BATCH_ROWS * row_bytes)} instead of {nbytes(BATCH_ROWS * large.row_bytes)}"
        why = f"the large batches are of {batches}: {short}, and at most a quarter of that is used"
    return _shape(large, row_bytes, free), why


def _shape(large: Shape, row_bytes: int, free: int) -> Shape:
    """As many rows as make up what `large` has, so that they are no nearer to the processor, unless that is too much."""
    all_bytes = min(large.row_bytes * large.rows, free // SHARE // 4)
    return Shape(row_bytes, max(large.rows, all_bytes // row_bytes) | 1)


def _short(shape: Shape, workers: int, free: int, free_shm: int, *, torch: bool) -> str:
    """What there is too little of, or ""."""
    one_loader = under_way(workers) * BATCH_ROWS * shape.row_bytes
    users = 3 if torch else 2  # the loaders, and who only copies
    if SHARE * (shape.rows * shape.row_bytes + users * one_loader) > free:
        return f"{nbytes(free)} of memory are free"
    if torch and SHARE * one_loader > free_shm:
        return f"{nbytes(free_shm)} of {memory.SHM} are free"
    return ""
