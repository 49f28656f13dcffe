"""RingBuffer: a ring of slots that hold whole trees of arrays.

`put` and `reserve` fill a slot, `get` gives back the same tree as views of it. What a slot holds is a frame
(frame.py); how slots change hands is the ring's business (_core.pyx). `put`, `get` and their like are in _messages.pyx.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from ringbuf import checks, frame
from ringbuf._core import ANY, Claim, Ring, generation
from ringbuf._messages import NOTHING, Messages
from ringbuf.errors import Closed, PeerTableFull
from ringbuf.frame import FRAME_ROOM

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ringbuf.waiting import Waits

SLOT_BYTES_MAX = 1 << 62
LOOK_AGAIN_S = 0.01  # between two looks for a name that is not there yet

_UNSET = object()


@dataclass(frozen=True, slots=True)
class Stats:
    """A ring's account. Counters run since its creation, over all processes."""

    published: int
    """Messages committed."""
    consumed: int
    """Messages handed back by a consumer; in broadcast once for each reader."""
    dropped: int
    """Overwritten, dropped together with their consumer, or broadcast to nobody."""
    lost: int
    """Claimed by producers that died before they published; `RingBuffer.lost()` names them."""
    waits: int
    """Times that a call went to sleep."""
    wait_ns: int
    """Nanoseconds asleep."""
    free: int
    """Slots that are free now."""
    writing: int
    """Slots that a producer is filling now."""
    ready: int
    """Slots with a message that nobody has taken yet."""
    reading: int
    """Slots that somebody has views of."""
    participants: int
    """Processes attached."""
    readers: int
    """Readers of a broadcast ring."""
    finished: bool
    """Whether finish() was called, by whomever."""


class Lost(NamedTuple):
    """A message whose producer died while it wrote it."""

    tag: int | None
    """Its tag, or None when the producer died before it could write even that."""
    pid: int
    """The producer, as numbered in its own pid namespace."""


