"""One pass over a dataset with workers: tasks out, batches in, in the order of the sampler.

The invariant that keeps everything moving: tasks that are out, and slots of the newest data ring that the
consumer still looks at, are together never more than the ring has slots. So there is a free slot for each answer,
whatever the order in which workers finish. When the consumer keeps so many batches that fewer slots would be left
than there are workers, further batches are handed out as private copies.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

from ringbuf import _messages
from ringbuf._core import Lease
from ringbuf.errors import BatchTooLarge, Closed
from ringbuf.loader._course import Course, pack
from ringbuf.loader._ledger import Ledger, Task
from ringbuf.loader.advice import warn
from ringbuf.loader.channel import Unsent
from ringbuf.loader.failure import BatchTimeout, Failure, describe_indices, worker_died
from ringbuf.loader.lifecycle import Crew
from ringbuf.loader.logbook import EPOCH, NOWHERE, Logbook
from ringbuf.loader.losses import Losses
from ringbuf.loader.messages import BATCH, END, FAILED, GROW, NOTED, Wish
from ringbuf.loader.observed import Observation, Observed
from ringbuf.loader.passes import Pass
from ringbuf.loader.rings import DataRings, RingPool
from ringbuf.loader.sharing import Offer
from ringbuf.loader.spec import WorkerSpec
from ringbuf.loader.substitute import LEFT_OUT, PassedOver
from ringbuf.loader.tasks import TaskBoard
from ringbuf.telemetry._meter import Consumer

__all__ = ["Settings", "WorkerIterator"]

CLOSED = "the loader was closed while this thread waited for a batch"
SLICE_S = 0.1  # between two looks at the workers while waiting for a batch
SWEEP_S = 0.001  # between two looks at several rings
EXIT_PRIORITY = 10  # of our clean-up at exit: before multiprocessing waits for its children


class Settings(NamedTuple):
    """How a loader wants its passes."""

    spec: WorkerSpec
    context: Any
    outstanding: int
    """Tasks that are out at once, at most."""
    in_order: bool
    timeout: float
    persistent: bool
    slots: int
    slot_bytes: int
    max_bytes: int | None
    dispatch: str = "static"
    on_worker_death: str = "raise"
    max_restarts: int = 0
    seed_by: str = "worker"

    @property
    def shared(self) -> bool:
        """Whether tasks are for whichever worker is idle. Where order does not matter, they always are; but
        each worker of an iterable dataset has data of its own."""
        return not self.spec.iterable and (self.dispatch == "pull" or not self.in_order)

    @property
    def repeatable(self) -> bool:
        """Whether random numbers follow from the seeds and from which worker makes what. Then workers have to finish what
        they were given, wanted or not, so that their streams do not depend on how far they were at some moment."""
        return not self.shared and self.seed_by == "worker"

    @property
    def divided(self) -> bool:
        """Whether workers make the first batch of a pass together: where it is made row by row."""
        spec = self.spec
        if not self.shared or self.dispatch != "pull" or spec.num_workers < 2:
            return False
        return spec.batched and spec.collate_fn is spec.dialect.collate and not getattr(spec.dataset, "__getitems__", None)

    @property
    def logged(self) -> bool:
        """Whether workers note where their random streams stand."""
        return self.on_worker_death == "restart" and self.seed_by == "worker"


class _ToldBefore(Exception):
    """A batch was refused again that had been refused before the pass was resumed."""


class WorkerIterator(Pass):
    """Hands out what its workers make."""

    def __init__(self, *, settings: Settings, pool: RingPool, observed: Observed, **common: Any):
        super().__init__(**common)
        from multiprocessing import util

        self._settings = settings
        self._in_order = settings.in_order
        self._num_workers = settings.spec.num_workers
        self._iterable = settings.spec.iterable
        self._shared = settings.shared
        self._restarts = settings.on_worker_death == "restart"
        self._rings = pool.borrow(slots=settings.slots, slot_bytes=settings.slot_bytes, max_bytes=settings.max_bytes)
        self._board = TaskBoard(settings.outstanding, None if self._shared else settings.spec.num_workers)
        self._crew = Crew(self._board, context=settings.context, spec=settings.spec)
        self._logbook = Logbook(settings.spec.num_workers) if settings.logged else None
        self._offer = Offer() if settings.divided else None
        # Runs when this object is collected, and at exit; never in a forked child.
        memory = [thing for thing in (self._logbook, self._offer) if thing is not None]
        self._end = util.Finalize(
            self,
            _end,
            args=(self._crew, self._board, self._rings, pool, memory, observed, self._observation),
            exitpriority=EXIT_PRIORITY,
        )
        # One slot for each worker stays in play, if there are so many.
        self._most_held = self._rings.slots - max(1, min(settings.spec.num_workers, self._rings.slots - 2))
        self._tasks = Ledger()
        self._losses = Losses(self._tasks, crew=self._crew, board=self._board, rings=self._rings, shared=self._shared)
        self._epoch = 0
        self._answers: Counter[int | None] = Counter()  # of this epoch, by worker, where there is a logbook
        self._mend_at = 0.0  # not before
        self._closing = False
        self._failure: BaseException | None = None  # why this iterator can go on no more
        self._salvaged: deque[tuple[Task, Lease | Failure]] = deque()  # answers to hand out before it is raised
        self._waiting = False
        self._steady = True  # False while tasks and batches change hands: an interrupt then leaves doubts
        self._arrived: list[Lease] = []  # at most one answer, which nobody looked at yet
        self.hand_out: Callable[[Lease], Any] | None = None  # what becomes of a batch, in place of views of it
        self._account_for_ring()
        self._announce()
        try:
            self._crew.start(self._letters)
            self._begin()
        except BaseException:
            self._end()
            raise

    # ---- for the loader

    @property
    def usable(self) -> bool:
        """Whether another epoch may begin here: nothing failed, and all workers are alive or can be replaced."""
        if not self.ours:
            return False
        with self._lock:
            return (
                self._failure is None
                and self._steady
                and not self._crew.stopped
                and len(self._losses.dead()) <= self._replacements
            )

    def _reset(self, loader: Any) -> None:
        """Begin another epoch with the same workers: call back or throw away what is under way."""
        with self._lock:
            self._refuse_within()
            course, promise, to_skip = loader._next_course()
            self._steady = False
            self._jobs = None
            if not self._settings.repeatable:
                self._call_back()
            while self._tasks:
                self._dispatch()
                self._discard_answer()
            self._crew.forget_failures()
            self._epoch += 1
            self._answers.clear()
            self._mend_at = 0.0
            self._done = False
            self._num_yielded, self._made = 0, None
            self._course, self._promise, self._to_skip = course, promise, list(to_skip)
            self._length = loader._pass_length()
            self._announce()
            self._begin()
            self._steady = True

    def _call_back(self) -> None:
        """Take back what no worker has begun."""
        for task in self._tasks:
            if task.generation is None or self._board.retract(task.number, task.worker_id):
                self._settle(task)

    def _discard_answer(self) -> None:
        self._steady = False
        try:
            task = self._receive()
        except (BatchTimeout, Unsent):
            raise
        except (BatchTooLarge, OSError, _ToldBefore):  # no room for it, which does not matter any more
            return
        if task is None:
            raise self._failure
        self._settle_answer(task)

    def close(self) -> None:
        """Stop the workers. A thread that waits for a batch gets Closed, within a moment."""
        if not self.ours:
            return
        self._closing = True
        with self._lock:
            super().close()
            self._end()

    _shutdown_workers = close

    @property
    def _workers(self) -> list:
        return [member.process for member in self._crew.members if member.process is not None]

    # ---- one batch

    def _produce(self) -> None:
        if self._waiting:
            self._refuse_within()
        if not self._steady:
            self._break_off()
        while self._failure is None:
            if not self._tasks:
                self._finish()
            if self._tasks.unsent:
                self._dispatch()  # slots may have come free since
            try:
                task = self._receive()
            except _ToldBefore:
                continue
            if task is None:
                break
            self._steady = False
            if self._arrived[0].target == END:
                passed_over = PassedOver.decode(memoryview(self._arrived[0]))
                self._go_on(task)
                self._note(passed_over)
                continue
            if self._to_skip and self._skipped(task):
                try:
                    self._throw_away(task, self._arrived.pop())
                finally:
                    self._go_on(task)
                continue
            try:
                batch = self._content(task, self._arrived.pop())
            except Exception:
                self._deliver(task)
                self._go_on(task)
                raise
            if batch is LEFT_OUT:
                self._go_on(task)
                self._deliver(task)
                continue
            self._made = batch, (task.batch, task.worker_id or 0)  # before the pass is steady: see Pass.__next__
            del batch
            self._go_on(task)
            self._meter.take(task.batch, task.worker_id)
            return
        while self._salvaged:
            task, answer = self._salvaged.popleft()
            if self._skipped(task):
                continue
            if isinstance(answer, Failure):
                self._deliver(task)
                self._report(answer)
            batch = self._content(task, answer)
            if batch is LEFT_OUT:
                self._deliver(task)
                continue
            self._made = batch, (task.batch, task.worker_id or 0)
            self._meter.take(task.batch, task.worker_id)
            return
        raise self._failure

    def _deliver(self, task: Task) -> None:
        self._course.deliver(task.batch, task.worker_id or 0)
        self._meter.take(task.batch, task.worker_id)

    def _skipped(self, task: Task) -> bool:
        """Whether what a task is answered with was delivered before this pass was resumed; asked once for each answer. The
        first batches of each worker are, whatever the order in which they come."""
        worker_id = task.worker_id
        if worker_id is None or worker_id >= len(self._to_skip) or not self._to_skip[worker_id]:
            return False
        self._to_skip[worker_id] -= 1
        self._num_yielded += 1
        return True

    def _throw_away(self, task: Task, lease: Lease) -> None:
        if lease.target != FAILED:
            return
        failure = self._read_failure(task, lease)
        del lease
        if failure.fatal:
            self._report(failure)

    def _go_on(self, task: Task) -> None:
        """A task was answered; keep the others moving."""
        self._settle_answer(task)
        if self._failure is None:
            self._pull()
            if self._tasks.unsent:
                self._dispatch()
        self._steady = True

    def _settle_answer(self, task: Task) -> None:
        """A task was answered: by what lies in `_arrived` still, or by what was taken from there."""
        ended = False
        if self._arrived:
            ended = self._arrived.pop().target == END
        self._settle(task)
        if self._logbook is not None:
            self._answers[task.worker_id] += 1
        if ended:
            self._ended.add(task.worker_id)
            for other in self._tasks.of(task.worker_id):
                self._settle(other)  # its worker throws it away

    def _content(self, task: Task, lease: Lease) -> Any:
        """The batch that an answer is, or the error, which is raised. Views of its slot, unless the consumer holds too much
        already."""
        kind = lease.target
        if kind == FAILED:
            failure = self._read_failure(task, lease)
            del lease
            self._report(failure)
        rings = self._rings
        copy = rings.current.held > self._most_held and task.generation == rings.newest
        self._meter.received(lease.nbytes, copy)
        if copy:
            if not self._account.warned_of_copies:
                self._account.warned_of_copies = True
                self._warn_of_copies()
        elif self.hand_out is not None and kind == BATCH:
            return self.hand_out(lease)
        batch = _messages.read(lease, copy, True, True)
        if kind == NOTED:
            within, passed_over = batch
            self._note(PassedOver(*passed_over))
            batch = LEFT_OUT if within is None else within[0]
        return batch if self._finish_batch is None else self._finished(batch)

    def _report(self, failure: Failure) -> NoReturn:
        self._note(PassedOver(*failure.passed_over))
        error = failure.exception()
        if failure.fatal:
            self._failure = error
            self._end()
        try:
            raise error
        finally:
            del error  # with this frame in its traceback it would keep itself, and us and our workers, alive

    def _finish(self) -> None:
        """The sampler gave all it had, and all of it was answered."""
        error, self._sampler_error = self._sampler_error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # see _report
        self._done = self._course.finished = True
        if not self._settings.persistent:
            self._end()
        else:
            self._observation.flush()
        raise StopIteration

    # ---- tasks out

    def _begin(self) -> None:
        self._jobs: Course | None = self._course  # None when it gives no more
        self._sampler_error: Exception | None = None
        self._ended: set[int] = set()  # workers whose iterable has ended
        self._next_worker = 0
        for _ in range(self._settings.outstanding):
            self._pull()
        if self._offer is not None and self._tasks:
            first = self._tasks.first()
            self._offer.make(first.number, first.index, first.packed)
        self._dispatch()

    def _pull(self) -> None:
        """Ask the sampler for one more task, and decide whose it is."""
        if self._jobs is None:
            return
        worker_id = None if self._shared else self._choose_worker()
        if worker_id is None and not self._shared:
            return
        try:
            job = next(self._jobs)
            packed = pack(job)
        except StopIteration:
            self._jobs = None
            return
        except Exception as error:  # to be raised at its place, after the batches before it
            self._jobs, self._sampler_error = None, error
            return
        number = self._rings.next_task
        self._rings.next_task += 1
        self._tasks.enter(Task(number, worker_id, job.batch, job.index, packed))

    def _choose_worker(self) -> int | None:
        """The next worker in turn whose data has not ended; where order does not matter, one that is not busier
        than its share. (Where samples have an index, tasks are for anybody then.)"""
        workers, ended = self._num_workers, self._ended
        for _ in range(workers):
            worker_id = self._next_worker
            self._next_worker = (worker_id + 1) % workers
            if worker_id in ended:
                continue
            if self._in_order:
                return worker_id
            if len(self._tasks.of(worker_id)) < self._settings.outstanding // (workers - len(ended)):
                return worker_id
        return None

    def _dispatch(self) -> None:
        """Give out what may be out."""
        if self._crew.behind:
            self._crew.flush()
        tasks, rings = self._tasks, self._rings
        steady, self._steady = self._steady, False
        newest = rings.newest
        most = min(self._settings.outstanding, rings.slots - rings.current.held)
        while tasks.out < most and (task := tasks.next_unsent()) is not None:
            if not self._board.post(task.number, newest, self._epoch, task.packed, task.worker_id):
                break
            tasks.give_out(task, newest)
        self._steady = steady

    def _settle(self, task: Task) -> None:
        """A task is answered, or will never be."""
        self._tasks.settle(task)
        if self._rings.several:
            oldest = self._tasks.oldest_generation()
            self._rings.retire_below(self._rings.newest if oldest is None else oldest)

    # ---- answers in

    def _receive(self) -> Task | None:
        """Wait for the next answer, which then lies in `_arrived`, and return its task. None when a worker died that
        owed it: see `_salvage`. An interrupt in here loses nothing."""
        try:
            self._waiting = True
            if self._in_order and not (self._arrived or self._restarts or self._rings.several):  # mostly it is there
                wanted = self._tasks.first()
                if self._rings.current.take_into(self._arrived, tag=wanted.number, timeout=0):
                    if self._arrived[0].target != GROW:
                        return wanted
            return self._wait()
        except Closed:
            if self._closing:  # by a signal handler, at whatever step
                raise Closed(CLOSED) from None
            raise
        finally:
            self._waiting = False

    def _refuse_within(self) -> None:
        """Whoever waits here and is interrupted by a signal handler would not find its answer any more."""
        if self._waiting:
            raise RuntimeError(
                "a signal handler asked for a batch, or for a new pass, of an iterator that was in next()"
            )

    def _wait(self) -> Task | None:
        timeout = self._settings.timeout
        deadline = time.monotonic() + timeout if timeout > 0 else None
        suspect: int | None = None
        while True:
            if self._restarts:
                self._mend()
            wanted = self._tasks.first() if self._in_order else None
            if not self._arrived:
                patience = SLICE_S if deadline is None else min(SLICE_S, max(0.0, deadline - time.monotonic()))
                self._take(wanted, 0 if suspect is not None else patience)
            if self._arrived:
                number = self._arrived[0].tag
                if self._arrived[0].target != GROW:
                    return self._tasks[number] if wanted is None else wanted
                if number in self._tasks:
                    self._make_room(self._tasks[number])
                else:  # its worker found slots that were made for another one, and we its answer before its wish
                    self._arrived.clear()
                continue
            if suspect is not None:  # it is dead, and it did not answer before
                self._salvage(suspect)
                return None
            self._check_open()
            suspect = self._losses.missed(wanted, replaceable=False) if self._replacements <= 0 else None
            if suspect is None:
                if deadline is not None and time.monotonic() >= deadline:
                    raise BatchTimeout(self._timeout_text(wanted))
                self._dispatch()

    def _take(self, wanted: Task | None, timeout: float) -> None:
        """Put an answer to the wanted task, or to any, into `_arrived`, if there is one within `timeout` seconds."""
        number = None if wanted is None else wanted.number
        if not self._rings.several:
            self._rings.current.take_into(self._arrived, timeout=timeout, tag=number)
            return
        tasks = self._tasks.given_out() if wanted is None else [wanted]
        generations = {task.generation for task in tasks if task.generation is not None} or {self._rings.newest}
        if self._shared:  # who makes it may answer in a newer one
            generations = set(range(min(generations), self._rings.newest + 1))
        if len(generations) == 1:
            self._take_from(generations.pop(), timeout, number)
        else:
            self._sweep(sorted(generations), timeout, number)

    def _take_from(self, generation: int, timeout: float, number: int | None) -> None:
        self._rings.ring(generation).take_into(self._arrived, timeout=timeout, tag=number)

    def _sweep(self, generations: list[int], timeout: float, number: int | None) -> None:
        """Look for an answer in several generations."""
        deadline = time.monotonic() + timeout
        while True:
            for generation in generations:
                self._take_from(generation, 0, number)
                if self._arrived:
                    return
            if time.monotonic() >= deadline:
                return
            time.sleep(SWEEP_S)

    def _make_room(self, task: Task) -> None:
        """A worker asks for larger slots: find or make a generation that has them, or refuse."""
        steady, self._steady = self._steady, False
        wish = Wish.decode(self._arrived.pop())
        newest = self._rings.newest
        try:
            generation = self._rings.fitting(wish.needed_bytes, above=task.generation)
        except (BatchTooLarge, OSError) as error:
            self._tasks.move(task, newest)
            self._crew.tell("refused", task.number, worker_id=wish.worker_id)
            known = self._skipped(task)
            if not known:
                self._deliver(task)
            self._go_on(task)
            if known:
                raise _ToldBefore from None
            raise _with_index(error, task.index, self._iterable) from None
        self._tasks.move(task, generation)
        if generation > newest:
            message, descriptor = self._ring_message()
            self._crew.tell(*message, descriptor=descriptor)
            self._account_for_ring()
        self._steady = steady

    def _ring_message(self) -> tuple[list, int]:
        newest = self._rings.newest
        return ["ring", newest, self._rings.slot_bytes], self._rings.ring(newest).fileno()

    def _read_failure(self, task: Task, lease: Lease) -> Failure:
        return Failure.decode(memoryview(lease) if lease.nbytes else self._crew.failure(task.number))

    def _letters(self, worker_id: int, source: int = NOWHERE, skipped: int = 0) -> list[tuple[list, int | None]]:
        """What a new worker gets before anything else."""
        log = (["log", source, skipped], None if self._logbook is None else self._logbook.fileno())
        shared = (["shared"], None if self._offer is None else self._offer.fileno())
        page = (["page"], self._observation.page.fileno())
        return [page, *self._board.letters(worker_id), self._ring_message(), log, shared]

    # ---- when no answer comes

    def _break_off(self) -> None:
        """An interrupt came while a task or a batch changed hands, and nobody knows what became of it."""
        self._failure = RuntimeError(
            "this pass was interrupted while a batch changed hands, which may be lost; call iter() for a new pass"
        )
        self._end()

    def _check_open(self) -> None:
        if not self._closing and not self._crew.stopped:
            return
        from multiprocessing import util

        if not self._closing and util.is_exiting() and threading.current_thread().daemon:
            # The interpreter is about to drop this thread. Nothing that it could be told now would be of use.
            threading.Event().wait()
        raise Closed(CLOSED)

    @property
    def _replacements(self) -> int:
        """Workers that may still be replaced."""
        return self._settings.max_restarts - self._account.restarts if self._restarts else 0

    def _mend(self) -> None:
        """Now and then, look whether there is somebody to replace; also while batches come, made by fewer workers."""
        if self._replacements <= 0 or self._arrived or time.monotonic() < self._mend_at:
            return
        self._mend_at = time.monotonic() + SLICE_S
        worker_id = self._losses.missed(None, replaceable=True)
        if worker_id is not None:
            self._replace(worker_id)

    def _replace(self, worker_id: int) -> None:
        """A worker died: start another one in its place, and have exactly that done again which it did not answer."""
        steady, self._steady = self._steady, False
        try:
            lost = self._losses.undone(worker_id)
            for task in lost:
                self._forget_wishes(task)
            source, skipped = self._resumption(worker_id, lost)
            letters = partial(self._letters, source=source, skipped=skipped)
            self._board.bury()
            self._rings.bury()
            recalled = self._board.recall(None if self._shared else worker_id)
            self._tasks.take_back({task.number for task in lost}.union(recalled))
            self._account.restarts += 1
            self._meter.add(Consumer.RESTARTS, 1)
            self._crew.replace(worker_id, letters)
        except Exception as error:
            self._failure = error
            self._steady = steady
            self._end()
            raise
        self._steady = steady
        self._dispatch()

    def _forget_wishes(self, task: Task) -> None:
        """Who asked for larger slots for this task is dead."""
        for generation in range(task.generation, self._rings.newest + 1):
            self._take_from(generation, 0, task.number)
            self._arrived.clear()

    def _resumption(self, worker_id: int, lost: list[Task]) -> tuple[int, int]:
        """From which note in the logbook a worker goes on in a dead one's place, and how many batches of the epoch it has to make
        for nothing, because they were answered: those of an iterable dataset come one after another."""
        if self._logbook is None:
            return NOWHERE, 0
        if self._iterable and self._logbook.has_begun(worker_id, self._epoch):
            owed = {task.number for task in self._tasks.of(worker_id) if task.generation is not None}
            return EPOCH, self._answers[worker_id] + len(owed & self._losses.answered().keys())
        return self._logbook.source(worker_id, {task.number for task in lost}), 0

    def _salvage(self, worker_id: int) -> None:
        """A worker died with an answer that is needed now: save what is finished, by whomever, and stop the rest."""
        self._steady = False
        lost = [task.index for task in self._losses.undone(worker_id)]
        if not lost and not self._shared:
            lost.append(self._tasks.of(worker_id)[0].index)  # not even given out
        for task in self._tasks.given_out():
            self._take_last(task)
            kind = self._arrived[0].target if self._arrived else END
            if kind == FAILED:  # read now: a part of it may be on the channel, which is about to be closed
                self._salvaged.append((task, self._read_failure(task, self._arrived[0])))
            elif kind in (BATCH, NOTED):
                self._salvaged.append((task, self._arrived[0]))
            self._arrived.clear()
        member = self._crew.members[worker_id]
        self._failure = worker_died(
            worker_id=worker_id,
            pid=member.pid,
            exitcode=member.exitcode,
            indices=lost,
            iterable=self._iterable,
            last_words=self._crew.last_words(worker_id),
            restarts=self._settings.max_restarts if self._restarts else None,
        )
        self._steady = True
        self._end()

    def _take_last(self, task: Task) -> None:
        """Put the answer to a task into `_arrived` if it is there, in whatever generation: one that asks for larger slots may be
        overtaken, since its worker needs no reply where slots made for another one are large enough, and answers there."""
        for generation in range(task.generation, self._rings.newest + 1):
            self._take_from(generation, 0, task.number)
            if self._arrived and self._arrived[0].target != GROW:
                return
            self._arrived.clear()

    def _timeout_text(self, wanted: Task | None) -> str:
        text = f"DataLoader timed out after {self._settings.timeout} seconds"
        late = [wanted] if wanted is not None else self._tasks.given_out()
        waiting_for = ", ".join(map(str, self._losses.whose(late))) or "any"
        text += f" waiting for worker {waiting_for}"
        if not self._iterable:
            text += f", which has the sample indices {describe_indices([task.index for task in late])} in hand"
        return text + "; the workers go on, so another next() may succeed"

    # ---- accounts and warnings

    def _account_for_ring(self) -> None:
        rings = self._rings
        self._account.ring(slots=rings.slots, slot_bytes=rings.slot_bytes, generations=rings.newest + 1)
        self._observation.note_ring(workers=self._num_workers, slots=rings.slots, slot_bytes=rings.slot_bytes)

    def _gauge(self) -> None:
        if self._crew.stopped:
            return
        with contextlib.suppress(Closed):  # by a signal handler
            ring = self._rings.current
            self._meter.gauge(ring.held, ring.ready(), self._tasks.out)

    def _warn_of_copies(self) -> None:
        rings = self._rings
        warn(
            f"RingLoader: {rings.held} of {rings.slots} slots are still looked at by batches that were kept, so this "
            "batch, and others while that is so, is a private copy. Keep fewer batches, or make the loader with more "
            "slots=; stats().copies counts them"
        )

    def _advice(self) -> str:
        return (
            " With several workers each iterates a copy of the dataset of its own: let its __iter__ ask "
            "get_worker_info() for the worker's share, or every sample comes from every worker."
        )


def _end(
    crew: Crew,
    board: TaskBoard,
    rings: DataRings,
    pool: RingPool,
    memory: list[Logbook | Offer],
    observed: Observed,
    observation: Observation,
) -> None:
    """What an iterator leaves to be done."""
    try:
        crew.stop()
    finally:
        board.close()
        for thing in memory:
            thing.close()
        pool.give_back(rings)
        observed.give_back(observation)


def _with_index(error: Exception, index: Any, iterable: bool) -> Exception:
    """The same error, saying for which batch it came."""
    whose = "" if iterable else f" of indices {describe_indices([index])}"
    if isinstance(error, BatchTooLarge):
        return BatchTooLarge(
            f"the batch{whose} does not fit: {error}",
            needed_bytes=error.needed_bytes,
            available_bytes=error.available_bytes,
        )
    return OSError(error.errno, f"no larger slots for the batch{whose}: {error.strerror}")
