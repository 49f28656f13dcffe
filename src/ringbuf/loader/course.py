"""The course of a pass: which batches it is made of, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

__all__ = ["Course", "Job"]


class Job(NamedTuple):
    """What makes one batch, as it travels to whoever makes it."""

    batch: int
    """Its number in the pass, from 0."""
    index: Any
    """What the sampler gave."""
    seed: int | None = None
    """What the pass's samples are seeded from, one by one; None where workers are seeded instead."""
    epoch: int | None = None
    """What `set_epoch` was told last."""
    shared_seed: int | None = None
    """What torch's data pipes shuffle by in this pass."""


class Course:
    """The jobs of one pass, as an iterator, and an account of those that were delivered.

    indices: what the sampler gives.
    numbered: whether a batch is known by its number. Those of an iterable dataset are only counted, since which
        worker ends when is not known before.
    position, owed: where to begin, as `progress()` gave it: batches up to `position` are skipped, except the owed ones.
        Nothing is skipped where batches are only counted.
    constants: what all jobs have in common.
    """

    def __init__(
        self, indices: Iterable, *, numbered: bool = True, position: int = 0, owed: Iterable[int] = (), **constants: Any
    ):
        self.finished = False
        self.constants = constants
        self._numbered = numbered
        jobs = enumerate(indices)
        self._top = 0
        self._owed: set[int] = set()
        if numbered and position:
            jobs = self._skipped(jobs, position, set(owed))
        self._jobs = jobs

    def _skipped(self, jobs: Iterator, position: int, owed: set[int]) -> Iterator:
        """Jobs without those that were delivered already. The sampler moves on at once, and by one more step: it may draw
        random numbers only with its first one."""
        self._top, self._owed = position, owed
        kept = []
        for number, index in jobs:
            if number in owed:
                kept.append((number, index))
            elif number >= position:
                kept.append((number, index))
                break
        return chain(kept, jobs)

    def prime(self) -> None:
        """Have the sampler take its first step now, as far as it has none behind it."""
        first = next(self._jobs, None)
        if first is not None:
            self._jobs = chain((first,), self._jobs)

    def __iter__(self) -> Course:
        return self

    def __next__(self) -> Job:
        number, index = next(self._jobs)
        if self._numbered:
            self._owed.add(number)
        return Job(number, index, **self.constants)

    def deliver(self, number: int) -> None:
        """A batch was handed out, or an error in its place."""
        if self._numbered:
            self._owed.discard(number)
            self._top = max(self._top, number + 1)
        else:
            self._top += 1

    def progress(self) -> tuple[int, list[int]]:
        """(position, owed): all batches before the position were delivered, except the owed ones.

        Exact also while another thread takes batches: nothing is owed below the position that was not so when it was read,
        and the set is copied in one step.
        """
        top = self._top
        return top, sorted(number for number in list(self._owed) if number < top)