class RingBuffer(Messages):
    """A ring of `slots` slots in shared memory, each for one tree of arrays of up to `slot_bytes` bytes in all.

    slots: messages that there may be at a time, unread and looked at; 1 to 65536.
    slot_bytes: bytes that the arrays of a message may have together.
    name: None makes an anonymous ring, which child processes inherit or receive pickled; it leaves nothing behind.
        A named ring can be reached by any process of the same user with `attach(name)`.
    mode: "queue" gives each message to one consumer, "broadcast" to every reader (16 at most).
    full: what `put` does when no slot is free: "block" waits, "overwrite" gives up the oldest unread message.
    hugepages: None asks for them for slots of 16 MiB and more, True for all (each slot is rounded up to 2 MiB), False
        for none. A matter of speed alone.
    redeliver: whether messages that a dead consumer held go to another one (True), with what it had written into them, or
        are dropped.

    Keeping what `get` returns is always safe: a slot is free again when the last view of it is gone.
    Raises OSError, with the bytes that are needed and free, when memory is short or the name is in use.
    """

    _waits: dict[tuple[int, bool], Waits]

    def __init__(
        self,
        slots: int = 8,
        slot_bytes: int = 1 << 20,
        *,
        name: str | None = None,
        mode: str = "queue",
        full: str = "block",
        hugepages: bool | None = None,
        redeliver: bool = True,
    ) -> None:
        slot_bytes = checks.whole("slot_bytes", slot_bytes, at_least=1, at_most=SLOT_BYTES_MAX)
        ring = Ring.create(
            slots=slots,
            slot_bytes=slot_bytes + FRAME_ROOM,
            name=name,
            mode=mode,
            full=full,
            hugepages=hugepages,
            redeliver=redeliver,
        )
        self._open(ring)

    def _open(self, ring: Ring) -> None:
        super()._open(ring)
        self._waits = {}

    @classmethod
    def _attached(cls, ring: Ring) -> RingBuffer:
        """Wrap a ring that another handle created; in broadcast it is a reader from now on."""
        self = cls.__new__(cls)
        self._open(ring)
        if ring.mode == "broadcast":
            try:
                ring.subscribe()
                self._reads_unasked = True
            except PeerTableFull:
                pass  # it may want to write; if not, its first get() says that there are readers enough
        return self

    # ---- producers

    def reserve(self, *, timeout: float | None = None, tag: int = 0, target: int = ANY) -> Slot:
        """Claim a slot and write in place: `with ring.reserve() as slot:`.

        The slot is published when the block ends, and goes back unpublished when the block raises.
        The arguments and errors are those of `put`; the wait comes on entering the block.
        """
        return Slot(self, timeout=timeout, tag=tag, target=target)

    def finish(self) -> None:
        """Publish nothing more. Consumers get what is there, then Closed; iteration over the ring ends."""
        self._core.finish()

    # ---- consumers

    def __iter__(self) -> Iterator[Any]:
        """Yield messages until the ring is finished and drained. Raises Closed when this handle is closed."""
        while True:
            try:
                yield self.get()  # without a name of our own on it, which would keep its slot
            except Closed:
                if self.closed:
                    raise
                return

    def subscribe(self) -> None:
        """Broadcast: receive every message that is published from now on."""
        self._core.subscribe()
        self._reads_unasked = False

    def unsubscribe(self) -> None:
        """Broadcast: receive nothing more, and give up what was not read yet. What is held stays valid."""
        self._core.unsubscribe()
        self._reads_unasked = False

    # ---- in an event loop

    async def aget(self, *, timeout: float | None = None, tag: int | None = None, target: int | None = None) -> Any:
        """As get(), for asyncio: other tasks run while it waits. A message that is there already is returned at once.

        A task that is cancelled meanwhile has taken nothing: the message goes to whoever asks next. Any number of tasks may wait,
        in several loops; those that ask for the same get messages in the order in which they asked. One thread per handle
        sleeps for all of them, from the first wait that finds nothing until close().
        """
        message = self._get_now(timeout, tag, target)
        if message is NOTHING and timeout != 0:
            waits = self._waits_for(to_claim=False)
            message = await waits.until(lambda: self._get_now(timeout, tag, target), (tag, target), timeout)
        if message is NOTHING:
            self._say_empty(timeout)
        return message

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        """As iteration over the ring, for `async for`."""
        try:
            return await self.aget()
        except Closed:
            if self.closed:
                raise
            raise StopAsyncIteration from None

    async def aput(self, tree: Any, *, timeout: float | None = None, tag: int = 0, target: int = ANY) -> None:
        """As put(), for asyncio: other tasks run while the ring is full. They must leave the arrays alone until then.

        A task that is cancelled meanwhile has published nothing.
        """
        plan = self._planned(tree, timeout, tag, target)
        done = self._put_now(plan, tag, target)
        if done is NOTHING and timeout != 0:
            waits = self._waits_for(to_claim=True)
            done = await waits.until(lambda: self._put_now(plan, tag, target), (None, None), timeout)
        if done is NOTHING:
            self._say_full(timeout)

    def areserve(self, *, timeout: float | None = None, tag: int = 0, target: int = ANY) -> AsyncSlot:
        """As reserve(), for asyncio: `async with ring.areserve() as slot:`."""
        return AsyncSlot(self, timeout=timeout, tag=tag, target=target)

    async def _aclaim(self, *, timeout: float | None, tag: int, target: int) -> Claim:
        def attempt() -> Any:
            claim = self._core.try_claim(tag=tag, target=target)
            return NOTHING if claim is None else claim

        found = attempt()
        if found is NOTHING and timeout != 0:
            found = await self._waits_for(to_claim=True).until(attempt, (None, None), timeout)
        if found is NOTHING:
            self._say_full(timeout)
        claim: Claim = found
        return claim

    def _waits_for(self, *, to_claim: bool) -> Waits:
        key = (generation(), to_claim)  # a parent's stay behind in its forked children, unused
        found = self._waits.get(key)
        if found is None:
            from ringbuf.waiting import Waits  # imports asyncio

            made = Waits(self, self._core, to_claim=to_claim)
            found = self._waits.setdefault(key, made)
            if found is not made:  # by another thread, this moment
                made.stop()
        return found

    # ---- looking at it

    def __len__(self) -> int:
        """Messages waiting to be read."""
        return self._core.ready()

    def __bool__(self) -> bool:
        """True: an empty ring is still a ring."""
        return True

    @property
    def slots(self) -> int:
        """How many there are."""
        return self._core.slots

    @property
    def name(self) -> str | None:
        """None for an anonymous ring."""
        return self._core.name

    @property
    def mode(self) -> str:
        """"queue" or "broadcast"."""
        return self._core.mode

    @property
    def closed(self) -> bool:
        """True after close() on this handle."""
        return self._core.closed

    @property
    def lost_tags(self) -> list[int | None]:
        """Tags of the messages that were lost with their producers, newest first; the last 64."""
        return [loss.tag for loss in self.lost()]

    def lost(self) -> list[Lost]:
        """Messages that were lost with their producers, newest first; the last 64."""
        return [Lost(*loss) for loss in self._core.lost()]

    def stats(self) -> Stats:
        """The ring's account, over all processes."""
        return Stats(**self._core.stats())

    def recover(self) -> int:
        """Return the slots of dead processes now, and say how many came back. Whoever waits does so by itself."""
        return self._core.recover()

    def __repr__(self) -> str:
        name = "anonymous" if self.name is None else repr(self.name)
        state = " closed" if self.closed else ""
        return f"<RingBuffer {name} {self.mode} {self.slots} x {self.slot_bytes} bytes{state}>"

    # ---- its end, and other processes

    def close(self) -> None:
        """Leave the ring. Waiting threads get Closed; views that are still held stay valid. Idempotent."""
        self._core.close()
        for waits in self._waits.values():
            waits.stop()

    def __enter__(self) -> RingBuffer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._core.closed:
            raise Closed("a closed ring cannot be sent to another process")
        if self.name is not None:
            return attach, (self.name, 0)
        from multiprocessing import reduction

        return _from_descriptor, (reduction.DupFd(self._core.fileno()),)


