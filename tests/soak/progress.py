"""Whether anything moves.

The clock of a stall runs only while somebody looks, at most LOOK_S for each look: a machine that stood still as a whole, or
had no time for the supervisor itself, is no stall. It rests while some process is stopped, since others may wait for that one.
"""

from __future__ import annotations

import time

LOOK_S = 0.05


class Stall:
    """How long a count has not moved."""

    def __init__(self) -> None:
        self._count: int | None = None
        self._looked = time.monotonic()
        self.seconds = 0.0

    def look(self, count: int, *, excused: bool = False) -> float:
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, LOOK_S), now
        if count != self._count:
            self._count, self.seconds = count, 0.0
        elif not excused:
            self.seconds += passed
        return self.seconds


class AfterKill:
    """How long after a kill it took until so many more messages had moved; the longest of all kills, by the same clock."""

    def __init__(self, messages: int):
        self.messages = messages
        self.longest_s = 0.0
        self._looked = time.monotonic()
        self._seconds = 0.0
        self._open: list[tuple[float, int]] = []

    def kill(self, count: int) -> None:
        self._open.append((self._seconds, count + self.messages))

    def look(self, count: int, *, excused: bool = False) -> None:
        """excused: something else holds the others up, too."""
        now = time.monotonic()
        self._seconds += min(now - self._looked, LOOK_S)
        self._looked = now
        over = [since for since, target in self._open if count >= target]
        self.longest_s = max([self.longest_s, *(self._seconds - since for since in over)])
        self._open = [] if excused else [(since, target) for since, target in self._open if count < target]
