"""The first batch of a pass, made by several workers at once where tasks are for whoever is idle.

A consumer waits for that batch, and at that moment nobody has anything better to do. Its maker takes the samples in order, from
the first one; others make samples of it from the last one backwards, a few at a time, and leave them in a file without a name:

    | number, rows, rows of a portion, bytes of the job | records of the portions | job | ... | portion 1 | ... | portion 2 | ...
      0: there is no such batch                           0: not there, 1: left to its maker, else its bytes

Whoever is at a portion holds the lock of the byte with its number, which the kernel takes back from the dead. So where the lock
can be had, the portion is there if its record says so, and nobody's if not; records are written with the lock in hand: that a
portion is left to its maker before anybody else begins with it, that it is there after all of it was written. So what somebody
fails at, or dies of, no third one tries. What is not there the maker makes, and so it does where somebody takes too long. Nothing
depends on help: not what is made, and not what is said of samples that fail.

The maker ends it before its answer, and everybody else has a task in hand while he helps. So when all tasks of a pass are
answered nobody writes here any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any

import numpy as np

from ringbuf import frame
from ringbuf.errors import FrameError
from ringbuf.loader._course import Job, unpack
from ringbuf.loader.post import Post
from ringbuf.tensors import is_tensor

__all__ = ["Offer", "SharedBatch", "Table"]

MOST_PORTIONS = 64
MOST_BYTES = 256 << 20  # of all portions together: they are there twice until the batch is made
WORTH_S = 0.0005  # a portion that takes less is made sooner than handed over
LOOK_S = 0.0005  # between two looks at a portion that somebody is at
PATIENCE_S = 1.0  # with him, or ...
PATIENCE = 8  # ... so many times as long as a portion of one's own took

_HEAD = struct.Struct("<QQQQ")
_RECORD = struct.Struct("<Q")
NOT_THERE, LEFT_TO_MAKER = 0, 1
JOB = _HEAD.size + MOST_PORTIONS * _RECORD.size
STRIDE = 1 << 32  # from one portion to the next; what lies between takes no memory


class Offer:
    """The main process's side."""

    def __init__(self) -> None:
        self._memory = os.memfd_create("ringbuf-shared", os.MFD_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._memory)
        self.close.atexit = False

    def make(self, number: int, index: Any, job: bytes) -> None:
        """Have whoever is idle help with this task, instead of one before, if its batch can be divided."""
        os.ftruncate(self._memory, 0)
        rows = len(index) if type(index) is list else 0
        if rows < 2:
            return
        body = bytes(JOB - _HEAD.size) + job
        with contextlib.suppress(OSError):  # short of memory: it has one maker then
            if os.pwrite(self._memory, body, _HEAD.size) == len(body):
                os.pwrite(self._memory, _HEAD.pack(number + 1, rows, -(-rows // MOST_PORTIONS), len(job)), 0)

    def fileno(self) -> int:
        return self._memory


class Table:
    """A worker's side; without memory there is never anything to share."""

    def __init__(self, post: Post):
        _, descriptors = post.wait_for(lambda message: message[0] == "shared")
        self._memory = descriptors[0] if descriptors else None
        self._post = post

    def look(self) -> SharedBatch | None:
        """The batch that is to be made together, if there is one."""
        if self._memory is None:
            return None
        head = os.pread(self._memory, _HEAD.size, 0)
        if len(head) < _HEAD.size:
            return None
        number, rows, each, nbytes = _HEAD.unpack(head)
        job = os.pread(self._memory, nbytes, JOB)
        # Asked once more: it may have been made meanwhile, and who was too late have left zeros where the job was.
        if not number or os.pread(self._memory, _HEAD.size, 0) != head:
            return None
        return SharedBatch(self._memory, head, number - 1, unpack(job), rows=rows, each=each, look_up=self._post.look)


class SharedBatch:
    """One batch, for its maker and for those who help with it.

    number: of its task.
    each: rows in a portion.
    look_up: called now and then; may raise to end it.
    """

    def __init__(
        self, memory: int, head: bytes, number: int, job: Job, *, rows: int, each: int, look_up: Callable[[], None]
    ):
        self.number = number
        self._memory = memory
        self._head = head
        self._job = job
        self._rows = rows
        self._each = each
        self._look_up = look_up
        self._portion = -1  # that its maker is at
        self._began: float | None = None  # with that
        self._longest_s = 0.0
        self._given: list | None = None  # what somebody else has made of it

    # ---- for its maker

    def sample(self, place: int) -> tuple[Any] | None:
        """The sample of a row, if somebody else has made it; the rows are asked for in order. It is plain, and the caller's."""
        portion = place // self._each
        if portion != self._portion:
            if self._began is not None and self._given is None:
                self._longest_s = max(self._longest_s, time.monotonic() - self._began)
            self._portion, self._given = portion, self._fetch(portion)
            self._began = time.monotonic()
        return None if self._given is None else (self._given[place - portion * self._each],)

    def over(self) -> None:
        """The batch is made, or will not be."""
        self._given = None
        if self._stands():  # a batch that is refused for its size counts as answered, and the next pass may have begun
            os.ftruncate(self._memory, 0)
        with contextlib.suppress(OSError):
            fcntl.lockf(self._memory, fcntl.LOCK_UN)

    def _fetch(self, portion: int) -> list | None:
        if portion == 0:  # nobody else begins with the first one
            return None
        until = time.monotonic() + max(PATIENCE_S, PATIENCE * self._longest_s)
        try:
            while not self._lock(portion):
                if time.monotonic() > until:  # it may be stopped
                    return None
                time.sleep(LOOK_S)
                self._look_up()
            nbytes = self._record(portion)
            if nbytes in (NOT_THERE, LEFT_TO_MAKER):
                return None
            # Not a map of the file: memory that somebody may cut off is nothing to have arrays in.
            content = np.empty(nbytes, np.uint8)
            if os.preadv(self._memory, [content], portion * STRIDE) < nbytes:
                return None
            samples = frame.read(content, imports=True)
        except (OSError, MemoryError, FrameError):
            return None
        return samples if len(samples) == len(self._places(portion)) else None

    # ---- for others

    def help(self, make: Callable[[Job, range], Iterable]) -> None:
        """Make what nobody has begun with, as long as there is something.

        make: gives the samples at some places of the batch of a job. What it raises is left to the maker of the batch, who
            will meet with it in turn.
        """
        for portion in range((self._rows - 1) // self._each, 0, -1):
            try:
                if not self._lock(portion):
                    continue
                try:
                    if not self._stands():  # asked with the lock in hand, which its maker gives up last
                        return
                    if self._record(portion) == NOT_THERE and not self._make(portion, make):
                        return
                finally:
                    fcntl.lockf(self._memory, fcntl.LOCK_UN, 1, portion)
            except OSError:  # no locks, or no memory, in this sandbox
                return
            self._look_up()

    def _make(self, portion: int, make: Callable[[Job, range], Iterable]) -> bool:
        """Make a portion. Returns whether another one is worth it."""
        self._note(portion, LEFT_TO_MAKER)
        began = time.monotonic()
        try:
            # As they come: the dataset may hand out the same memory again.
            samples = [plain(sample, copy=self._each > 1) for sample in make(self._job, self._places(portion))]
            took_s = time.monotonic() - began
            return self._write(portion, samples) and took_s >= WORTH_S
        except Exception:  # told by whoever makes the batch, or nobody's business
            return False

    def _write(self, portion: int, samples: list) -> bool:
        plan = frame.plan(samples)
        if plan.frame_bytes * -(-self._rows // self._each) > MOST_BYTES:
            return False
        content = np.empty(plan.frame_bytes, np.uint8)
        nbytes = plan.write(content)
        if os.pwrite(self._memory, content[:nbytes], portion * STRIDE) < nbytes:
            return False
        self._note(portion, nbytes)
        if not self._stands():
            os.ftruncate(self._memory, 0)  # too late
        return True

    # ---- for both

    def _places(self, portion: int) -> range:
        first = portion * self._each
        return range(first, min(first + self._each, self._rows))

    def _stands(self) -> bool:
        return os.pread(self._memory, len(self._head), 0) == self._head

    def _lock(self, portion: int) -> bool:
        try:
            fcntl.lockf(self._memory, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, portion)
        except BlockingIOError:  # somebody has it
            return False
        return True

    def _record(self, portion: int) -> int:
        record = os.pread(self._memory, _RECORD.size, _HEAD.size + portion * _RECORD.size)
        return _RECORD.unpack(record)[0] if len(record) == _RECORD.size else NOT_THERE

    def _note(self, portion: int, record: int) -> None:
        os.pwrite(self._memory, _RECORD.pack(record), _HEAD.size + portion * _RECORD.size)


class Unusual(Exception):
    """A sample that might arrive as something else than it is."""


def plain(sample: Any, *, copy: bool) -> Any:
    """A sample that a frame carries exactly as it is; Unusual for any other.

    copy: whether its arrays are copied.
    """
    kind = type(sample)
    if kind is np.ndarray:
        if not (sample.flags.c_contiguous and sample.nbytes and _usual(sample.dtype)):
            raise Unusual
        return sample.copy() if copy else sample
    if kind in (int, float, bool, str, bytes) or (isinstance(sample, np.generic) and _usual(sample.dtype)):
        return sample
    if kind is dict or kind is MappingProxyType:
        if not all(type(key) is str for key in sample):
            raise Unusual
        return {key: plain(value, copy=copy) for key, value in sample.items()}
    if kind is list or kind is tuple:
        return kind([plain(value, copy=copy) for value in sample])
    if is_tensor(sample) and kind is sys.modules["torch"].Tensor and _dense(sample):
        return sample.clone() if copy else sample
    raise Unusual


def _usual(dtype: np.dtype) -> bool:
    return dtype.kind in "biufc" and dtype.isnative and dtype.metadata is None


def _dense(tensor: Any) -> bool:
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_quantized or tensor.requires_grad:
        return False
    return bool(tensor.is_contiguous() and tensor.numel() and not (tensor.is_neg() or tensor.is_conj()))
