"""What every pass over a dataset has in common, and the pass without workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, NoReturn

from ringbuf.errors import Closed
from ringbuf.loader._course import Course
from ringbuf.loader.advice import warn
from ringbuf.loader.fetch import LEFT_OUT, Exhausted, Fetcher, PrivateRoom
from ringbuf.loader.observed import Observation
from ringbuf.loader.seeding import preserved
from ringbuf.loader.stats import Account, array_bytes
from ringbuf.loader.substitute import PassedOver
from ringbuf.telemetry._meter import Consumer, WorkerMeter

__all__ = ["InProcessIterator", "Pass", "Promise"]


class Promise(NamedTuple):
    """How many samples an iterable dataset said it has, when somebody asked for the loader's length."""

    dataset: Any
    samples: int


class Pass:
    """An iterator over batches. Any thread of its process may ask; each batch goes to one of them.

    index_sampler: what tells the length.
    observation: where it is told how the pass goes.
    length: batches of the pass, where that is known, to be told there.
    promise: what to warn about when more comes; None when nobody asked.
    finish: what becomes of each batch at last, when it is pinned for one.
    to_skip: batches of each worker to make and throw away: they were delivered before, or what went wrong with them was told.
    """

    def __init__(
        self,
        *,
        course: Course,
        index_sampler: Iterable,
        account: Account,
        observation: Observation,
        length: int | None,
        promise: Promise | None,
        finish: Callable[[Any], Any] | None = None,
        to_skip: Sequence[int] = (),
    ):
        self._course = course
        self._index_sampler = index_sampler
        self._account = account
        self._observation = observation
        self._length = length
        self._meter = observation.meter
        self._tracer = observation.tracer
        self._promise = promise
        self._finish_batch = finish
        self._to_skip = list(to_skip)
        self._num_yielded = 0
        self._made: tuple[Any, tuple[int, int]] | None = None  # a batch until it is handed out, and (number, worker_id) of it
        self._done = False
        self._closed = False  # before it was done
        self._pid = os.getpid()
        self._lock = threading.RLock()  # re-entrant: a signal handler may close what it interrupted

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this iterator belongs to process {self._pid}; in a forked process call iter() on the loader anew"
            )
        while True:
            with self._lock:
                if self._closed:
                    raise Closed("the loader was closed before this pass was over")
                if self._made is None:
                    if self._done:
                        raise StopIteration
                    self._make()
            # Python looks for interrupts, and lets other threads run, at calls: there is none from here on, so that no interrupt,
            # such as Ctrl-C, loses a batch, or has one count as handed out that was not.
            if self._made is not None:
                batch, self._course.handed = self._made
                self._made = None
                return batch

    def _make(self) -> None:
        self._course.settle()
        meter = self._meter
        if meter.wait():
            self._gauge()
        try:
            self._produce()
        finally:
            meter.got(self._made is not None)
        if self._tracer is not None:
            self._tracer.turn()
        self._num_yielded += 1
        if self._promise is not None and self._num_yielded > self._promise.samples:
            self._warn_of_broken_promise()

    def _finished(self, batch: Any) -> Any:
        """A batch as it is handed out. Done before it counts as made: an interrupt meanwhile loses it, and that is said."""
        return batch if batch is LEFT_OUT or self._finish_batch is None else self._finish_batch(batch)

    @property
    def ours(self) -> bool:
        """Whether this process made it. To a forked one nothing of it is of use, not even its lock."""
        return os.getpid() == self._pid

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled: it is a pass that is under way")

    def close(self) -> None:
        """End the pass. Whoever asks for a batch that it still owed gets Closed, and does not take it for the end."""
        self._closed = not self._done
        self._done = True
        self._made = None

    def _produce(self) -> None:
        """Put the next batch into `_made`; StopIteration, with `_done` set, after the last one."""
        raise NotImplementedError

    def _announce(self) -> None:
        """The pass begins."""
        self._observation.begin_pass(epoch=self._course.constants.get("epoch"), length=self._length)

    def _gauge(self) -> None:
        """Tell how many batches are where, now and then."""

    def _note(self, passed_over: PassedOver) -> None:
        """Samples were passed over."""
        if passed_over.count:
            self._meter.add(Consumer.ERRORS, passed_over.count)
            self._account.note(passed_over)

    def _advice(self) -> str:
        return ""

    def _warn_of_broken_promise(self) -> None:
        dataset, samples = self._promise
        warn(
            f"Length of IterableDataset {dataset!r} was reported to be {samples} (when accessing len(dataloader)), "
            f"but {self._num_yielded} samples have been fetched.{self._advice()}"
        )


class InProcessIterator(Pass):
    """Makes each batch when it is asked for."""

    def __init__(self, *, fetcher: Fetcher, maker: WorkerMeter, **common: Any):
        super().__init__(**common)
        self._fetcher = fetcher
        self._maker = maker
        self._observation.note_ring(workers=0, slots=0, slot_bytes=0)
        self._announce()
        # Samples that are seeded one by one would otherwise leave their mark on the program's own random streams.
        self._aside = preserved if self._course.constants.get("seed") is not None else nullcontext

    def _produce(self) -> None:
        self._skip()
        while self._made is None:
            try:
                job = next(self._course)
            except StopIteration:
                self._end()
            self._maker.begin(job.batch)
            try:
                with self._aside():
                    batch = self._finished(self._fetcher.fetch(job, PrivateRoom(), private=True))
                nbytes = array_bytes(batch)
                if batch is not LEFT_OUT:
                    self._made = batch, (job.batch, 0)
                    self._maker.end(nbytes)
            except Exhausted:
                self._end()
            except Exception:
                self._deliver(job.batch)
                raise
            finally:
                self._maker.end()
                self._note(self._fetcher.report())
            if batch is LEFT_OUT:
                self._deliver(job.batch)
        self._meter.take(job.batch)
        self._meter.received(nbytes)

    def _deliver(self, number: int) -> None:
        self._course.deliver(number)
        self._meter.take(number)

    def _skip(self) -> None:
        while self._to_skip and self._to_skip[0]:
            try:
                self._fetcher.fetch(next(self._course), PrivateRoom(), private=True)
            except Exhausted:
                return  # who asks next is told so, too
            except Exception:  # it was told before
                pass
            self._fetcher.report()
            self._to_skip[0] -= 1
            self._num_yielded += 1

    def _end(self) -> NoReturn:
        self._observation.flush()
        self._done = self._course.finished = True
        raise StopIteration from None
