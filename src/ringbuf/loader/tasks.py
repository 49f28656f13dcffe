"""The task ring, from both sides: the main process posts tasks, each for one worker or for whoever comes first.

A worker keeps the slot of its task until it has published the answer, and nobody takes from the dead but the main
process (the ring is a supervised one). So each task that was posted and is not answered lies in the ring: READY while
nobody has begun with it, READING in the name of the worker that has. Where it is not there and not answered
either, its worker has ended without dying (an exit runs Python's clean-up, which hands slots back) and has lost it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import weakref
from typing import Any, NamedTuple

from ringbuf._core import ANY, SLOTS_MAX, Lease, Ring
from ringbuf.errors import Closed, Empty, Full
from ringbuf.loader.course import Job
from ringbuf.loader.messages import fill
from ringbuf.loader.post import LOOK_S, Post, Stopped

__all__ = ["Inbox", "Order", "TaskBoard", "pack"]

SLOT_BYTES = 8192  # jobs that need more lie in the annex
FEWEST_SLOTS = 8

_HEAD = struct.Struct("<QQQQ")
IN_THE_SLOT = 0


class Order(NamedTuple):
    """What a worker is told to do."""

    number: int
    generation: int
    """The data ring to answer in, or a newer one."""
    epoch: int
    """When this changes, the worker starts over with a fresh fetcher."""
    job: Any
    """The job: as bytes where it is sent, a Job where it arrives."""


def pack(job: Job) -> bytes:
    """A job as it travels. Raises whatever an index raises that cannot be pickled."""
    return pickle.dumps(tuple(job), 5)


class TaskBoard:
    """The main process's side. Nothing here waits."""

    def __init__(self, outstanding: int):
        # Twice what can be out, since a worker whose data has ended still has to take away what it was sent.
        slots = min(max(2 * outstanding, FEWEST_SLOTS), SLOTS_MAX)
        self._ring = Ring.create(slots=slots, slot_bytes=SLOT_BYTES, redeliver=False, supervised=True)
        self._annex = Annex()

    def post(self, order: Order, worker_id: int | None) -> bool:
        """Give out a task, its job packed, to this worker or to any; False where there is no room for it now, or workers
        were told to stop."""
        try:
            claim = self._ring.claim(tag=order.number, target=ANY if worker_id is None else worker_id, timeout=0)
        except (Full, Closed):
            return False
        with claim:
            job, place, nbytes = order.job, 0, IN_THE_SLOT
            if _HEAD.size + len(job) > SLOT_BYTES:
                place, nbytes, job = self._annex.write(claim.index, job), len(job), b""
            fill(claim, _HEAD.pack(order.generation, order.epoch, place, nbytes) + job)
        return True

    def retract(self, number: int) -> bool:
        """Take a task back; False where its worker has begun with it."""
        try:
            self._ring.take(tag=number, timeout=0)
        except Empty:
            return False
        return True

    def recall(self, worker_id: int | None) -> list[int]:
        """Take back all that nobody has begun with: of this worker, or of all where tasks are for any. Returns the numbers."""
        numbers = []
        with contextlib.suppress(Empty, Closed):
            while True:
                numbers.append(self._ring.take(target=worker_id, timeout=0).tag)
        return numbers

    def holders(self) -> dict[int, int]:
        """Each task that lies in the ring, and the pid of the worker that has begun with it, or 0."""
        views = self._ring.look()
        return {view.tag: view.pid for view in views if view.state in ("ready", "reading")}

    def bury(self) -> None:
        """Let go of what the dead had in hand."""
        self._ring.recover()

    def finish(self) -> None:
        """There will be no further task; workers that wait for one stop."""
        if not self._ring.closed:
            self._ring.finish()

    def letters(self) -> list[tuple[list, int]]:
        """What an Inbox waits for, as (message, descriptor)."""
        return [(["tasks"], self._ring.fileno()), (["annex"], self._annex.fileno())]

    def close(self) -> None:
        self._ring.close()
        self._annex.close()


class Annex:
    """Memory without a name, for jobs that do not fit a slot. What belongs to a slot stays until the slot is claimed anew, and
    is only then written over: whoever has the slot in hand can read it."""

    def __init__(self) -> None:
        self._memory = os.memfd_create("ringbuf-tasks", os.MFD_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._memory)
        self.close.atexit = False
        self._taken: dict[int, tuple[int, int]] = {}  # by slot: where it begins, where it ends

    def write(self, slot: int, data: bytes) -> int:
        """Put down what belongs to this slot from now on; returns where."""
        self._taken.pop(slot, None)
        place = 0
        for begin, end in sorted(self._taken.values()):  # the first gap that is large enough
            if begin - place >= len(data):
                break
            place = end
        left = memoryview(data)
        while left:
            left = left[os.pwrite(self._memory, left, place + len(data) - len(left)) :]
        self._taken[slot] = place, place + len(data)
        return place

    def fileno(self) -> int:
        return self._memory


class Inbox:
    """A worker's side."""

    def __init__(self, post: Post, worker_id: int):
        self._post = post
        self._worker_id = worker_id
        self._lease: Lease | None = None  # of the task in hand
        _, (descriptor,) = post.wait_for(lambda message: message[0] == "tasks")
        try:
            self._ring = Ring.attach_fd(descriptor, supervised=True)
        finally:
            os.close(descriptor)
        _, (self._annex,) = post.wait_for(lambda message: message[0] == "annex")

    def next(self) -> Order:
        """The next task, however long it takes. It is in our hands until done(). Raises Stopped when there will be none."""
        while self._lease is None:
            try:
                self._lease = self._ring.take(timeout=LOOK_S, target=self._worker_id)
            except Empty:
                self._post.look()
            except Closed:
                raise Stopped from None
        data = bytes(self._lease)
        generation, epoch, place, nbytes = _HEAD.unpack_from(data)
        job = data[_HEAD.size :] if nbytes == IN_THE_SLOT else self._read(place, nbytes)
        return Order(self._lease.tag, generation, epoch, Job(*pickle.loads(job)))

    def done(self) -> None:
        """The task in hand is answered."""
        self._lease = None

    def _read(self, place: int, nbytes: int) -> bytes:
        data = bytearray()
        while len(data) < nbytes:
            data += os.pread(self._annex, nbytes - len(data), place + len(data))
        return bytes(data)
