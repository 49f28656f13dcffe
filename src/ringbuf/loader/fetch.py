"""From the job of a batch to the batch: what a worker does, and the main process where there are no workers.

Nothing here knows of rings. A fetcher is given a `Room` for the memory of a batch that it builds row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import getitem
from typing import Any, Protocol

import numpy as np

from ringbuf.loader import collate
from ringbuf.loader._course import Job
from ringbuf.loader._samples import Samples, no_sample
from ringbuf.loader.collate import Irregular, Stack
from ringbuf.loader.dialect import Dialect
from ringbuf.loader.seeding import seed_sample
from ringbuf.loader.substitute import LEFT_OUT, NOTHING, PassedOver, Substitute
from ringbuf.telemetry._meter import Loads, WorkerMeter

__all__ = ["LEFT_OUT", "Exhausted", "Fetcher", "IterableFetcher", "MapFetcher", "PrivateRoom", "Room", "make_fetcher"]

# The last batch of an iterable may be much shorter than a batch size that means "all there is". Up to this much
# is reserved on trust; beyond, only after a full batch has been seen.
TRUSTED_BYTES = 16 << 20

Shared = Callable[[int], "tuple[Any] | None"]  # see MapFetcher.share


class Room(Protocol):
    """Where a batch that is built in rows may lie."""

    def lay_out(self, stack: Stack) -> None:
        """Give the rows of a stack their memory."""

    def collect(self, stack: Stack) -> Any:
        """The batch of a stack that is filled, in that memory; the stack may be begun again once the batch is delivered."""

    def discard(self) -> None:
        """What was laid out is not wanted after all."""


class PrivateRoom:
    """Memory of one's own."""

    def lay_out(self, stack: Stack) -> None:
        stack.allocate(np.empty)

    def collect(self, stack: Stack) -> Any:
        batch = stack.finish()
        stack.clear()
        return batch

    def discard(self) -> None:
        pass


class Exhausted(Exception):
    """An iterable dataset has no further batch."""


class Fetcher:
    """Makes batches of one dataset, one at a time.

    at: the index of the sample in hand, for messages; None where there is none.
    pause: called now and then between samples; returns how many samples may be made before the next call.
    substitute: what stands in for a sample whose making failed.
    meter: where it is noted how long the dataset takes.
    """

    at: Any = None

    def __init__(
        self,
        dataset: Any,
        *,
        dialect: type[Dialect],
        collate_fn: Callable,
        batched: bool,
        in_rows: bool = True,
        pause: Callable[[], int] | None = None,
        substitute: Substitute | None = None,
        meter: WorkerMeter | None = None,
    ):
        self.dataset = dataset
        self._dialect = dialect
        self._collate_fn = collate_fn
        self._batched = batched
        # These two are built in: their arrays go straight to where they belong.
        self._in_rows = batched and in_rows and collate_fn is dialect.collate
        self._as_is = collate_fn is dialect.convert
        self._pause = pause if pause is not None else _no_pause
        self._substitute = substitute
        self._meter = meter if meter is not None else WorkerMeter.unseen()
        self._stack: Stack | None = None  # that of the last batch

    def fetch(self, job: Job, room: Room, *, private: bool) -> Any:
        """The batch of a job; LEFT_OUT where all its samples were left out.

        room: memory for a batch that is built in rows.
        private: whether a sample that is delivered as it is must be copied; not where the caller copies it.
        """
        raise NotImplementedError

    def report(self) -> PassedOver:
        """What was passed over since the last call."""
        return self._substitute.report() if self._substitute is not None else NOTHING

    def _deliver(self, data: Any, private: bool) -> Any:
        return self._dialect.deliver(data, private=private) if self._as_is else self._collate_fn(data)

    def _stack_up(self, first: Any, samples: Iterator, rows: int, indices: Sequence | None, room: Room) -> Any:
        """Samples as they come, each into its row."""
        try:
            stack = self._stack_for(first, rows, indices)
        except Irregular:
            return self._collate_fn([first, *samples])
        return self._fill_up(stack, first, samples, room)

    def _stack_for(self, first: Any, rows: int, indices: Sequence | None) -> Stack:
        """That of the last batch, if this one will be like it, or a new one."""
        stack, self._stack = self._stack, None
        if stack is not None and stack.again(first, rows, indices):
            return stack
        return self._dialect.stack(first, rows=rows, indices=indices)

    def _fill_up(self, stack: Stack, first: Any, samples: Iterator, room: Room) -> Any:
        room.lay_out(stack)
        try:
            stack.fill(chain((first,), samples))
        except Irregular as irregular:
            done = stack.samples()
            room.discard()
            return self._collate_fn([*done, irregular.sample, *samples])
        self._stack = stack if stack.repeats else None
        return room.collect(stack)


