"""What every loader has beyond its arguments: passes, an account, a state that can be saved, and an end."""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, ClassVar, NamedTuple

from ringbuf._core import SLOTS_MAX
from ringbuf.errors import Closed
from ringbuf.loader._course import Course
from ringbuf.loader.dialect import Dialect
from ringbuf.loader.fetch import make_fetcher
from ringbuf.loader.iterator import Settings, WorkerIterator
from ringbuf.loader.observed import Observed, given_name
from ringbuf.loader.passes import InProcessIterator, Pass, Promise
from ringbuf.loader.rings import RingPool, first_slot_bytes
from ringbuf.loader.source import Source
from ringbuf.loader.spec import WorkerSpec
from ringbuf.loader.state import Bookmark, Fingerprint
from ringbuf.loader.stats import Account, LoaderStats
from ringbuf.loader.substitute import Substitute, check_policy
from ringbuf.telemetry._meter import WorkerMeter
from ringbuf.telemetry.tracing import check_trace_path

__all__ = ["LoaderBase", "Opening"]

SPARE_SLOTS = 2  # one for the batch that the consumer looks at, one for the next that it gets meanwhile
MOST_WORKERS = 255  # of the participants that a ring has room for, one is the main process

# What an option can be, where it is one of a few words.
CHOICES = {"dispatch": ("static", "pull"), "on_worker_death": ("raise", "restart"), "seed_by": ("worker", "sample")}


class Opening(NamedTuple):
    """What was drawn for a pass when it began."""

    indices: Iterator
    base_seed: int
    """For the workers."""
    shared_seed: int | None = None
    """For torch's data pipes."""


