"""The course of a pass: which batches it is made of, and how far it has come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

__all__ = ["Course", "Job", "Progress"]


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


class Progress(NamedTuple):
    """How far a pass is.

    position, owed: all batches before the position were delivered, except the owed ones.
    pulled: how often the sampler was asked for a batch. It may draw random numbers each time, also when it has no more.
    by_worker: delivered batches of each worker, where batches have no numbers and come from several.
    """

    position: int = 0
    owed: Sequence[int] = ()
    pulled: int = 0
    by_worker: Sequence[int] = ()


class Course:
    """The jobs of one pass, as an iterator, and an account of those that were delivered.

    indices: what the sampler gives.
    numbered: whether a batch is known by its number. Those of an iterable dataset are only counted, since which
        worker ends when is not known before.
    resumed: where to begin, if not at the beginning. Batches that were delivered already are left out; where they are only
        counted, they have to be made again: see `to_skip`.
    constants: what all jobs have in common.
    to_skip: how many batches of each worker were delivered before.
    """

    def __init__(self, indices: Iterable, *, numbered: bool = True, resumed: Progress | None = None, **constants: Any):
        self.finished = False
        self.constants = constants
        self._numbered = numbered
        self._jobs = enumerate(indices)
        self._kept: deque[tuple[int, Any]] = deque()  # what the sampler gave before, and is to be done still
        self._top = 0
        self._pulled = 0
        self._owed: set[int] = set()
        self._common = tuple(Job(0, None, **constants))[2:]
        self._by_worker: list[int] = []
        self.to_skip: Sequence[int] = ()
        if resumed is not None and numbered:
            self._go_to(resumed)
        elif resumed is not None:
            self._top, self._by_worker = resumed.position, list(resumed.by_worker)
            self.to_skip = tuple(resumed.by_worker)

    def _go_to(self, resumed: Progress) -> None:
        """Have the sampler give once more what it gave; it moves on at once, since it may draw random numbers."""
        self._top, self._owed = resumed.position, set(resumed.owed)
        self._pulled = resumed.pulled
        for number, index in islice(self._jobs, resumed.pulled):
            if number in self._owed or number >= resumed.position:
                self._kept.append((number, index))

    def __iter__(self) -> Course:
        return self

    def __next__(self) -> Job:
        if self._kept:
            number, index = self._kept.popleft()
        else:
            self._pulled += 1
            number, index = next(self._jobs)
        if self._numbered:
            self._owed.add(number)
        return tuple.__new__(Job, (number, index, *self._common))

    def deliver(self, number: int, worker_id: int = 0) -> None:
        """A batch was handed out, or an error in its place."""
        if self._numbered:
            self._owed.discard(number)
            if number >= self._top:
                self._top = number + 1
        else:
            self._by_worker += [0] * (worker_id + 1 - len(self._by_worker))
            self._by_worker[worker_id] += 1
            self._top += 1

    def progress(self) -> Progress:
        # Another thread may be about to ask for the next batch: nothing is owed below the position that was not so when that was
        # read, and the set is copied in one step.
        top = self._top
        owed = sorted(number for number in list(self._owed) if number < top)
        return Progress(top, owed, self._pulled if self._numbered else 0, list(self._by_worker))
