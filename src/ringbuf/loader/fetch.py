"""From the indices of a task to a batch: what a worker does, and the main process where there are no workers.

Nothing here knows of rings. A fetcher asks `room(nbytes)` for the memory of a batch that it builds row by row,
and gets a function like `numpy.empty` back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ringbuf.loader import collate
from ringbuf.loader.collate import Empty, Stack

__all__ = ["Exhausted", "Fetcher", "IterableFetcher", "MapFetcher", "make_fetcher"]

Room = Callable[[int], Empty]

# The last batch of an iterable may be much shorter than a batch size that means "all there is". Up to this much
# is reserved on trust; beyond, only after a full batch has been seen.
TRUSTED_BYTES = 16 << 20


class Exhausted(Exception):
    """An iterable dataset has no further batch."""


class Fetcher:
    """Makes batches of one dataset, one at a time.

    at: the index of the sample in hand, for messages; None where samples have no index.
    pause: called now and then between samples; returns how many samples may be made before the next call.
    """

    def __init__(self, dataset: Any, *, collate_fn: Callable, batched: bool, pause: Callable[[], int] | None = None):
        self.dataset = dataset
        self.at: Any = None
        self._collate_fn = collate_fn
        self._batched = batched
        # These two are built in: their arrays go straight to where they belong.
        self._in_rows = batched and collate_fn is collate.default_collate
        self._as_is = collate_fn is collate.default_convert
        self._pause = pause if pause is not None else _no_pause

    def fetch(self, index: Any, room: Room, *, private: bool) -> Any:
        """The batch of a task.

        index: what the sampler gave: a list of indices when batching, else one index.
        room: memory for a batch that is built in rows.
        private: whether a sample that is delivered as it is must be copied; not where the caller copies it.
        """
        raise NotImplementedError

    def _deliver(self, data: Any, private: bool) -> Any:
        return collate.convert(data, private=private) if self._as_is else self._collate_fn(data)


class MapFetcher(Fetcher):
    """Samples by index."""

    def fetch(self, index: Any, room: Room, *, private: bool) -> Any:
        self.at = None
        try:
            if not self._batched:
                self.at = index
                return self._deliver(self.dataset[index], private)
            if getattr(self.dataset, "__getitems__", None):
                return self._fetch_together(list(index), room)
            if self._in_rows:
                return self._fetch_in_rows(list(index), room)
            return self._collate_fn(list(self._samples(index)))
        except StopIteration as stop:
            # Let through, it would end the epoch in silence.
            raise _no_sample(self.at) from stop

    def _fetch_in_rows(self, indices: list, room: Room) -> Any:
        collate.first_of(indices)
        samples = self._samples(indices)
        first = next(samples)
        stack = Stack(first, rows=len(indices), indices=indices)
        stack.allocate(room(stack.nbytes()))
        stack.fill((first,))
        stack.fill(samples)
        return stack.finish()

    def _samples(self, indices: Sequence) -> Iterator:
        dataset, left = self.dataset, 1
        for index in indices:
            self.at = index
            try:
                sample = dataset[index]
            except StopIteration as stop:
                raise _no_sample(index) from stop
            yield sample
            left -= 1
            if left == 0:
                left = self._pause()

    def _fetch_together(self, indices: list, room: Room) -> Any:
        samples = self.dataset.__getitems__(indices)
        if not self._in_rows:
            return self._collate_fn(samples)
        if len(samples) != len(indices):
            raise RuntimeError(f"__getitems__ returned {len(samples)} samples for {len(indices)} indices")
        return _stack_up(samples, indices, room)


class IterableFetcher(Fetcher):
    """Samples in the dataset's own order, until it ends."""

    def __init__(self, dataset: Any, *, drop_last: bool, **common: Any):
        super().__init__(dataset, **common)
        self._drop_last = drop_last
        self._iterator = iter(dataset)
        self._ended = False
        self._full_seen = False

    def fetch(self, index: Any, room: Room, *, private: bool) -> Any:
        if not self._batched:
            return self._collated(self._deliver, self._take(), private)
        batch = self._fetch_in_rows(len(index), room) if self._in_rows else self._fetch_gathered(len(index))
        self._full_seen = self._full_seen or not self._ended
        return batch

    def _take(self) -> Any:
        """The next sample. An iterator that has ended is never asked again."""
        if self._ended:
            raise Exhausted
        try:
            return next(self._iterator)
        except StopIteration:
            self._ended = True
            raise Exhausted from None

    def _fetch_in_rows(self, rows: int, room: Room) -> Any:
        first = self._take()
        stack = Stack(first, rows=rows)
        nbytes = stack.nbytes()
        if nbytes > TRUSTED_BYTES and not self._full_seen:
            samples = [collate.convert(first, private=True)]
            samples += (collate.convert(sample, private=True) for sample in self._further(rows))
            return _stack_up(samples, None, room)
        stack.allocate(room(nbytes))
        stack.fill((first,))
        stack.fill(self._further(rows))
        return stack.finish()

    def _fetch_gathered(self, rows: int) -> Any:
        first = self._take()
        return self._collated(self._collate_fn, [first, *self._further(rows)])

    def _further(self, rows: int) -> Iterator:
        """The samples that complete a batch, as far as there are so many."""
        left = 1
        for _ in range(1, rows):
            left -= 1
            if left == 0:
                left = self._pause()
            try:
                sample = self._take()
            except Exhausted:
                if self._drop_last:
                    raise
                return
            yield sample

    def _collated(self, function: Callable, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except StopIteration as stop:
            raise RuntimeError("collate_fn raised StopIteration; only the dataset's iterator may") from stop


def make_fetcher(dataset: Any, *, iterable: bool, drop_last: bool, **common: Any) -> Fetcher:
    """The fetcher for a dataset of either style."""
    if iterable:
        return IterableFetcher(dataset, drop_last=drop_last, **common)
    return MapFetcher(dataset, **common)


def _no_sample(index: Any) -> RuntimeError:
    return RuntimeError(f"StopIteration was raised for sample {index!r}; an index must give a sample")


def _stack_up(samples: Sequence, indices: Sequence | None, room: Room) -> Any:
    stack = Stack(collate.first_of(samples), rows=len(samples), indices=indices)
    stack.allocate(room(stack.nbytes()))
    stack.fill(samples)
    return stack.finish()


def _no_pause() -> int:
    return 1 << 30
