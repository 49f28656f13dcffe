"""Epochs of one loader: checked whole, or timed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from ringbuf.cli.bench.samples import Samples
from ringbuf.cli.outcome import Failed

__all__ = ["Entrant"]

PILOT = 10  # batches
UNTIMED = 5  # one part in so many of an epoch: what came before, another loader, has to leave the caches and the processors
SMALL_BYTES = 1 << 20
LOOK_EVERY = 64  # of small batches, so that looking is no part of what is measured


class Entrant:
    """A loader whose workers stay, and the number of batches that it makes in `run_s` seconds."""

    def __init__(self, who: str, loader: Iterable[Any], samples: Samples, run_s: float):
        self._who, self._loader, self._samples = who, loader, samples
        self._every = LOOK_EVERY if samples.batch_bytes < SMALL_BYTES else 1
        self._run_s = run_s
        self._count = PILOT
        self.arrived = 0  # batches, in all epochs

    def start(self, batches: int) -> None:
        """Start the workers, and an epoch of so many batches."""
        self._samples.batches = batches
        self._begun = iter(self._loader)

    def check(self) -> None:
        """Check every byte of the epoch that was started."""
        number = 0
        for batch in self._begun:
            self._samples.check_all(self._who, number, batch)
            number += 1
        del self._begun
        self._arrived(number)

    def warm_up(self) -> None:
        """Find out how many batches a run should have."""
        while (elapsed_s := self._count / self.rate()) < self._run_s / 4:
            self._count *= 4
        self._count = max(PILOT, round(self._count * self._run_s / elapsed_s))

    def rate(self) -> float:
        """Batches per second of one run, from when the first few have arrived to the end of the epoch."""
        samples, every, who, number = self._samples, self._every, self._who, 0
        samples.batches, mark = self._count, self._count // UNTIMED
        for batch in self._loader:
            if number % every == 0:
                samples.check_ends(who, number, batch)
            number += 1
            if number == mark:
                start = time.perf_counter()
        end = time.perf_counter()
        self._arrived(number)
        return (number - mark) / (end - start)

    def _arrived(self, number: int) -> None:
        if number != self._samples.batches:
            raise Failed(f"{self._who}: {self._samples.batches} batches were due, {number} arrived")
        self.arrived += number
