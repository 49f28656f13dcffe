"""The workers of one iterator, from their start to their end: started together, watched, replaced, stopped together.

Only the process that started them may stop them, and it always does: at the end of an epoch, when the iterator
is collected, when the interpreter exits. Should it be killed, they notice by themselves (parent.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import stat
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from pickle import PicklingError
from typing import Any

from ringbuf.loader import worker
from ringbuf.loader.advice import warn
from ringbuf.loader.channel import Channel, take_memory
from ringbuf.loader.spec import Sealed, WorkerSpec

__all__ = ["Crew", "Member"]

STOP_S = 5.0  # how long all workers together may take to stop by themselves
TERMINATE_S = 0.5  # and after SIGTERM, before SIGKILL
STATUS_S = 0.5  # how late an exit status may be

Letters = Callable[[int], list[tuple[list, "int | None"]]]  # for the worker with this id, as (message, descriptor or None)

# What other workers would inherit through a fork and must not keep open: see worker.Origin.inherited.
_ours: weakref.WeakSet = weakref.WeakSet()

# multiprocessing ends the children that it knows of when a process exits; a forked one inherits what it knows, and would end
# its parent's.
_processes: weakref.WeakSet = weakref.WeakSet()


def _forget_the_parents_workers() -> None:
    known = sys.modules.get("multiprocessing.process")
    if known is not None:
        known._children.difference_update(list(_processes))
    _processes.clear()


os.register_at_fork(after_in_child=_forget_the_parents_workers)


class Member:
    """One worker, seen from the main process."""

    def __init__(self, worker_id: int, channel: Channel):
        self.id = worker_id
        self.channel = channel
        self.process: Any = None
        self.pid: int | None = None
        self.exitcode: int | None = None
        self._pidfd: int | None = None

    def begin(self, process: Any) -> None:
        """The process was started."""
        self.process, self.pid = process, process.pid
        _processes.add(process)
        # It is over before its pid is free again: nobody else can be behind this descriptor.
        with contextlib.suppress(OSError):
            self._pidfd = os.pidfd_open(process.pid)

    def over(self) -> bool:
        """Whether the process has ended."""
        if self.process is None:
            return True
        if not self.process.is_alive():
            self._settle()
        elif self._pidfd is not None and _readable(self._pidfd):
            # It has ended, but its exit status is not here: a forkserver is a moment late with it, and where a
            # host program ignores SIGCHLD it never comes.
            self.process.join(STATUS_S)
            self._settle()
        return self.process is None

    def letters(self) -> Iterator[tuple[list, bytes]]:
        """What it sent, as (message, content)."""
        with contextlib.suppress(EOFError, OSError):
            while (letter := self.channel.receive()) is not None:
                message, descriptors = letter
                yield message, take_memory(descriptors)

    def close(self) -> None:
        """Let go of it; the process has ended."""
        self.channel.close()
        if not self.over():  # not even SIGKILL ended it: it hangs in the kernel
            self._close_pidfd()

    @property
    def waitable(self) -> int:
        """A descriptor that becomes readable at its end."""
        return self._pidfd if self._pidfd is not None else self.process.sentinel

    def _settle(self) -> None:
        self.exitcode = self.process.exitcode
        with contextlib.suppress(ValueError):  # no exit status, so multiprocessing thinks that it lives
            self.process.close()
        self.process = None
        self._close_pidfd()

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


def _readable(descriptor: int) -> bool:
    poll = select.poll()  # select() refuses descriptors above 1023, and a trainer may have that many
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class Crew:
    """All workers of one iterator.

    tasks: the task rings, which tell waiting workers to stop when they are finished.
    behind: channels with something that there was no room for.
    """

    def __init__(self, tasks: Any, *, context: Any, spec: WorkerSpec):
        self.members: list[Member] = []
        self.stopped = False
        self.behind: set[Channel] = set()
        self._pid = os.getpid()
        self._tasks = tasks
        self._context = context
        self._spec = spec
        self._tethers: list = []
        self._former: list[Member] = []  # who were replaced, and may have sent letters that nobody has read
        self._failures: dict[int, bytes] = {}  # by task: what was too long for a slot
        self._last_words: dict[int, str] = {}  # by worker

    def start(self, letters: Letters) -> None:
        """Start all workers. Whatever this raises, stop() is to be called in the end.

        letters: what each worker gets through its channel before anything else.
        """
        with _sigint_held(self._context):
            self._start(range(self._spec.num_workers), letters)

    def replace(self, worker_id: int, letters: Letters) -> None:
        """Start another worker in the place of one that has ended."""
        with _sigint_held(self._context):
            self._start([worker_id], letters)

    def over(self, worker_id: int) -> bool:
        """Whether this worker has ended."""
        return self.members[worker_id].over()

    def failure(self, number: int) -> bytes:
        """What a worker, perhaps one that was replaced since, has sent of its failure at a task."""
        if number not in self._failures:
            self._read_letters()
        return self._failures.pop(number)

    def forget_failures(self) -> None:
        """Of the tasks so far nobody will ask any more."""
        self._read_letters()
        self._failures.clear()

    def last_words(self, worker_id: int) -> str | None:
        """What a worker said before it ended because of an error outside any task."""
        self._read_letters()
        return self._last_words.get(worker_id)

    def tell(self, *message: Any, worker_id: int | None = None, descriptor: int | None = None) -> None:
        """Send a message to this worker, or to all; what there is no room for now, flush() sends."""
        for member in self.members if worker_id is None else [self.members[worker_id]]:
            if not member.channel.post(*message, descriptor=descriptor):
                self.behind.add(member.channel)

    def flush(self) -> None:
        """Send what there was no room for before."""
        self.behind = {channel for channel in self.behind if not channel.flush()}

    def stop(self) -> None:
        """End all workers: those that wait at once, those in user code when it returns, and after a deadline the
        rest by force. Idempotent. In a forked child it only forgets them: they are the parent's."""
        if self.stopped or os.getpid() != self._pid:
            return
        self.stopped = True
        try:
            with _sigint_held():
                self._tasks.finish()
                for member in self.members:
                    member.channel.forget()  # else it would be in the way
                    member.channel.send("stop")
                self._wait(STOP_S)
        finally:
            self._end_by_force()
            for member in [*self.members, *self._former]:
                member.close()
            for tether in self._tethers:
                tether.close()  # only now: it kills whoever is left

    def _start(self, worker_ids: Iterable[int], letters: Letters) -> None:
        context, spec = self._context, self._spec
        method = context.get_start_method()
        from_main_thread = threading.current_thread() is threading.main_thread()
        forked, direct = method == "fork", method != "forkserver"
        tethered = None
        if not (direct and from_main_thread):
            tethered, tether = context.Pipe(duplex=False)
            self._tethers.append(tether)
            _ours.add(tether)
        load = spec if forked else Sealed(spec)
        if forked:
            # Numpy loads it when it is first asked for, which would be in each worker anew, to be seeded.
            import numpy.random  # noqa: F401
        try:
            for worker_id in worker_ids:
                with _starting(worker_id, spec.num_workers):
                    channel, end = Channel.pair()
                _ours.add(channel)
                member = self._enlist(Member(worker_id, channel))
                with end, _starting(worker_id, spec.num_workers):
                    for message, descriptor in letters(worker_id):
                        if not channel.send(*message, descriptor=descriptor):  # to an end that is ours still, and empty
                            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
                    inherited = list(_ours) if forked else []
                    origin = worker.Origin(os.getpid(), direct, from_main_thread, tethered, inherited)
                    process = context.Process(
                        target=worker.run,
                        args=(load, worker_id, end, origin),
                        name=f"RingLoader worker {worker_id}",
                        daemon=True,
                    )
                    with _children_allowed(), _pickling_explained(method):
                        process.start()
                member.begin(process)
        finally:
            if tethered is not None:
                tethered.close()
            if not forked:
                load.close()

    def _enlist(self, member: Member) -> Member:
        if member.id < len(self.members):
            self._former.append(self.members[member.id])
            self.members[member.id] = member
        else:
            self.members.append(member)
        return member

    def _read_letters(self) -> None:
        for member in [*self.members, *self._former]:
            for message, content in member.letters():
                if message[0] == "failure":
                    self._failures[message[1]] = content
                else:
                    self._last_words[member.id] = content.decode("utf-8", "replace")
        for member in self._former:  # what the dead have to say is read
            member.close()
        self._former.clear()

    def _wait(self, seconds: float) -> None:
        """Wait until all have ended, at most so long."""
        deadline = time.monotonic() + seconds
        while left := [member for member in self.members if not member.over()]:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return
            poll = select.poll()
            for member in left:
                poll.register(member.waitable, select.POLLIN)
            # A sentinel is readable a moment before the exit status is there.
            if poll.poll(min(remaining, 1.0) * 1000):
                time.sleep(0.0005)

    def _end_by_force(self) -> None:
        left = [member for member in self.members if not member.over()]
        if not left:
            return
        for member in left:
            member.process.terminate()
        try:
            self._wait(TERMINATE_S)
        finally:
            for member in left:
                if not member.over():
                    member.process.kill()
            self._wait(STOP_S)