class LoaderBase:
    """Makes passes of what a subclass was told about dataset, samplers and workers.

    A subclass has the attributes of torch's DataLoader, calls `_set_ring_options` and `_set_up_life` when it is made, and
    fills in the methods that raise NotImplementedError here.
    """

    dialect: ClassVar[type[Dialect]]
    _worker_pass: ClassVar[type[WorkerIterator]] = WorkerIterator
    _in_process_pass: ClassVar[type[InProcessIterator]] = InProcessIterator

    dataset: Any
    batch_size: int | None
    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    timeout: float
    in_order: bool
    drop_last: bool
    sampler: Any
    batch_sampler: Any
    collate_fn: Callable
    worker_init_fn: Callable | None
    multiprocessing_context: Any
    _index_sampler: Iterable
    _auto_collation: bool
    _IterableDataset_len_called: int | None
    _iterator: Any

    # ---- what a subclass knows

    @property
    def _iterable(self) -> bool:
        """Whether the dataset decides by itself what comes."""
        raise NotImplementedError

    @property
    def _own_generator(self) -> Any:
        """What it draws from; None for torch's global stream."""
        raise NotImplementedError

    def _open(self, *, twice: bool) -> Opening:
        """Draw for a pass that begins, and begin with its sampler.

        twice: whether that is done as torch's loader does it where there are workers.
        """
        raise NotImplementedError

    def _open_again(self, base_seed: int) -> Opening:
        """The same for workers that are seeded already."""
        raise NotImplementedError

    def _warn_at_iter(self) -> None:
        """Say what is to be said at each `iter()`. The caller's caller is the user."""

    def _finish(self) -> Callable[[Any], Any] | None:
        """What becomes of each batch at last; None for nothing."""
        return None

    # ---- options

    def _set_ring_options(
        self,
        *,
        slots: int | None,
        slot_bytes: int | None,
        max_bytes: int | None,
        dispatch: str,
        on_worker_death: str,
        max_restarts: int,
        seed_by: str,
        on_error: str | Callable,
        name: str | None,
        trace: Any,
    ) -> None:
        """Check and keep what torch's loader does not have."""
        self.slots = slots
        self.slot_bytes = slot_bytes
        self.max_bytes = max_bytes
        self.dispatch = dispatch
        self.on_worker_death = on_worker_death
        self.max_restarts = max_restarts
        self.seed_by = seed_by
        self.on_error = on_error
        self.name = self._telling_name = name  # a subclass may have a name of its own, which is none of our business
        self.trace = None if trace is None else check_trace_path(trace)
        self._check_ring_options()

    def _check_ring_options(self) -> None:
        """When the loader is made, and before each pass: they can be assigned."""
        _check_positive("slots", self.slots, at_most=SLOTS_MAX)
        _check_positive("slot_bytes", self.slot_bytes)
        _check_positive("max_bytes", self.max_bytes)
        if self.num_workers > MOST_WORKERS:
            raise ValueError(f"num_workers should be {MOST_WORKERS} at most, but got {self.num_workers}: a ring has no more room")
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} should be {' or '.join(map(repr, choices))}, but got {value!r}")
        if self.dispatch == "pull" and self._iterable:
            raise ValueError(
                "dispatch='pull' needs a dataset with __getitem__: each worker of an iterable dataset has an iterator of its "
                "own, whose batches no other worker can make"
            )
        if self.seed_by == "sample" and self._iterable:
            raise ValueError(
                "seed_by='sample' needs a dataset with __getitem__: which worker an iterable's sample comes from depends on "
                "their number"
            )
        restarts = self.max_restarts
        if not isinstance(restarts, int) or isinstance(restarts, bool) or restarts < 0:
            raise ValueError(f"max_restarts should be a non-negative int, but got {restarts!r}; 0 replaces no worker")
        check_policy(self.on_error)
        given_name(self._telling_name)

    # ---- passes

    def __iter__(self) -> Pass:
        """Begin a pass. With persistent workers there is one at a time, and this ends the one before."""
        if self._closed:
            raise Closed("this loader was closed; make a new one")
        if not self.persistent_workers or self.num_workers == 0:
            with self._place_kept():
                return self._get_iterator()
        if isinstance(self._iterator, WorkerIterator):
            if self._iterator.usable:
                with self._place_kept():
                    self._iterator._reset(self)
                return self._iterator
            self._iterator.close()
        with self._place_kept():
            self._iterator = self._get_iterator()
        return self._iterator

    @contextlib.contextmanager
    def _place_kept(self) -> Iterator[None]:
        """Where a pass cannot begin, the next one still goes on where this one was to."""
        place = self._bookmark, self._pending
        try:
            yield
        except BaseException:
            self._bookmark, self._pending = place
            raise

    def _get_iterator(self) -> Pass:
        self._check_ring_options()
        self._warn_at_iter()
        if self.num_workers == 0 and self.timeout != 0:
            raise AssertionError(f"timeout={self.timeout} needs worker processes to wait for; set num_workers or timeout=0")
        if self.num_workers > 0 and not self.prefetch_factor:
            raise AssertionError(f"prefetch_factor={self.prefetch_factor} asks for no batches; it must be positive")
        course, opening = self._begin_course(None)
        common = {
            "course": course,
            "index_sampler": self._index_sampler,
            "account": self._account,
            "length": self._pass_length(),
            "promise": self._promise(),
            "finish": self._finish(),
            "to_skip": course.to_skip,
        }
        observed = self._observe()
        if self.num_workers > 0:
            settings = self._settings(opening)
            observation = observed.borrow(self.num_workers)
            try:
                iterator: Pass = self._worker_pass(
                    settings=settings, pool=self._pool, observed=observed, observation=observation, **common
                )
            except BaseException:
                observed.give_back(observation)
                raise
        else:
            observation, maker = observed.own()
            fetcher = self._fetcher(opening, maker)
            iterator = self._in_process_pass(fetcher=fetcher, maker=maker, observation=observation, **common)
        self._iterators.add(iterator)
        return iterator

    def _next_course(self) -> tuple[Course, Promise | None, Sequence[int]]:
        """For a pass with the workers of the one before: its course, and how many batches of each worker to skip."""
        course, _ = self._begin_course(self._bookmark.base_seed)
        return course, self._promise(), course.to_skip

    def _begin_course(self, base_seed: int | None) -> tuple[Course, Opening]:
        """Draw what a pass needs; from where the loaded state says, if there is one.

        base_seed: of the workers that live already; None where workers begin with this pass.
        """
        pending, self._pending = self._pending, None
        resumed = pending if pending is not None and not pending.finished else None
        source, iterable = self._source, self._iterable
        before = source.state() if resumed is None else resumed.source_before
        drawn = base_seed is None if resumed is None else resumed.drawn
        twice = self.num_workers > 0 if resumed is None else resumed.twice

        def begin() -> tuple[Course, Opening]:
            if drawn or self.seed_by == "sample":
                opening = self._open(twice=twice)
            else:
                opening = self._open_again(base_seed if resumed is None else resumed.base_seed)
            constants = {
                "seed": opening.base_seed if self.seed_by == "sample" else None,
                "epoch": self._epoch,
                "shared_seed": opening.shared_seed,
            }
            progress = None if resumed is None else resumed.progress
            return Course(opening.indices, numbered=not iterable, resumed=progress, **constants), opening

        if resumed is None:
            sampler_state = self._sampler_state()
            course, opening = begin()
        else:
            sampler_state = resumed.sampler
            _restore(sampler_state, self._index_sampler, self.sampler)
            with source.replay(before):
                course, opening = begin()
        self._bookmark = Bookmark(
            course=course,
            source_before=before,
            base_seed=opening.base_seed,
            drawn=drawn,
            twice=twice,
            sampler=sampler_state,
            epoch=self._epoch,
        )
        return course, opening

    def _pass_length(self) -> int | None:
        """Batches of a pass, where that is easily told; asking an iterable dataset has consequences."""
        if not self._iterable:
            with contextlib.suppress(Exception):  # a sampler that has no length, or only in some circumstances
                return len(self._index_sampler)
        return None

    def _promise(self) -> Promise | None:
        promised = self._IterableDataset_len_called
        return Promise(self.dataset, promised) if promised is not None and self._iterable else None

    def _observe(self) -> Observed:
        if self._observed is None:
            self._observed = Observed(given_name(self._telling_name), self.trace)
        return self._observed

    def _fetcher(self, opening: Opening, maker: WorkerMeter) -> Any:
        return make_fetcher(
            self.dialect.begin_pass(self.dataset, opening.shared_seed),
            iterable=self._iterable,
            drop_last=self.drop_last,
            dialect=self.dialect,
            collate_fn=self.collate_fn,
            batched=self._auto_collation,
            in_rows=self.dialect.rows_in_process,
            meter=maker,
            substitute=None if self.on_error == "raise" else Substitute(self.on_error),
        )

    def _settings(self, opening: Opening) -> Settings:
        import multiprocessing

        outstanding = self.prefetch_factor * self.num_workers
        slots = self.slots if self.slots is not None else min(outstanding + SPARE_SLOTS, SLOTS_MAX)
        slot_bytes = self.slot_bytes if self.slot_bytes is not None else first_slot_bytes(slots)
        if self.max_bytes is not None:
            if self.slot_bytes is not None and slots * slot_bytes > self.max_bytes:
                raise ValueError(f"{slots} slots of slot_bytes={slot_bytes} are more than max_bytes={self.max_bytes}")
            slot_bytes = max(1, min(slot_bytes, self.max_bytes // slots))
        return Settings(
            spec=WorkerSpec(
                dataset=self.dataset,
                dialect=self.dialect,
                collate_fn=self.collate_fn,
                batched=self._auto_collation,
                iterable=self._iterable,
                drop_last=self.drop_last,
                num_workers=self.num_workers,
                base_seed=opening.base_seed,
                worker_init_fn=self._init_of_workers(),
                on_error=self.on_error,
            ),
            context=self.multiprocessing_context or multiprocessing.get_context(),
            outstanding=outstanding,
            in_order=self.in_order,
            timeout=self.timeout,
            persistent=self.persistent_workers,
            slots=slots,
            slot_bytes=slot_bytes,
            max_bytes=self.max_bytes,
            dispatch=self.dispatch,
            on_worker_death=self.on_worker_death,
            max_restarts=self.max_restarts,
            seed_by=self.seed_by,
        )

    def _init_of_workers(self) -> Callable | None:
        return self.worker_init_fn

    # ---- its state

    def set_epoch(self, epoch: int) -> None:
        """Tell samplers and dataset that have a `set_epoch` which epoch the next pass is.

        The dataset's copies in workers hear of it when they begin with that pass, persistent workers as well.
        """
        self._epoch = epoch
        told = []
        for thing in (self.batch_sampler, getattr(self.batch_sampler, "sampler", None), self.sampler, self.dataset):
            if callable(getattr(thing, "set_epoch", None)) and not any(thing is other for other in told):
                thing.set_epoch(epoch)
                told.append(thing)

    def state_dict(self) -> dict:
        """Where this loader is, in a dict of a few numbers and the state of what it draws from; it pickles.

        It belongs to the pass that was begun last: its batches that were *delivered* count, not those under way. A loader
        that loads it goes on with the next batch, with any number of workers, also where batches come out of order.
        With an iterable dataset the number of workers must be the same, and what was delivered is made once more and
        thrown away.
        The order of samples is exact, unless a sampler draws from a generator that it does not have as `generator`.
        Random numbers that workers draw are with seed_by="sample"; otherwise the workers' streams begin anew.
        """
        bookmark = self._bookmark if self._pending is None else self._pending
        finished = bookmark.finished
        under_way = self._pending is None and not finished
        return bookmark.state(
            source=self._source.state(),
            # What is set meanwhile is for the next pass.
            epoch=bookmark.epoch if under_way else self._epoch,
            sampler=self._sampler_state() if finished else bookmark.sampler,
            fingerprint=self._fingerprint(),
        )

    def load_state_dict(self, state: dict) -> None:
        """Have the next pass go on where `state` was taken; an empty one changes nothing.

        Raises ValueError where this loader cannot continue what the other one did: another batch size, another dataset.
        """
        if not isinstance(state, dict):
            raise TypeError(f"state should be the dict that state_dict() gave, got {state!r}")
        if not state:
            return
        pending = Bookmark.load(state)
        self._fingerprint().check(state["loader"])
        source = self._source
        source.check(state["source"])
        source.restore(state["source"])
        if pending.epoch is not None:
            self.set_epoch(pending.epoch)
        if pending.finished:
            _restore(pending.sampler, self._index_sampler, self.sampler)
        self._pending = pending

    def go_to(self, epoch: int, position: int, *, since: dict) -> None:
        """Have the next pass be that of `epoch`, from batch `position` on.

        since: the state that this loader had before the pass of epoch 0. What the passes from there on draw is drawn, set_epoch()
        included, and nothing of them is made. As with a state, what workers draw is repeated with seed_by="sample" alone.
        """
        self.reset()
        self.load_state_dict(since)
        for passed in range(epoch + 1):
            self.set_epoch(passed)
            lasting = self.persistent_workers and self.num_workers > 0 and passed > 0
            course, _ = self._begin_course(self._bookmark.base_seed if lasting else None)
            if passed < epoch:
                if not self._iterable:  # which has no order, and no end
                    deque(course, 0)
                course.finished = True
        for job in islice(course, position):
            course.deliver(job.batch, job.batch % max(1, self.num_workers))
        self.load_state_dict(self.state_dict())

    @property
    def _source(self) -> Source:
        batch_sampler = self.batch_sampler
        return Source.of(self._own_generator, (self.sampler, batch_sampler, getattr(batch_sampler, "sampler", None)))

    def _sampler_state(self) -> Any:
        return _state_of(self._index_sampler, self.sampler)

    def _fingerprint(self) -> Fingerprint:
        return Fingerprint.of(self, iterable=self._iterable)

    # ---- its account and its end

    def stats(self) -> LoaderStats:
        """What this loader has done since it was made."""
        snapshots = [] if self._observed is None else self._observed.snapshots()
        return self._account.stats(workers=self.num_workers, snapshots=snapshots)

    def _copy_called(self, name: str) -> Any:
        """A fresh loader with these settings, which telemetry finds by that name, and which writes no trace."""
        made = copy.copy(self)
        made._telling_name, made.trace = name, None
        return made

    def reset(self) -> None:
        """End the workers that are kept from pass to pass; the next pass starts new ones, which see the dataset as it is
        then."""
        iterator, self._iterator = self._iterator, None
        if isinstance(iterator, Pass):  # a subclass may have put something around it
            iterator.close()

    def leave_memory(self) -> None:
        """reset(), and write no more into the memory where batches of earlier passes lie, for other processes look at it."""
        self.reset()
        self._pool.leave()

    def close(self) -> None:
        """Stop all workers and let go of the memory; batches that are held stay valid. Idempotent."""
        self._closed = True
        for iterator in list(self._iterators):
            iterator.close()
        self._iterator = None
        self._pool.close()
        if self._observed is not None:
            self._observed.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _set_up_life(self) -> None:
        self._closed = False
        self._account = Account()
        self._observed: Observed | None = None
        self._pool = RingPool()
        self._iterators: weakref.WeakSet[Pass] = weakref.WeakSet()
        self._epoch: int | None = None
        self._bookmark = Bookmark.before_all()
        self._pending: Bookmark | None = None

    def __getstate__(self) -> dict:
        """The settings: a copy is a fresh loader, with nothing under way."""
        state = self.__dict__.copy()
        for name in ("_account", "_observed", "_pool", "_iterators", "_closed", "_epoch", "_bookmark", "_pending"):
            del state[name]
        state["_iterator"] = None
        return state

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._set_up_life()


def _state_of(*samplers: Any) -> Any:
    """The state of the first of these that has one."""
    for sampler in samplers:
        if callable(getattr(sampler, "state_dict", None)) and callable(getattr(sampler, "load_state_dict", None)):
            return sampler.state_dict()
    return None


def _restore(state: Any, *samplers: Any) -> None:
    if state is None:
        return
    for sampler in samplers:
        if callable(getattr(sampler, "load_state_dict", None)):
            sampler.load_state_dict(state)
            return


def _check_positive(name: str, value: int | None, *, at_most: int | None = None) -> None:
    """Raise for anything but None and a whole number in range."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or (at_most is not None and value > at_most):
        upper = "" if at_most is None else f" and at most {at_most}"
        raise ValueError(f"{name} should be a positive int{upper}, or None; got {value!r}")
