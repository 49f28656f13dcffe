"""What went wrong in a worker, and how the main process says it."""

from __future__ import annotations

import pickle
import signal
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from ringbuf.errors import RingbufError, WorkerDied
from ringbuf.loader.substitute import NOTHING

__all__ = ["BatchTimeout", "Failure", "WorkerTraceback", "describe_indices", "worker_died"]

SHOWN_INDICES = 16


class BatchTimeout(RingbufError, RuntimeError, TimeoutError):
    """No batch came within the loader's `timeout`. The workers go on; asking again is fine."""


class WorkerTraceback(RingbufError):
    """The cause of an exception that was raised in a worker: where and why, as text."""

    def __str__(self) -> str:
        return "\n" + super().__str__()


class Failure(NamedTuple):
    """An exception on its way out of a worker.

    type_name, text: what it was, and its traceback there.
    pickled: the exception itself, where it survives pickling; None otherwise.
    fatal: whether the worker cannot go on, because it failed before its first batch.
    passed_over: samples that failed before and were not raised.
    """

    worker_id: int
    type_name: str
    text: str
    pickled: bytes | None
    fatal: bool
    index: Any
    at: Any
    passed_over: tuple = NOTHING

    @classmethod
    def of(
        cls,
        error: BaseException,
        *,
        worker_id: int,
        fatal: bool = False,
        index: Any = None,
        at: Any = None,
        passed_over: tuple = NOTHING,
    ):
        """Describe `error`, which is being handled now."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(worker_id, type(error).__qualname__, text, _pickled(error), fatal, index, at, tuple(passed_over))

    def encode(self, room: int | None = None) -> bytes:
        """As bytes; cut down to `room` where they do not fit, from the front of the traceback first."""
        data = pickle.dumps(tuple(self), 5)
        if room is None or len(data) <= room:
            return data
        plain = self._replace(pickled=None, index=None, passed_over=(self.passed_over[0], []))
        data = pickle.dumps(tuple(plain), 5)
        excess = len(data) - room
        if excess <= 0:
            return data
        kept = plain.text.encode("utf-8", "backslashreplace")[excess + 64 :].decode("utf-8", "ignore")
        return pickle.dumps(tuple(plain._replace(text="[...] " + kept, at=None)), 5)

    @classmethod
    def decode(cls, data: Any) -> Failure:
        return cls(*pickle.loads(data))

    def exception(self) -> BaseException:
        """The exception to raise in the main process: the same one where possible, with the worker's account as cause."""
        account = (
            f"Caught {self.type_name} in DataLoader worker process {self.worker_id}"
            f"{self._where()}.\nOriginal {self.text.rstrip()}"
        )
        error: BaseException
        try:
            error = pickle.loads(self.pickled) if self.pickled is not None else RuntimeError(account)
        except Exception:  # its class exists only over there
            error = RuntimeError(account)
        if isinstance(error, StopIteration):  # out of next() it would end the epoch in silence
            error = RuntimeError(account)
        error.__cause__ = WorkerTraceback(account)
        return error

    def _where(self) -> str:
        if self.fatal:
            return " before its first batch"
        parts = []
        if self.at is not None and self.at is not self.index:
            parts.append(f"at sample {self.at!r}")
        if self.index is not None:
            parts.append(f"while it made the batch of indices {describe_indices([self.index])}")
        return " " + ", ".join(parts) if parts else ""


def _pickled(error: BaseException) -> bytes | None:
    """`error` pickled, if what comes back is the same: its type, its arguments."""
    try:
        data = pickle.dumps(error, 5)
        twin = pickle.loads(data)
        same = type(twin) is type(error) and (_equal(twin.args, error.args) or repr(twin.args) == repr(error.args))
    except Exception:  # __reduce__, __init__, __eq__ and __repr__ are anybody's code
        return None
    return data if same else None


def _equal(left: tuple, right: tuple) -> bool:
    try:
        return bool(left == right)
    except ValueError:  # arrays among them
        return False


def describe_indices(indices: Sequence) -> str:
    """The sample indices of some tasks, in brackets, with the middle left out where they are many."""
    flat = flatten(indices)
    if len(flat) <= SHOWN_INDICES:
        return f"[{', '.join(map(repr, flat))}]"
    head, tail = flat[: SHOWN_INDICES - 2], flat[-2:]
    return f"[{', '.join(map(repr, head))}, ... {', '.join(map(repr, tail))}] ({len(flat)} in all)"


def flatten(indices: Sequence) -> list:
    """The sample indices of some tasks in one list."""
    flat: list = []
    for index in indices:
        try:
            flat.extend([index] if isinstance(index, (str, bytes)) else index)
        except TypeError:
            flat.append(index)
    return flat


def worker_died(
    *,
    worker_id: int,
    pid: int,
    exitcode: int | None,
    indices: Sequence,
    iterable: bool,
    last_words: str | None,
    restarts: int | None = None,
) -> WorkerDied:
    """The error for a worker that is gone, with the batches it owed.

    restarts: how many workers took the place of dead ones before, all that were allowed; None where none are.
    """
    flat = [] if iterable else flatten(indices)
    owed = f"it owed {len(indices)} {'batch' if len(indices) == 1 else 'batches'}" if indices else "it had nothing in hand"
    if flat:
        owed += f", of the sample indices {describe_indices(indices)}"
    if restarts is not None:
        owed += f"; {restarts} workers were replaced before it, and max_restarts={restarts}"
    message = f"DataLoader worker (pid(s) {pid}) exited unexpectedly: worker {worker_id} {_ending(exitcode)}; {owed}."
    if last_words:
        message += f"\nIts last words:\n{last_words.rstrip()}"
    return WorkerDied(message, worker_id=worker_id, pid=pid, exitcode=exitcode, indices=flat)


def _ending(exitcode: int | None) -> str:
    if exitcode is None:
        return "is gone, its exit status is not known"
    if exitcode >= 0:
        hint = ""
        if exitcode == 1:
            hint = (
                " (see its traceback, which it printed; with start method spawn or forkserver, does the script "
                "keep its start-up code under `if __name__ == '__main__':`?)"
            )
        return f"ended with exit code {exitcode}{hint}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    hint = ""
    if -exitcode == signal.SIGKILL:
        hint = (
            " (out of memory? the kernel kills like this: see dmesg and the memory limit of the container, "
            "and try fewer workers or smaller batches)"
        )
    return f"was killed by {name}{hint}"