@contextlib.contextmanager
def _starting(worker_id: int, num_workers: int) -> Iterator[None]:
    """Say of what the system refuses that it was refused to the start of a worker, and what helps."""
    try:
        yield
    except OSError as error:
        _close_what_the_start_left(error)
        if error.errno is None:
            raise
        text = f"worker {worker_id} of {num_workers} could not be started ({error.strerror}){_advice(error.errno)}"
        raise OSError(error.errno, text) from error


def _advice(code: int) -> str:
    if code == errno.EAGAIN:
        return (
            f": the user's limit on processes (RLIMIT_NPROC, ulimit -u) is {_limit(resource.RLIMIT_NPROC)}, and "
            "containers have one too; lower num_workers or raise the limit"
        )
    if code == errno.EMFILE:
        return (
            f": this process may have {_limit(resource.RLIMIT_NOFILE)} descriptors (ulimit -n); lower num_workers, close "
            "what is not needed, or raise the limit"
        )
    return ""


def _limit(kind: int) -> str:
    most = resource.getrlimit(kind)[0]
    return "no limit" if most == resource.RLIM_INFINITY else str(most)


def _close_what_the_start_left(error: BaseException) -> None:
    """multiprocessing forgets its pipes when one more pipe, or the fork, is refused (popen_fork.Popen._launch, Python 3.14).
    Nobody but that frame knows them, and whoever tries again and again would run out of descriptors."""
    from multiprocessing import popen_fork

    if sys.version_info >= (3, 15):  # look at it again: what it closes itself may be another thread's by now
        return
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is not popen_fork.Popen._launch.__code__ or hasattr(frame.f_locals["self"], "pid"):
            continue
        for name in ("parent_r", "child_w", "child_r", "parent_w"):
            with contextlib.suppress(OSError, KeyError):  # not there, or closed by a later Python
                descriptor = frame.f_locals[name]
                if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                    os.close(descriptor)


