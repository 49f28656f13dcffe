"""The task ring, from both sides: the main process posts tasks, each addressed to one worker."""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any, NamedTuple

from ringbuf._core import SLOTS_MAX, Ring
from ringbuf.errors import Closed, Empty, Full
from ringbuf.loader.channel import Channel, shared_memory, take_memory
from ringbuf.loader.course import Job
from ringbuf.loader.messages import fill
from ringbuf.loader.post import LOOK_S, Post, Stopped

__all__ = ["Inbox", "Order", "TaskBoard", "pack"]

SLOT_BYTES = 8192  # jobs that need more travel in memory of their own
FEWEST_SLOTS = 8
MOST_ELSEWHERE = 64  # oversized tasks that are out: a channel has room for about three times as many messages

_HEAD = struct.Struct("<QQ?")


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


def _unpack(data: Any) -> Job:
    return Job(*pickle.loads(data))


class TaskBoard:
    """The main process's side. Nothing here waits."""

    def __init__(self, outstanding: int):
        # Twice what can be out, since a worker whose data has ended still has to take away what it was sent.
        slots = min(max(2 * outstanding, FEWEST_SLOTS), SLOTS_MAX)
        self._ring = Ring.create(slots=slots, slot_bytes=SLOT_BYTES)
        self._elsewhere: set[int] = set()  # tasks that are out and did not fit a slot

    def post(self, order: Order, worker_id: int, channel: Channel) -> bool:
        """Give out a task, its job packed; False where there is no room for it now, or workers were told to stop."""
        job = order.job
        elsewhere = _HEAD.size + len(job) > SLOT_BYTES
        if elsewhere and len(self._elsewhere) >= MOST_ELSEWHERE:
            return False
        try:
            claim = self._ring.claim(tag=order.number, target=worker_id, timeout=0)
        except (Full, Closed):
            return False
        with claim:
            if elsewhere:
                memory = shared_memory(job, "ringbuf-task")
                try:
                    if not channel.send("task", order.number, descriptor=memory):
                        return False
                finally:
                    os.close(memory)
                job = b""
                self._elsewhere.add(order.number)
            fill(claim, _HEAD.pack(order.generation, order.epoch, elsewhere) + job)
        return True

    def retract(self, number: int) -> bool:
        """Take a task back; False where its worker has begun with it."""
        try:
            self._ring.take(tag=number, timeout=0)
        except Empty:
            return False
        return True

    def settled(self, number: int) -> None:
        """A task that was posted is answered, or will never be."""
        self._elsewhere.discard(number)

    def finish(self) -> None:
        """There will be no further task; workers that wait for one stop."""
        if not self._ring.closed:
            self._ring.finish()

    def fileno(self) -> int:
        return self._ring.fileno()

    def close(self) -> None:
        self._ring.close()


class Inbox:
    """A worker's side."""

    def __init__(self, post: Post, worker_id: int):
        self._post = post
        self._worker_id = worker_id
        _, (descriptor,) = post.wait_for(lambda message: message[0] == "tasks")
        try:
            self._ring = Ring.attach_fd(descriptor)
        finally:
            os.close(descriptor)

    def next(self) -> Order:
        """The next task, however long it takes. Raises Stopped when there will be none."""
        while True:
            try:
                lease = self._ring.take(timeout=LOOK_S, target=self._worker_id)
            except Empty:
                self._post.look()
            except Closed:
                raise Stopped from None
            else:
                break
        number, view = lease.tag, memoryview(lease)
        generation, epoch, elsewhere = _HEAD.unpack_from(view)
        job = self._fetch(number) if elsewhere else _unpack(view[_HEAD.size :])
        return Order(number, generation, epoch, job)

    def _fetch(self, number: int) -> Job:
        _, descriptors = self._post.wait_for(lambda message: message == ["task", number])
        # Earlier ones were taken back before we came to them.
        self._post.discard(lambda message: message[0] == "task" and message[1] < number)
        return _unpack(take_memory(descriptors))