class MapFetcher(Fetcher):
    """Samples by index."""

    def __init__(self, dataset: Any, **common: Any):
        super().__init__(dataset, **common)
        substitute = None if self._substitute is None else self._substitute.sample
        self._samples = Samples(dataset, self._pause, substitute, self._meter)
        self._in_place = self._batched and self._collate_fn is self._dialect.collate and _writes_in_place(dataset)
        self._template: Any = None  # a sample, for the layout of the next batch
        self._shared: Shared | None = None

    def share(self, shared: Shared | None) -> None:
        """Make the next batches with the help of others; None: without.

        shared: called with each place in the batch, in order; returns (sample,) where somebody else has made it.
        """
        self._shared = shared

    def lend(self, job: Job, places: Iterable[int]) -> Iterator:
        """The samples at some places of a batch that somebody else makes. Whatever goes wrong is raised."""
        make = self._lend_row if self._in_place else partial(getitem, self.dataset)
        for place in places:
            self._pause()
            index = job.index[place]
            if job.seed is not None:
                seed_sample(job.seed, job.batch, place)
            self._meter.count_samples(1)
            yield self._meter.load(make, index)

    @property
    def at(self) -> Any:
        return self._samples.at

    def fetch(self, job: Job, room: Room, *, private: bool) -> Any:
        self._samples.at = None
        index = job.index
        try:
            if not self._batched:
                sample = self._sample(job, 0, index)
                return sample if sample is LEFT_OUT else self._deliver(sample, private)
            if self._in_place:
                return self._meter.load(self._fetch_in_place, job, list(index), room)
            if getattr(self.dataset, "__getitems__", None):
                return self._fetch_together(job, room)
            if not self._in_rows:
                samples = list(self._begin(job, list(index)))
                self._meter.loaded()
                return self._collate_fn(samples) if samples or not len(index) else LEFT_OUT
            indices = list(index)
            collate.first_of(indices)
            samples = self._begin(job, indices)
            first = next(samples, LEFT_OUT)
            if first is LEFT_OUT:
                return LEFT_OUT
            return self._stack_up(first, samples, len(indices), indices, room)
        except StopIteration as stop:
            # Let through, it would end the epoch in silence.
            raise no_sample(self.at) from stop

    def _begin(self, job: Job, indices: list) -> Iterator:
        """The samples of a batch, without those that are left out."""
        if self._shared is not None:
            return self._begin_shared(job, indices, self._shared)
        return self._samples.begin(indices, None if job.seed is None else partial(seed_sample, job.seed, job.batch))

    def _begin_shared(self, job: Job, indices: list, shared: Shared) -> Iterator:
        for place, index in enumerate(indices):
            self._pause()
            given = shared(place)
            if given is not None:
                self._samples.at = index
                yield given[0]
            elif (sample := self._sample(job, place, index)) is not LEFT_OUT:
                yield sample
        self._samples.at = None

    def _sample(self, job: Job, row: int, index: Any) -> Any:
        """One alone, or LEFT_OUT."""
        seed = None if job.seed is None else lambda _: seed_sample(job.seed, job.batch, row)
        return next(self._samples.begin([index], seed), LEFT_OUT)

    def _fetch_together(self, job: Job, room: Room) -> Any:
        indices = job.index
        if job.seed is not None:
            seed_sample(job.seed, job.batch, 0)
        try:
            samples = self._meter.load(self.dataset.__getitems__, indices)
            self._meter.count_samples(len(samples) if type(samples) is list else 1)
        except Exception:
            if self._substitute is None:
                raise
            samples = indices = list(self._begin(job, list(indices)))  # one by one, to tell which
            if not samples:
                return LEFT_OUT
        if not self._in_rows or type(samples) is not list:  # whatever else it is, collate_fn may know what to do with it
            return self._collate_fn(samples)
        collate.first_of(samples)
        names = list(indices) if len(samples) == len(indices) else None  # it may leave some out
        return self._stack_up(next(each := iter(samples)), each, len(samples), names, room)

    def _fetch_in_place(self, job: Job, indices: list, room: Room) -> Any:
        """Have the dataset write each sample into its row. What a row looks like, the first sample of all tells."""
        collate.first_of(indices)
        stack: Stack | None = None if self._template is None else self._rows_of(indices, room)
        left = 1
        for place, index in enumerate(indices):
            if stack is None:
                sample = self._sample(job, place, index)
                if sample is not LEFT_OUT:
                    self._template = sample
                    stack = self._rows_of(indices, room)
                    self._put(stack, sample)
            elif self._shared is None or not self._put_shared(stack, place, index, self._shared):
                self._write_row(stack, job, place, index)
            left -= 1
            if left == 0:
                left = self._pause()
        return room.collect(stack) if stack is not None and stack.filled else LEFT_OUT

    def _rows_of(self, indices: list, room: Room) -> Stack:
        try:
            stack = self._dialect.stack(self._template, rows=len(indices), indices=indices, in_place=True)
        except Irregular:
            template, self._template = self._template, None
            raise TypeError(
                f"{_outline(template)} has no place in a row; a dataset with __getitem_into__ gives dense tensors without "
                "a gradient, arrays and numbers alone"
            ) from None
        room.lay_out(stack)
        return stack

    def _put(self, stack: Stack, sample: Any) -> None:
        """Lay a sample into the next row. No collate_fn can be asked here: the rows before were never samples."""
        try:
            stack.fill((sample,))
        except Irregular:
            raise RuntimeError(
                f"sample {self.at!r} is {_outline(sample)}, but a row of its batch is {_outline(self._template)}"
            ) from None

    def _put_shared(self, stack: Stack, place: int, index: Any, shared: Shared) -> bool:
        """Lay down what somebody else has written for this row. Returns whether there is such a thing, and it fits."""
        given = shared(place)
        if given is None or _outline(given[0]) != _outline(stack.row(stack.filled)):
            return False
        self._samples.at = index
        self._put(stack, given[0])
        return True

    def _lend_row(self, index: Any) -> Any:
        """A row for somebody else: as it is in a batch, so that numbers are arrays."""
        template = self._template if self._template is not None else self.dataset[index]
        stack = self._dialect.stack(template, rows=1, indices=[index], in_place=True)
        stack.allocate(np.empty)
        if self._template is None:
            stack.fill((template,))
            self._template = template
        elif self.dataset.__getitem_into__(index, stack.row(0)) is not None:
            raise TypeError("nothing should be returned")  # which the maker of the batch will tell
        return stack.row(0)

    def _write_row(self, stack: Stack, job: Job, place: int, index: Any) -> None:
        self._samples.at = index
        if job.seed is not None:
            seed_sample(job.seed, job.batch, place)
        try:
            answer = self.dataset.__getitem_into__(index, stack.row(stack.filled))
            if answer is not None:
                raise TypeError(f"__getitem_into__ should write into `out` and return None, but returned {type(answer)}")
        except Exception as error:
            if self._substitute is None:
                raise
            instead = self._substitute.sample(index, error)
            if instead is not LEFT_OUT:
                self._put(stack, instead)
        else:
            stack.filled += 1
            self._meter.count_samples(1)


