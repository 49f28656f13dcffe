"""The task rings, from both sides: the main process posts tasks, each for one worker or for whoever comes first.

A post wakes everybody who waits at its ring. So a worker whose tasks are its own has a ring of its own, or with many workers
shares one with a few others; tasks that are for anybody lie in one ring.

A worker keeps the slot of its task until it has published the answer, and nobody takes from the dead but the main
process (the rings are supervised ones). So each task that was posted and is not answered lies in a ring: READY while
nobody has begun with it, READING in the name of the worker that has. Where it is not there and not answered
either, its worker has ended without dying (an exit runs Python's clean-up, which hands slots back) and has lost it.
"""

from __future__ import annotations

import contextlib
import os
import struct
import weakref
from typing import NamedTuple

from ringbuf._core import ANY, SLOTS_MAX, Lease, Ring
from ringbuf.errors import Closed, Empty, Full
from ringbuf.loader._course import Job, unpack
from ringbuf.loader.messages import fill
from ringbuf.loader.post import LOOK_S, Post, Stopped

__all__ = ["Inbox", "Order", "TaskBoard"]

SLOT_BYTES = 8192  # jobs that need more lie in the annex
FEWEST_SLOTS = 8
MOST_RINGS = 16  # each takes two descriptors and some memory

_HEAD = struct.Struct("<QQQQ")
IN_THE_SLOT = 0


class Order(NamedTuple):
    """What a worker is told to do."""

    number: int
    generation: int
    """The data ring to answer in, or a newer one."""
    epoch: int
    """When this changes, the worker starts over with a fresh fetcher."""
    job: bytes | Job
    """The job: packed where it is sent."""


class TaskBoard:
    """The main process's side. Nothing here waits.

    outstanding: how many tasks may be out.
    workers: by how many workers; None where tasks are for any of them.
    """

    def __init__(self, outstanding: int, workers: int | None):
        rings = 1 if workers is None else min(workers, MOST_RINGS)
        # Twice a ring's share of what can be out, since a worker whose data has ended still has to take away what it was sent.
        slots = min(max(2 * -(-outstanding // rings), FEWEST_SLOTS), SLOTS_MAX)
        self._rings = [
            Ring.create(slots=slots, slot_bytes=SLOT_BYTES, redeliver=False, supervised=True) for _ in range(rings)
        ]
        self._annex = Annex()

    def post(self, order: Order, worker_id: int | None) -> bool:
        """Give out a task, its job packed, to this worker or to any; False where there is no room for it now, or workers
        were told to stop."""
        place = 0 if worker_id is None else worker_id % len(self._rings)
        target = ANY if worker_id is None else worker_id
        number, generation, epoch, job = order
        try:
            if _HEAD.size + len(job) <= SLOT_BYTES:
                return self._rings[place].send(_HEAD.pack(generation, epoch, 0, IN_THE_SLOT) + job, tag=number, target=target)
            with self._rings[place].claim(tag=number, target=target, timeout=0) as claim:
                fill(claim, _HEAD.pack(generation, epoch, self._annex.write((place, claim.index), job), len(job)))
        except (Full, Closed):
            return False
        return True

    def retract(self, number: int, worker_id: int | None) -> bool:
        """Take a task back that was posted for this worker, or for any; False where it is begun with."""
        return self._ring_of(worker_id).take_into([], tag=number, timeout=0)

    def recall(self, worker_id: int | None) -> list[int]:
        """Take back all that nobody has begun with: of this worker, or of all where tasks are for any. Returns the numbers."""
        box: list[Lease] = []
        with contextlib.suppress(Closed):
            while self._ring_of(worker_id).take_into(box, target=worker_id, timeout=0):
                pass
        return [lease.tag for lease in box]

    def holders(self) -> dict[int, int]:
        """Each task that lies in a ring, and the pid of the worker that has begun with it, or 0."""
        views = [view for ring in self._rings for view in ring.look()]
        return {view.tag: view.pid for view in views if view.state in ("ready", "reading")}

    def bury(self) -> None:
        """Let go of what the dead had in hand."""
        for ring in self._rings:
            ring.recover()

    def finish(self) -> None:
        """There will be no further task; workers that wait for one stop."""
        for ring in self._rings:
            if not ring.closed:
                ring.finish()

    def letters(self, worker_id: int) -> list[tuple[list, int]]:
        """What this worker's Inbox waits for, as (message, descriptor)."""
        return [(["tasks"], self._ring_of(worker_id).fileno()), (["annex"], self._annex.fileno())]

    def close(self) -> None:
        for ring in self._rings:
            ring.close()
        self._annex.close()

    def _ring_of(self, worker_id: int | None) -> Ring:
        return self._rings[0 if worker_id is None else worker_id % len(self._rings)]


class Annex:
    """Memory without a name, for jobs that do not fit a slot. What belongs to a slot stays until the slot is claimed anew, and
    is only then written over: whoever has the slot in hand can read it."""

    def __init__(self) -> None:
        self._memory = os.memfd_create("ringbuf-tasks", os.MFD_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._memory)
        self.close.atexit = False
        self._taken: dict[tuple[int, int], tuple[int, int]] = {}  # by slot: where it begins, where it ends

    def write(self, slot: tuple[int, int], data: bytes) -> int:
        """Put down what belongs to this slot, of a ring and with an index, from now on; returns where."""
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
        return Order(self._lease.tag, generation, epoch, unpack(job))

    def done(self) -> None:
        """The task in hand is answered."""
        self._lease = None

    def _read(self, place: int, nbytes: int) -> bytes:
        data = bytearray()
        while len(data) < nbytes:
            data += os.pread(self._annex, nbytes - len(data), place + len(data))
        return bytes(data)
