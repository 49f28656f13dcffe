"""The data ring of a loader in the main process, through all its sizes.

A ring cannot grow; a *generation* with larger slots takes its place, and the old one goes when nothing can arrive
in it any more. What the consumer holds of an old generation stays valid for as long as it is held.
"""

from __future__ import annotations

import os
import threading

from ringbuf._core import Ring
from ringbuf.errors import BatchTooLarge, Empty
from ringbuf.frame import FRAME_ROOM

__all__ = ["DataRings", "RingPool", "first_slot_bytes"]

FIRST_SLOT_BYTES = 64 << 10  # before anything is known about the batches; with many slots, less:
FIRST_RING_BYTES = 16 << 20
PAGE = 4096
HEADROOM = 8  # an eighth more than the batch that asked, from the second time on: most loaders' batches are of one size


class DataRings:
    """One data ring and its successors.

    slots: of each generation.
    slot_bytes: of the first one.
    max_bytes: what the slots of one generation may take together; None for as much as there is.
    newest, current: the number of the newest generation, and its ring.
    several: whether an older generation is still in use.
    """

    def __init__(self, *, slots: int, slot_bytes: int, max_bytes: int | None):
        self.slots = slots
        self.max_bytes = max_bytes
        self.next_task = 0  # numbers are never used twice on the same ring
        self._slot_bytes: dict[int, int] = {}
        self._rings: dict[int, Ring] = {}
        self.newest = -1
        self._add(slot_bytes)

    @property
    def slot_bytes(self) -> int:
        return self._slot_bytes[self.newest]

    @property
    def held(self) -> int:
        """Slots of the newest generation that the consumer still looks at."""
        return self.current.held

    def ring(self, generation: int) -> Ring:
        return self._rings[generation]

    def all(self) -> list[Ring]:
        """Every generation that is in use, the oldest first."""
        return [self._rings[generation] for generation in sorted(self._rings)]

    def bury(self) -> None:
        """Let go of what the dead had in hand."""
        for ring in self._rings.values():
            ring.recover()

    def fitting(self, needed_bytes: int, above: int) -> int:
        """The first generation above `above` whose slots are large enough; made if there is none.

        Raises BatchTooLarge above max_bytes, OSError when memory is short.
        """
        known = self.known_fitting(needed_bytes, above)
        if known is not None:
            return known
        headroom = needed_bytes // HEADROOM if self.newest > 0 else 0
        wanted = _whole_pages(needed_bytes + headroom + FRAME_ROOM) - FRAME_ROOM
        if self.max_bytes is not None:
            most = self.max_bytes // self.slots
            if needed_bytes > most:
                raise BatchTooLarge(
                    f"{needed_bytes} bytes are needed for it, and with max_bytes={self.max_bytes} each of the "
                    f"{self.slots} slots can have {most}; raise max_bytes or make smaller batches",
                    needed_bytes=needed_bytes,
                    available_bytes=most,
                )
            wanted = min(wanted, most)
        return self._add(wanted)

    def known_fitting(self, needed_bytes: int, above: int) -> int | None:
        """The first generation above `above` whose slots are large enough, if there is one."""
        newer = range(above + 1, self.newest + 1)
        return next((generation for generation in newer if self._slot_bytes[generation] >= needed_bytes), None)

    def retire_below(self, generation: int) -> None:
        """Let go of older generations: nothing can arrive in them any more.

        A worker whose next answer was to come in some generation may still take any newer one.
        """
        for old in [known for known in self._rings if known < min(generation, self.newest)]:
            self._rings.pop(old).close()
        self.several = len(self._rings) > 1

    def another(self) -> None:
        """A further ring of the newest size, besides those that there are."""
        self._add(self.slot_bytes)

    def retire_idle(self) -> None:
        """Let go of rings but the current one of which nothing is held."""
        for old in [known for known, ring in self._rings.items() if known != self.newest and not ring.held]:
            self._rings.pop(old).close()
        self.several = len(self._rings) > 1

    def drain(self) -> bool:
        """Throw away what nobody will ask for; the workers are gone. Returns whether every slot is accounted for."""
        self.retire_below(self.newest)
        ring = self._rings[self.newest]
        ring.recover()
        try:
            while True:
                ring.take(timeout=0)
        except Empty:
            return ring.stats()["free"] + ring.held == self.slots

    def close(self) -> None:
        for ring in self._rings.values():
            ring.close()

    def _add(self, slot_bytes: int) -> int:
        # A pass waits while this is made, and most of its slots are needed later, if at all: workers secure them then.
        ring = Ring.create(slots=self.slots, slot_bytes=slot_bytes + FRAME_ROOM, unsecured=True)
        self.newest += 1
        self.current = self._rings[self.newest] = ring
        self.several = len(self._rings) > 1
        self._slot_bytes[self.newest] = slot_bytes
        return self.newest


class RingPool:
    """The data ring that a loader keeps warm from one pass to the next. A second iterator at the same time gets
    another one."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()  # re-entrant: a collection in here may end an iterator, which gives back
        self._idle: DataRings | None = None
        self._closed = False

    def borrow(self, *, slots: int, slot_bytes: int, max_bytes: int | None) -> DataRings:
        """A ring nobody uses, with so many slots of at least this size. One that is half full of batches that the
        consumer kept is left to them."""
        self._begin_anew_after_fork()
        with self._lock:
            rings, self._idle = self._idle, None
        if rings is not None:
            suits = rings.slots == slots and rings.slot_bytes >= slot_bytes and rings.max_bytes == max_bytes
            if suits and 2 * rings.held <= slots:
                return rings
            rings.close()
        return DataRings(slots=slots, slot_bytes=slot_bytes, max_bytes=max_bytes)

    def give_back(self, rings: DataRings) -> None:
        """Keep it for the next iterator; its workers are gone."""
        sound = rings.drain()
        with self._lock:
            spare, self._idle = (self._idle, rings) if sound and not self._closed else (rings, self._idle)
        if spare is not None:
            spare.close()

    def close(self) -> None:
        self.leave()
        self._closed = True
        self.leave()

    def leave(self) -> None:
        """Let go of the ring that is kept warm: the next iterator gets a new one."""
        self._begin_anew_after_fork()
        with self._lock:
            rings, self._idle = self._idle, None
        if rings is not None:
            rings.close()

    def _begin_anew_after_fork(self) -> None:
        if os.getpid() != self._pid:
            RingPool.__init__(self)  # the idle ring is the parent's, and the lock may be held for ever


def first_slot_bytes(slots: int) -> int:
    """Room in a slot before anything is known about the batches."""
    return max(min(FIRST_SLOT_BYTES, FIRST_RING_BYTES // slots // PAGE * PAGE), 2 * PAGE) - FRAME_ROOM


def _whole_pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE
