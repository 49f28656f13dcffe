"""Datasets whose samples tell which they are and whether they are whole. In a module of their own for spawned workers."""

from __future__ import annotations

import time
import zlib
from typing import Any

import numpy as np

from ringbuf import get_worker_info

_PATTERN = np.random.default_rng(2).integers(0, 256, 1 << 20, np.uint8)
SPAN = 4096  # samples begin at so many places


class Planned(ValueError):
    """The exception that the plan wants from a sample."""


def data(index: int, nbytes: int) -> np.ndarray:
    start = index * 2654435761 % SPAN
    return _PATTERN[start : start + nbytes]


def sample(index: int, nbytes: int) -> dict[str, Any]:
    array = data(index, nbytes)
    return {"index": index, "not": ~index, "data": array, "crc": zlib.crc32(array)}


class Samples:
    """By index. Batches grow where `grow_every` is set: every so many samples their data becomes longer.

    log: words shared with the main process, or None: which batch each worker is at, see `begin`.
    """

    def __init__(
        self,
        length: int,
        nbytes: int,
        grow_every: int = 0,
        failing: frozenset[int] = frozenset(),
        batch_size: int = 1,
        log: Any = None,
    ):
        self.length, self.nbytes, self.grow_every, self.failing = length, nbytes, grow_every, failing
        self.batch_size, self.log = batch_size, log

    def __len__(self) -> int:
        return self.length

    def size(self, index: int) -> int:
        steps = index // self.grow_every if self.grow_every else 0
        return min(self.nbytes << min(steps, 8), 1 << 18)

    def begin(self, number: int) -> None:
        """In the main process, when nothing of an earlier pass is under way any more."""
        if self.log is not None:
            self.log[0] = number

    def finished_before(self, worker: int, number: int) -> int:
        """The batch that a worker was at: those before it, as far as they are this worker's, were finished."""
        entry = 0 if self.log is None else self.log[1 + worker]
        return entry & 0xFFFFFFFF if entry >> 32 == number else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.log is not None:
            self.log[1 + get_worker_info().id] = self.log[0] << 32 | index // self.batch_size
        if index in self.failing:
            raise Planned(index)
        return sample(index, self.size(index))


class Stuck(Samples):
    """Comes to a sample that takes for ever: only the kernel gets a worker out of there."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index >= self.batch_size:
            time.sleep(3600)
        return super().__getitem__(index)


class Streams:
    """In its own order; each worker has every n-th sample."""

    def __init__(self, length: int, nbytes: int):
        self.length, self.nbytes = length, nbytes

    def size(self, index: int) -> int:
        return self.nbytes

    def __iter__(self):
        info = get_worker_info()
        for index in range(info.id, self.length, info.num_workers):
            yield sample(index, self.nbytes)


def check(batch: dict[str, Any], size: Any) -> list[int]:
    """The indices of the samples in a batch, all of whose parts were looked at."""
    indices = batch["index"].tolist()
    if (~batch["index"] != batch["not"]).any():
        raise AssertionError(f"a batch says {indices} and inverted {(~batch['not']).tolist()}")
    if batch["data"].shape != (len(indices), size(indices[0])):
        raise AssertionError(f"the batch {indices} has the shape {batch['data'].shape}, wanted {size(indices[0])} each")
    for row, crc, index in zip(batch["data"], batch["crc"].tolist(), indices):
        if zlib.crc32(row) != crc or not np.array_equal(row, data(index, len(row))):
            raise AssertionError(f"sample {index} in the batch {indices} is damaged; it begins {bytes(row[:16]).hex()}")
    return indices