class IterableFetcher(Fetcher):
    """Samples in the dataset's own order, until it ends."""

    def __init__(self, dataset: Any, *, drop_last: bool, **common: Any):
        super().__init__(dataset, **common)
        self._drop_last = drop_last
        self._iterator = Loads(iter(dataset), self._meter)
        self._ended = False
        self._full_seen = False

    def fetch(self, job: Job, room: Room, *, private: bool) -> Any:
        if not self._batched:
            return self._collated(self._deliver, self._take(), private)
        rows = len(job.index)
        batch = self._fetch_in_rows(rows, room) if self._in_rows else self._fetch_gathered(rows)
        self._full_seen = self._full_seen or not self._ended
        return batch

    def _take(self) -> Any:
        """The next sample. An iterator that has ended is never asked again."""
        while not self._ended:
            try:
                sample = next(self._iterator)
            except StopIteration:
                self._ended = True
            except Exception as error:
                if self._substitute is None:
                    raise
                sample = self._substitute.sample(None, error)
                if sample is not LEFT_OUT:
                    return sample
            else:
                if self._substitute is not None:
                    self._substitute.relieve()
                return sample
        raise Exhausted

    def _fetch_in_rows(self, rows: int, room: Room) -> Any:
        first, samples = self._take(), self._further(rows)
        try:
            stack = self._stack_for(first, rows, None)
        except Irregular:
            return self._collated(self._collate_fn, [first, *samples])
        if stack.nbytes() <= TRUSTED_BYTES or self._full_seen:
            return self._fill_up(stack, first, samples, room)
        gathered = [self._dialect.keep(sample) for sample in chain((first,), samples)]
        return self._stack_up(next(each := iter(gathered)), each, len(gathered), None, room)

    def _fetch_gathered(self, rows: int) -> Any:
        samples = [self._take(), *self._further(rows)]
        self._meter.loaded()
        return self._collated(self._collate_fn, samples)

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


def _writes_in_place(dataset: Any) -> bool:
    return callable(getattr(dataset, "__getitem_into__", None))


def _outline(sample: Any) -> str:
    """What a sample is, without its values."""
    if hasattr(sample, "dtype"):
        return f"{type(sample).__name__}({sample.dtype}, {tuple(sample.shape)})"
    if isinstance(sample, Mapping):
        return f"{{{', '.join(f'{key!r}: {_outline(value)}' for key, value in sample.items())}}}"
    if isinstance(sample, (list, tuple)):
        return f"[{', '.join(map(_outline, sample))}]"
    return type(sample).__name__


def _no_pause() -> int:
    return 1 << 30