class Slot:
    """A slot being written, inside `with ring.reserve() as slot:`."""

    __slots__ = ("_arrays", "_claim", "_ring", "_wish", "_writer", "value")

    value: Any
    """What to publish. Arrays from `empty` are in place already, others are copied."""

    def __init__(self, ring: RingBuffer, **wish: Any) -> None:
        self._ring = ring
        self._wish = wish
        self._claim: Claim | None = None
        self._writer: frame.Writer | None = None
        self._arrays: list[np.ndarray] = []

    def __enter__(self) -> Slot:
        ring = self._ring
        if self._claim is not None:
            raise RuntimeError("this slot is open already; call reserve() again for another one")
        ring._write_only(**self._wish)
        self._open(ring._core.claim(**self._wish))
        return self

    def _open(self, claim: Claim) -> None:
        self.value = _UNSET
        self._claim = claim
        self._writer = frame.Writer(claim, data_limit=self._ring.slot_bytes)

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = float) -> np.ndarray:
        """A new array inside the slot, its contents whatever was there.

        shape, dtype: as of `numpy.empty`.
        It is writable until the block ends, and then the consumer's; do not keep it. Raises BatchTooLarge when it does not fit
        beside those that there are; TypeError for a dtype that cannot travel.
        """
        if self._writer is None:
            raise RuntimeError("this slot is not open: call empty() inside `with ring.reserve() as slot:`")
        array = self._writer.empty(shape, dtype)
        self._arrays.append(array)
        return array

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        claim, writer, arrays = self._claim, self._writer, self._arrays
        self._claim = self._writer = None
        self._arrays = []
        assert claim is not None and writer is not None  # __enter__ set both
        with claim:
            try:
                if kind is not None:
                    return
                if self.value is _UNSET:
                    raise ValueError("nothing to publish: the block ended without setting slot.value")
                nbytes = writer.finish(self.value)
            finally:
                for array in arrays:
                    array.flags.writeable = False  # the slot is about to be somebody else's
            claim.commit(nbytes)


class AsyncSlot:
    """What `async with ring.areserve() as slot:` waits for a Slot with."""

    __slots__ = ("_slot",)

    def __init__(self, ring: RingBuffer, **wish: Any) -> None:
        self._slot = Slot(ring, **wish)

    async def __aenter__(self) -> Slot:
        slot = self._slot
        if slot._claim is not None:
            raise RuntimeError("this slot is open already; call areserve() again for another one")
        slot._ring._core.check_claim(**slot._wish)
        slot._ring._write_only(**slot._wish)
        slot._open(await slot._ring._aclaim(**slot._wish))
        return slot

    async def __aexit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._slot.__exit__(kind, exception, traceback)


def attach(name: str, timeout: float | None = 10.0) -> RingBuffer:
    """Attach to a named ring, waiting up to `timeout` seconds for the name to appear.

    In broadcast mode the new handle is a reader from now on, unless it writes before it reads.
    Raises FileNotFoundError when the time has passed; PermissionError when the ring is another user's;
    VersionMismatch, CorruptSegment or PeerTableFull when it cannot be used. None of these change it.
    """
    checks.ring_name(name)
    checks.seconds("timeout", timeout)
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        try:
            return RingBuffer._attached(Ring.attach(name))
        except FileNotFoundError:
            if until is not None and time.monotonic() >= until:
                raise
        time.sleep(LOOK_AGAIN_S)


def _from_descriptor(descriptor: Any) -> RingBuffer:
    """Rebuild an anonymous ring in the process that unpickles it."""
    import os

    fd = descriptor.detach()
    try:
        return RingBuffer._attached(Ring.attach_fd(fd))
    finally:
        os.close(fd)
