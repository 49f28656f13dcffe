"""One pass over a dataset with workers: tasks out, batches in, in the order of the sampler.

The invariant that keeps everything moving: tasks that are out, and slots of the newest data ring that the
consumer still looks at, are together never more than the ring has slots. So there is a free slot for each answer,
whatever the order in which workers finish. When the consumer keeps so many batches that fewer slots would be left
than there are workers, further batches are handed out as private copies.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from ringbuf import frame
from ringbuf._core import Lease
from ringbuf.errors import BatchTooLarge, Closed, Empty
from ringbuf.loader.channel import Unsent, take_memory
from ringbuf.loader.course import Course, Job
from ringbuf.loader.failure import BatchTimeout, Failure, describe_indices, worker_died
from ringbuf.loader.lifecycle import Crew
from ringbuf.loader.messages import BATCH, END, FAILED, GROW, NOTED, decode_number
from ringbuf.loader.passes import Pass
from ringbuf.loader.rings import DataRings, RingPool
from ringbuf.loader.spec import WorkerSpec
from ringbuf.loader.substitute import LEFT_OUT, FailedSample
from ringbuf.loader.tasks import Order, TaskBoard, pack

__all__ = ["Settings", "WorkerIterator"]

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


class _Task:
    """A task that is not answered yet.

    number: on the rings; batch: in the pass.
    generation: the data ring in which its answer will be; None before it is given out.
    """

    __slots__ = ("batch", "generation", "index", "number", "packed", "worker_id")

    def __init__(self, number: int, worker_id: int, job: Job, packed: bytes):
        self.number, self.worker_id, self.packed = number, worker_id, packed
        self.batch, self.index = job.batch, job.index
        self.generation: int | None = None


class WorkerIterator(Pass):
    """Hands out what its workers make."""

    def __init__(self, *, settings: Settings, pool: RingPool, **common: Any):
        super().__init__(**common)
        from multiprocessing import util

        self._settings = settings
        self._iterable = settings.spec.iterable
        self._rings = pool.borrow(slots=settings.slots, slot_bytes=settings.slot_bytes, max_bytes=settings.max_bytes)
        self._board = TaskBoard(settings.outstanding)
        self._crew = Crew(self._board)
        # Runs when this object is collected, and at exit; never in a forked child.
        self._end = util.Finalize(
            self, _end, args=(self._crew, self._board, self._rings, pool), exitpriority=EXIT_PRIORITY
        )
        # One slot for each worker stays in play, if there are so many.
        self._most_held = self._rings.slots - max(1, min(settings.spec.num_workers, self._rings.slots - 2))
        self._queue: dict[int, _Task] = {}  # not answered yet, in order
        self._unsent: deque[_Task] = deque()  # those of them that are not given out yet
        self._out = 0  # how many are
        self._epoch = 0
        self._closing = False
        self._failure: BaseException | None = None  # why this iterator can go on no more
        self._salvaged: deque[tuple[_Task, Lease | Failure]] = deque()  # answers to hand out before it is raised
        self._steady = True  # False while tasks and batches change hands: an interrupt then leaves doubts
        self._arrived: list[Lease] = []  # at most one answer, which nobody looked at yet
        self._account_for_ring()
        try:
            rings = [(["tasks"], self._board.fileno()), self._ring_message()]
            self._crew.start(context=settings.context, spec=settings.spec, rings=rings)
            self._begin()
        except BaseException:
            self._end()
            raise

    # ---- for the loader

    @property
    def usable(self) -> bool:
        """Whether another epoch may begin here: nothing failed, and all workers are alive."""
        if not self.ours:
            return False
        with self._lock:
            return (
                self._failure is None
                and self._steady
                and not self._crew.stopped
                and not any(member.over() for member in self._crew.members)
            )

    def _reset(self, loader: Any) -> None:
        """Begin another epoch with the same workers: call back or throw away what is under way."""
        with self._lock:
            course, promise, to_skip = loader._next_course()
            self._steady = False
            for task in list(self._queue.values()):
                if task.generation is None:
                    del self._queue[task.number]
                elif self._board.retract(task.number):
                    self._settle(task)
            self._unsent.clear()
            self._jobs = None
            while self._queue:
                self._discard_answer()
            self._epoch += 1
            self._done = False
            self._num_yielded = 0
            self._course, self._promise = course, promise
            self._begin()
            self._steady = True
            self.skip(to_skip)

    def _discard_answer(self) -> None:
        self._steady = False
        try:
            task = self._receive()
        except (BatchTimeout, Unsent):
            raise
        except (BatchTooLarge, OSError):  # no room for it, which does not matter any more
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

    def _produce(self) -> Any:
        if not self._steady:
            self._break_off()
        while self._failure is None:
            if not self._queue:
                self._finish()
            self._dispatch()  # slots may have come free since
            task = self._receive()
            if task is None:
                break
            self._steady = False
            if self._arrived[0].target == END:
                self._go_on(task)
                continue
            self._course.deliver(task.batch)
            try:
                batch = self._content(task, self._arrived.pop())
            except Exception:
                self._go_on(task)
                raise
            self._go_on(task)
            if batch is not LEFT_OUT:
                return batch
        while self._salvaged:
            task, answer = self._salvaged.popleft()
            self._course.deliver(task.batch)
            if isinstance(answer, Failure):
                raise answer.exception()
            batch = self._open(task, answer)
            if batch is not LEFT_OUT:
                return batch
        raise self._failure

    def _go_on(self, task: _Task) -> None:
        """A task was answered; keep the others moving."""
        self._settle_answer(task)
        if self._failure is None:
            self._pull()
            self._dispatch()
        self._steady = True

    def _settle_answer(self, task: _Task) -> None:
        """A task was answered: by what lies in `_arrived` still, or by what was taken from there."""
        ended = bool(self._arrived) and self._arrived[0].target == END
        self._arrived.clear()
        self._settle(task)
        if ended:
            self._ended.add(task.worker_id)
            for other in [other for other in self._queue.values() if other.worker_id == task.worker_id]:
                self._settle(other)  # its worker throws it away

    def _content(self, task: _Task, lease: Lease) -> Any:
        """The batch that an answer is, or the error, which is raised."""
        if lease.target != FAILED:
            return self._open(task, lease)
        failure = self._read_failure(task, lease)
        del lease
        self._account.note([FailedSample(*note) for note in failure.notes])
        self._report(failure)

    def _report(self, failure: Failure) -> NoReturn:
        error = failure.exception()
        if failure.fatal:
            self._failure = error
            self._end()
        try:
            raise error
        finally:
            del error  # with this frame in its traceback it would keep itself, and us and our workers, alive

    def _open(self, task: _Task, lease: Lease) -> Any:
        """The batch in a slot: views of it, unless the consumer holds too much already."""
        copy = task.generation == self._rings.newest and self._rings.held > self._most_held
        self._account.bytes += lease.nbytes
        if copy:
            self._account.copies += 1
            if not self._account.warned_of_copies:
                self._account.warned_of_copies = True
                self._warn_of_copies()
        content = frame.read(lease, copy=copy, pickle=True, imports=True)
        if lease.target != NOTED:
            return content
        batch, notes = content
        self._account.note([FailedSample(*note) for note in notes])
        return LEFT_OUT if batch is None else batch[0]

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
        raise StopIteration

    # ---- tasks out

    def _begin(self) -> None:
        self._jobs: Course | None = self._course  # None when it gives no more
        self._sampler_error: Exception | None = None
        self._ended: set[int] = set()  # workers whose iterable has ended
        self._next_worker = 0
        for _ in range(self._settings.outstanding):
            self._pull()
        self._dispatch()

    def _pull(self) -> None:
        """Ask the sampler for one more task, and decide whose it is."""
        if self._jobs is None:
            return
        worker_id = self._choose_worker()
        if worker_id is None:
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
        task = _Task(number, worker_id, job, packed)
        self._queue[number] = task
        self._unsent.append(task)

    def _choose_worker(self) -> int | None:
        """The next worker in turn whose data has not ended; where order does not matter, one that is not busier
        than its share."""
        workers = self._settings.spec.num_workers
        for _ in range(workers):
            worker_id = self._next_worker
            self._next_worker = (worker_id + 1) % workers
            if worker_id in self._ended:
                continue
            if self._settings.in_order or self._load(worker_id) < self._settings.outstanding // (
                workers - len(self._ended)
            ):
                return worker_id
        return None

    def _load(self, worker_id: int) -> int:
        return sum(task.worker_id == worker_id for task in self._queue.values())

    def _dispatch(self) -> None:
        """Give out what may be out."""
        self._crew.flush()
        if not self._unsent:
            return
        steady, self._steady = self._steady, False
        newest = self._rings.newest
        room = min(self._settings.outstanding, self._rings.slots - self._rings.held) - self._out
        while room > 0 and self._unsent:
            task = self._unsent[0]
            if task.number in self._queue:
                order = Order(task.number, newest, self._epoch, task.packed)
                if not self._board.post(order, task.worker_id, self._crew.members[task.worker_id].channel):
                    break
                task.generation = newest
                self._out += 1
                room -= 1
            self._unsent.popleft()
        self._steady = steady

    def _settle(self, task: _Task) -> None:
        """A task is answered, or will never be."""
        del self._queue[task.number]
        if task.generation is not None:
            self._out -= 1
            self._board.settled(task.number)
            if self._rings.several:
                self._rings.retire_below(min((other.generation for other in self._sent()), default=self._rings.newest))

    def _sent(self) -> list[_Task]:
        return [task for task in self._queue.values() if task.generation is not None]

    # ---- answers in

    def _receive(self) -> _Task | None:
        """Wait for the next answer, which then lies in `_arrived`, and return its task. None when a worker died that
        owed it: see `_salvage`. An interrupt in here loses nothing."""
        timeout = self._settings.timeout
        deadline = time.monotonic() + timeout if timeout > 0 else None
        suspect: int | None = None
        while True:
            wanted = next(iter(self._queue.values())) if self._settings.in_order else None
            if not self._arrived:
                patience = SLICE_S if deadline is None else min(SLICE_S, max(0.0, deadline - time.monotonic()))
                self._take(wanted, 0 if suspect is not None else patience)
            if self._arrived:
                task = self._queue[self._arrived[0].tag]
                if self._arrived[0].target != GROW:
                    return task
                self._make_room(task)
                continue
            if suspect is not None:  # it is dead, and it did not answer before
                self._salvage(suspect)
                return None
            self._check_open()
            suspect = self._dead_debtor(wanted)
            if suspect is None:
                if deadline is not None and time.monotonic() >= deadline:
                    raise BatchTimeout(self._timeout_text(wanted))
                self._dispatch()

    def _take(self, wanted: _Task | None, timeout: float) -> None:
        """Put an answer to the wanted task, or to any, into `_arrived`, if there is one within `timeout` seconds."""
        if wanted is None and self._rings.several:
            self._sweep(timeout)
            return
        generation = self._rings.newest if wanted is None or wanted.generation is None else wanted.generation
        self._take_from(generation, timeout, None if wanted is None else wanted.number)

    def _take_from(self, generation: int, timeout: float, number: int | None) -> None:
        take = partial(self._rings.ring(generation).take, timeout=timeout, tag=number)
        try:
            # From the ring into the list within one call of C code: an interrupt finds no place between the two.
            self._arrived.extend(islice(iter(take, None), 1))
        except Empty:
            pass

    def _sweep(self, timeout: float) -> None:
        """Look for an answer to any task in all generations that one may come in."""
        deadline = time.monotonic() + timeout
        while True:
            for generation in sorted({task.generation for task in self._sent()}):
                self._take_from(generation, 0, None)
                if self._arrived:
                    return
            if time.monotonic() >= deadline:
                return
            time.sleep(SWEEP_S)

    def _make_room(self, task: _Task) -> None:
        """A worker asks for larger slots: find or make a generation that has them, or refuse."""
        steady, self._steady = self._steady, False
        needed_bytes = decode_number(self._arrived.pop())
        newest = self._rings.newest
        try:
            generation = self._rings.fitting(needed_bytes, above=task.generation)
        except (BatchTooLarge, OSError) as error:
            self._move(task, newest)
            self._crew.members[task.worker_id].channel.post("refused", task.number)
            self._go_on(task)
            raise _with_index(error, task.index, self._iterable) from None
        self._move(task, generation)
        if generation > newest:
            message, descriptor = self._ring_message()
            self._crew.tell(*message, descriptor=descriptor)
            self._account_for_ring()
        self._steady = steady

    def _move(self, task: _Task, generation: int) -> None:
        """From this task on, its worker answers in this generation, or in a newer one."""
        for other in self._sent():
            if other.worker_id == task.worker_id and other.number >= task.number:
                other.generation = max(other.generation, generation)

    def _ring_message(self) -> tuple[list, int]:
        newest = self._rings.newest
        return ["ring", newest, self._rings.slot_bytes], self._rings.ring(newest).fileno()

    def _read_failure(self, task: _Task, lease: Lease) -> Failure:
        if lease.nbytes:
            return Failure.decode(memoryview(lease))
        channel = self._crew.members[task.worker_id].channel
        while True:
            message, descriptors = channel.receive()
            data = take_memory(descriptors)
            if message == ["failure", task.number]:
                return Failure.decode(data)

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
        raise Closed("the loader was closed while this thread waited for a batch")

    def _dead_debtor(self, wanted: _Task | None) -> int | None:
        """A worker that has died and owes the wanted task, or any."""
        debtors = {task.worker_id for task in ([wanted] if wanted is not None else self._sent())}
        return next((worker_id for worker_id in sorted(debtors) if self._crew.over(worker_id)), None)

    def _salvage(self, worker_id: int) -> None:
        """A worker died with an answer that is needed now: save what is finished, by whomever, and stop the rest."""
        self._steady = False
        lost = []
        for task in self._sent():
            self._take_newest(task)
            kind = self._arrived[0].target if self._arrived else GROW
            if kind == FAILED:  # read now: a part of it may be on the channel, which is about to be closed
                self._salvaged.append((task, self._read_failure(task, self._arrived[0])))
            elif kind in (BATCH, NOTED):
                self._salvaged.append((task, self._arrived[0]))
            elif kind == GROW and task.worker_id == worker_id:
                lost.append(task.index)
            self._arrived.clear()
        member = self._crew.members[worker_id]
        self._failure = worker_died(
            worker_id=worker_id,
            pid=member.pid,
            exitcode=member.exitcode,
            indices=lost or [next(iter(self._queue.values())).index],  # not even given out
            iterable=self._iterable,
            last_words=member.last_words(),
        )
        self._steady = True
        self._end()

    def _take_newest(self, task: _Task) -> None:
        """Put the last answer to a task that there is into `_arrived`. One that asks for larger slots may be overtaken: its
        worker needs no reply from us where slots made for another worker are large enough, and answers there."""
        self._take(task, 0)
        while self._arrived and self._arrived[0].target == GROW:
            larger = self._rings.known_fitting(decode_number(self._arrived[0]), above=task.generation)
            if larger is None:
                return
            self._arrived.clear()
            self._move(task, larger)
            self._take(task, 0)

    def _timeout_text(self, wanted: _Task | None) -> str:
        text = f"DataLoader timed out after {self._settings.timeout} seconds"
        late = [wanted] if wanted is not None else self._sent()
        waiting_for = ", ".join(str(worker_id) for worker_id in sorted({task.worker_id for task in late}))
        text += f" waiting for worker {waiting_for}"
        if not self._iterable:
            text += f", which has the sample indices {describe_indices([task.index for task in late])} in hand"
        return text + "; the workers go on, so another next() may succeed"

    # ---- accounts and warnings

    def _account_for_ring(self) -> None:
        rings = self._rings
        self._account.ring(slots=rings.slots, slot_bytes=rings.slot_bytes, generations=rings.newest + 1)

    def _warn_of_copies(self) -> None:
        rings = self._rings
        warnings.warn(
            f"RingLoader: {rings.held} of {rings.slots} slots are still looked at by batches that were kept, so this "
            "batch, and others while that is so, is a private copy. Keep fewer batches, or make the loader with more "
            "slots=; stats().copies counts them",
            stacklevel=6,
        )

    def _advice(self) -> str:
        return (
            " With several workers each iterates a copy of the dataset of its own: let its __iter__ ask "
            "get_worker_info() for the worker's share, or every sample comes from every worker."
        )


def _end(crew: Crew, board: TaskBoard, rings: DataRings, pool: RingPool) -> None:
    """What an iterator leaves to be done."""
    try:
        crew.stop()
    finally:
        board.close()
        pool.give_back(rings)


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
