"""What processes had of the processors, by the kernel's account."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Tally", "Times", "times_of"]

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
NS = 1e-9


class Times(NamedTuple):
    """Since a process began, in seconds."""

    processor_s: float
    """On a processor, all its threads together."""
    delay_s: float | None
    """Its threads that could have gone on, and had no processor; None where the kernel does not count that."""


class Tally:
    """Of processes that come and go: what each had since it was first noted. Who was not there at the beginning counts from
    its own beginning."""

    def __init__(self, pids: Iterable[int]):
        self._first = dict(_times(pids))
        self._last = dict(self._first)

    def note(self, pids: Iterable[int]) -> None:
        """Look at them again; what one had since and did not live to the next call is lost."""
        self._last.update(_times(pids))

    def total(self) -> Times | None:
        """Of all of them; None where nothing is known of any."""
        if not self._last:
            return None
        zero = Times(0.0, 0.0)
        spans = [(self._first.get(pid, zero), last) for pid, last in self._last.items()]
        known = all(first.delay_s is not None and last.delay_s is not None for first, last in spans)
        return Times(
            sum(last.processor_s - first.processor_s for first, last in spans),
            sum(last.delay_s - first.delay_s for first, last in spans) if known else None,
        )


def times_of(pid: int) -> Times | None:
    """None of a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return Times((int(fields[11]) + int(fields[12])) * TICK_S, _delay_s(pid))
    except (OSError, ValueError, IndexError):
        return None


def _times(pids: Iterable[int]) -> Iterable[tuple[int, Times]]:
    for pid in pids:
        times = times_of(pid)
        if times is not None:
            yield pid, times


def _delay_s(pid: int) -> float | None:
    total, counted = 0, False
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that ended, or a kernel that does not count
            with open(f"/proc/{pid}/task/{task}/schedstat", "rb") as file:
                total += int(file.read().split()[1])
            counted = True
    return total * NS if counted else None
