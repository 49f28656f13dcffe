"""How much is measured: for how long, with how many workers, on how much memory."""

from __future__ import annotations

import os
from typing import NamedTuple

from ringbuf import memory
from ringbuf.cli.outcome import Failed
from ringbuf.cli.units import nbytes

__all__ = ["BATCH_ROWS", "FULL", "QUICK", "ROWS", "SMALL_ROW_BYTES", "TINY", "Size", "fit", "worker_counts"]

BATCH_ROWS = 32
ROWS = 193  # in memory; a prime, so that each batch has other ones
PREFETCH = 2  # batches that each worker may be ahead: what both loaders do unless told
SMALL_ROW_BYTES = 256
LEAST_ROW_BYTES = 1024  # of a large batch
SHARE = 4  # one part in so many of what is free


class Size(NamedTuple):
    """budget_s: seconds that all timed runs together should take. row_bytes: of a sample of large batches."""

    name: str
    budget_s: float
    rounds: int
    row_bytes: int


FULL = Size("full", budget_s=46.0, rounds=5, row_bytes=256 * 256 * 3 * 4)
QUICK = Size("quick", budget_s=5.0, rounds=3, row_bytes=256 * 256 * 3 * 4)
TINY = Size("tiny", budget_s=0.1, rounds=2, row_bytes=LEAST_ROW_BYTES)


def worker_counts() -> list[int]:
    """1, 2 and 4, as far as there are cores for them."""
    cores = len(os.sched_getaffinity(0))
    return [count for count in (1, 2, 4) if count == 1 or count <= cores]


def fit(row_bytes: int, workers: int, *, torch: bool) -> tuple[int, str]:
    """Bytes of a row of the large batches, halved until all of it fits, and why they are fewer, or "". Failed: it never does.

    workers: the most there will be. torch: whether a loader of torch's runs too, whose batches lie in /dev/shm.
    """
    try:
        free, free_shm = memory.free_bytes(named=False), memory.free_bytes(named=True)
    except (OSError, LookupError, ValueError) as error:
        raise Failed(f"how much memory is free cannot be found out: {error}") from None
    fits = row_bytes
    while (short := _short(fits, workers, free, free_shm, torch=torch)) and fits > LEAST_ROW_BYTES:
        fits //= 2
    if short:
        raise Failed(f"too little memory: {short}, and it takes more even with the smallest batches")
    if fits == row_bytes:
        return fits, ""
    why = _short(2 * fits, workers, free, free_shm, torch=torch)
    batches = f"{nbytes(BATCH_ROWS * fits)} instead of {nbytes(BATCH_ROWS * row_bytes)}"
    return fits, f"the large batches are of {batches}: {why}, and at most a quarter of that is used"


def _short(row_bytes: int, workers: int, free: int, free_shm: int, *, torch: bool) -> str:
    """What there is too little of, or ""."""
    under_way = (PREFETCH * workers + 2) * BATCH_ROWS * row_bytes  # of one loader
    loaders = 2 if torch else 1
    copied = workers * BATCH_ROWS * row_bytes
    if SHARE * (ROWS * row_bytes + loaders * under_way + copied) > free:
        return f"{nbytes(free)} of memory are free"
    if torch and SHARE * under_way > free_shm:
        return f"{nbytes(free_shm)} of {memory.SHM} are free"
    return ""
