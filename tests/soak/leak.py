"""Whether something grows: a line through many samples, and how much it rises over the time that was measured.

The bound is on the rise, not on the slope. A pool, a cache or a table that is larger for good once it was needed is one step: a
line through samples that hold it rises by about as much, whether the run takes a minute or a day (measured here: some hundred
KiB). A leak rises without end. So the same bound becomes finer the longer the run: 1 MiB is 23 KiB/s over the 45 s of a
minute that count, 12 B/s in a day. A loss of 8 KiB with each of a hundred faults shows in a minute, of 128 bytes in an hour.
Descriptors and processes have no such step: at rest their number is the same each time, and is demanded exactly (census.py);
their slopes are there to be read.
"""

from __future__ import annotations

import time

RISE_KIB = 1024  # of the memory of one process that lives as long as the run
WARM_UP = 0.25  # the first part of the run that does not count: modules load, pools fill
FEWEST = 5  # samples, below which a line says nothing


class Line:
    """The least-squares line through (seconds, value), in constant memory."""

    def __init__(self) -> None:
        self.n = 0
        self._sums = [0.0] * 4
        self.first = self.last = 0.0

    def add(self, seconds: float, value: float) -> None:
        if not self.n:
            self.first = seconds
        self.n += 1
        self.last = seconds
        x = seconds - self.first
        for at, term in enumerate((x, value, x * x, x * value)):
            self._sums[at] += term

    @property
    def slope(self) -> float:
        """Per second."""
        x, y, xx, xy = self._sums
        spread = self.n * xx - x * x
        return (self.n * xy - x * y) / spread if spread > 0 else 0.0

    @property
    def rise(self) -> float:
        """From the first sample to the last, along the line."""
        return self.slope * (self.last - self.first)

    @property
    def mean(self) -> float:
        return self._sums[1] / self.n if self.n else 0.0


class Growth:
    """The lines of one process: memory, descriptors, children. A sample at each rest, once warm."""

    NAMES = ("memory_kib", "descriptors", "processes")

    def __init__(self, seconds: float):
        self._warm = time.monotonic() + WARM_UP * seconds
        self.lines = {name: Line() for name in self.NAMES}

    def sample(self, **values: float) -> None:
        now = time.monotonic()
        if now >= self._warm:
            for name, value in values.items():
                self.lines[name].add(now, value)

    def report(self) -> dict[str, dict[str, float]]:
        return {
            name: {"samples": line.n, "slope": line.slope, "rise": line.rise, "mean": line.mean}
            for name, line in self.lines.items()
        }


def leaks(whose: str, report: dict[str, dict[str, float]]) -> list[str]:
    """What rises beyond its bound, in words."""
    memory = report["memory_kib"]
    if memory["samples"] < FEWEST or memory["rise"] <= RISE_KIB:
        return []
    return [
        f"the memory of {whose} rose by {memory['rise']:.0f} KiB over {memory['samples']} samples "
        f"({memory['slope']:.1f} KiB/s); {RISE_KIB} are allowed"
    ]