@contextlib.contextmanager
def _pickling_explained(method: str) -> Iterator[None]:
    """Say why anything is pickled, where something cannot be."""
    try:
        yield
    except (TypeError, AttributeError, PicklingError):
        if method != "fork":
            warn(
                "Got pickle error when attempting to start a worker Process: dataset, collate_fn, worker_init_fn and on_error go "
                f"to it pickled with the start method {method!r}, which Python 3.14+ made 'forkserver' by default. Define them "
                "at the top of a module, or give multiprocessing_context='fork'"
            )
        raise


@contextlib.contextmanager
def _children_allowed() -> Iterator[None]:
    """multiprocessing forbids a daemonic process, such as a Pool's or a worker, to have children, lest they be
    orphaned when it is terminated. Ours notice."""
    import multiprocessing

    current = multiprocessing.current_process()
    daemonic = current.daemon
    if not daemonic:
        yield
        return
    current.daemon = False
    try:
        yield
    finally:
        current.daemon = daemonic


@contextlib.contextmanager
def _sigint_held(context: Any = None) -> Iterator[None]:
    """Put off Ctrl-C, so that a start or a stop is not left half done.

    Workers that start meanwhile are born with it put off, and have time to say what they do about it.
    """
    if context is not None and context.get_start_method() != "fork":
        # Processes that serve the whole program must not inherit that.
        from multiprocessing import forkserver, resource_tracker

        resource_tracker.ensure_running()
        if context.get_start_method() == "forkserver":
            forkserver.ensure_running()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _sigint_noted():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


@contextlib.contextmanager
def _sigint_noted() -> Iterator[None]:
    """In the main thread, answer Ctrl-C only at the end of the block: blocking it for this thread does not stop the
    kernel from handing it to another one, and Python then raises it here."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    noted: list = []
    signal.signal(signal.SIGINT, lambda *_: noted.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if noted:
            signal.raise_signal(signal.SIGINT)  # to this thread, where it waits until it is let through
