"""Batches in memory that clients can look at: frames in slots of rings, kept by leases.

    Batch --> Parcel --> Lease --> slot of a ring of a loader, where its worker wrote it; or of the pool, where we did

A slot is free again when nobody has its parcel any more: not the server, not a client, not a message under way.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ringbuf import frame
from ringbuf._core import Lease, Ring
from ringbuf.errors import Full
from ringbuf.frame import FRAME_ROOM
from ringbuf.loader.rings import DataRings

__all__ = ["Memory", "Parcel", "Pool", "SegmentRecord"]

LOOK_S = 0.1  # between two looks at whether the server is to stop, while all slots are in use
PATIENCE = 5  # such looks, until there are more slots
FIRST_SLOT_BYTES = 64 << 10


class SegmentRecord:
    """The memory of a ring, as clients know it.

    number: its name in messages, from 1.
    """

    def __init__(self, number: int, ring: Ring):
        self.number = number
        self.nbytes = ring.total_bytes
        self.slots = ring.slots
        # Of our own, as a ring that is closed gives none, and clients may come to batches in it that wait still. Not a
        # duplicate of the ring's, with which its proof of life would outlive it.
        self._fd = os.open(f"/proc/self/fd/{ring.fileno()}", os.O_RDWR | os.O_CLOEXEC)
        self._end = weakref.finalize(self, os.close, self._fd)
        self._end.atexit = False

    def descriptor(self, writable: bool) -> int:
        """A new descriptor of the memory, the caller's to close; through one that is not writable nobody can map it so that it
        can be written to."""
        return os.open(f"/proc/self/fd/{self._fd}", (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)


class Memory:
    """All rings that batches lie in."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._by_ring: dict[int, tuple[Ring, SegmentRecord]] = {}

    def record(self, ring: Ring) -> SegmentRecord:
        known = self._by_ring.get(id(ring))
        if known is None:
            for key, (other, _) in list(self._by_ring.items()):
                if other.closed and not other.held:
                    del self._by_ring[key]
            known = self._by_ring[id(ring)] = ring, SegmentRecord(next(self._numbers), ring)
        return known[1]

    @property
    def numbers(self) -> set[int]:
        """Of those that are in use."""
        return {record.number for _, record in list(self._by_ring.values())}  # a list, as another thread adds some


class Parcel:
    """The frame of one batch.

    copied: whether the server copied it, and not its maker alone wrote it.
    packed: for who sends it elsewhere to keep what it made of it, for as long as the parcel lives.
    """

    __slots__ = ("copied", "lease", "nbytes", "offset", "packed", "segment")

    def __init__(self, lease: Lease, segment: SegmentRecord, *, copied: bool):
        self.lease, self.segment, self.copied = lease, segment, copied
        self.offset, self.nbytes = lease.offset, lease.nbytes
        self.packed: Any = None

    @property
    def scarce(self) -> bool:
        """Whether so many slots are in hands that who gets this one had better give it back soon."""
        ring = self.lease.ring
        return ring.held > ring.slots // 2

    def schema(self) -> bytes:
        """How its frame describes what it is made of."""
        return frame.schema_of(self.lease)


class Pool:
    """A ring of the server's own, for batches that are not in shared memory: they are copied once.

    slots: how many batches it holds at once, as a rule. When clients that do nothing, a stopped one say, have so many in
        hands that none is left for the others, there is another ring, and so on: what they may have in hands is bounded.
    stopped: whether there is no more use in waiting for a slot.
    waiting: gives what to be inside of while all slots are in hands.
    """

    def __init__(
        self,
        memory: Memory,
        slots: int,
        stopped: Callable[[], bool],
        waiting: Callable[[], AbstractContextManager] = contextlib.nullcontext,
    ):
        self._memory = memory
        self._slots = slots
        self._stopped = stopped
        self._waiting = waiting
        self._rings: DataRings | None = None
        self._claimed: Ring | None = None  # the one that the last slot is of

    def put(self, batch: Any) -> Parcel | None:
        """Copy a batch into a slot, as soon as one is free. None when there is no more use in it.

        Raises TypeError for what cannot be sent, naming the path; OSError when memory is short.
        """
        plan = frame.plan(batch)
        needed = max(plan.data_bytes, plan.frame_bytes - FRAME_ROOM)
        claim = self._claim(needed)
        if claim is None:
            return None
        with claim:
            claim.secure()
            claim.commit(plan.write(claim))
        return self._take(claim.tag)

    def begin(self, nbytes: int) -> Any:
        """A slot to write a frame of `nbytes` into; take() makes a parcel of it. None when there is no more use in it."""
        claim = self._claim(max(1, nbytes - FRAME_ROOM))
        if claim is not None:
            claim.secure()
        return claim

    def take(self, claim: Any, nbytes: int) -> Parcel:
        """The frame in a slot that begin() gave, before it gave another one."""
        claim.commit(nbytes)
        return self._take(claim.tag)

    @property
    def free(self) -> int:
        """How many frames of the present size there is room for."""
        if self._rings is None:
            return self._slots
        return self._slots - self._rings.held

    def close(self) -> None:
        if self._rings is not None:
            self._rings.close()

    def _claim(self, needed_bytes: int) -> Any:
        if self._rings is None:
            self._rings = DataRings(slots=self._slots, slot_bytes=max(FIRST_SLOT_BYTES, needed_bytes), max_bytes=None)
        elif self._rings.slot_bytes < needed_bytes:
            newest = self._rings.fitting(needed_bytes, above=self._rings.newest)
            self._rings.retire_below(newest)
        claim = self._try(0)
        if claim is None:
            with self._waiting():
                claim = self._wait_for_slot()
        return claim

    def _wait_for_slot(self) -> Any:
        looks = 0
        while not self._stopped():
            claim = self._try(LOOK_S)
            if claim is not None:
                return claim
            looks += 1
            if looks % PATIENCE == 0:
                self._rings.another()
        return None

    def _try(self, timeout: float) -> Any:
        if self._stopped():
            return None
        if self._rings.several:
            self._rings.retire_idle()
        for ring in reversed(self._rings.all()):
            with contextlib.suppress(Full):
                claim = ring.claim(timeout=timeout if ring is self._rings.current else 0)
                self._claimed = ring
                return claim
        return None

    def _take(self, tag: int) -> Parcel:
        """What was committed to the slot that was claimed last."""
        ring = self._claimed
        return Parcel(ring.take(timeout=0, tag=tag), self._memory.record(ring), copied=True)
