"""How tasks of event loops wait for a ring.

A task takes a message itself, between two of its own steps, and never while it sleeps: so a task that is cancelled holds none.
What it sleeps on is a future that only says "look". Of those who ask for the same the first is told, when there is something
for it, and whoever was told, whatever became of that, looks in the place of those who wait on:

    somebody who waits would find something  =>  he has been told, or somebody has who will look before it ends
    nobody would                             =>  the watcher sleeps on the ring for this loop (_watcher.pyx)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ringbuf._core import Ring
from ringbuf._messages import NOTHING
from ringbuf._watcher import Watcher
from ringbuf.errors import Closed

Kind = tuple["int | None", "int | None"]  # tag and target of a take; (None, None) for claims


class Waits:
    """All waits for messages, or all for free slots, through one handle.

    owner: whose handle it is. When that is gone, so is the watcher.
    """

    def __init__(self, owner: object, core: Ring, *, to_claim: bool) -> None:
        self._core = core
        self._to_claim = to_claim
        self._watcher = Watcher(core, to_claim=to_claim)
        # A desk is its loop's, which listens to its bell. Tasks that a closed loop left behind must not live as long as the ring.
        self._desks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Desk]] = weakref.WeakKeyDictionary()
        weakref.finalize(owner, self.stop)

    def stop(self) -> None:
        """End the watcher; who still waits is told, and finds the ring closed. Idempotent; nothing in a forked child."""
        if self._watcher.is_a_parents():
            return
        self._watcher.stop()
        for loop, reference in list(self._desks.items()):
            desk = reference()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                if desk is not None:
                    loop.call_soon_threadsafe(desk.shut, loop)

    async def until(self, attempt: Callable[[], Any], kind: Kind, timeout: float | None) -> Any:
        """Attempt again and again until that is not NOTHING, and return it; NOTHING after `timeout` seconds."""
        return await self._desk(asyncio.get_running_loop()).until(attempt, kind, timeout)

    def _desk(self, loop: asyncio.AbstractEventLoop) -> Desk:
        reference = self._desks.get(loop)
        desk = None if reference is None else reference()
        if desk is None:
            desk = Desk(loop, self._core, self._watcher, self._to_claim)
            self._desks[loop] = weakref.ref(desk)
        return desk


class Waiter:
    __slots__ = ("expired", "told")

    def __init__(self) -> None:
        self.expired = False
        self.told: asyncio.Future[None]

    def expire(self) -> None:
        self.expired = True
        if not self.told.done():
            self.told.set_result(None)


class Desk:
    """Who waits in one loop. Everything here runs in that loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, core: Ring, watcher: Watcher, to_claim: bool) -> None:
        self._core = core
        self._watcher = watcher
        self._to_claim = to_claim
        self._queues: dict[Kind, deque[Waiter]] = {}
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        watcher.hang(self._bell)
        loop.add_reader(self._bell, self._rung)

    def shut(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen no more. Who waits is told a last time."""
        self._look()
        if self._bell >= 0:
            loop.remove_reader(self._bell)
            self._close()

    def _close(self) -> None:
        self._watcher.take_down(self._bell)
        os.close(self._bell)
        self._bell = -1

    def __del__(self) -> None:
        if self._bell >= 0:  # its loop is gone, and what that listened to
            self._close()

    async def until(self, attempt: Callable[[], Any], kind: Kind, timeout: float | None) -> Any:
        loop = asyncio.get_running_loop()
        waiter = Waiter()
        timer = None if timeout is None else loop.call_later(timeout, waiter.expire)
        self._queues.setdefault(kind, deque()).append(waiter)
        try:
            while True:
                waiter.told = loop.create_future()
                self._look()
                await waiter.told
                found = attempt()
                if found is not NOTHING or waiter.expired:
                    return found
        finally:
            if timer is not None:
                timer.cancel()
            self._leave(kind, waiter)
            if self._queues and not loop.is_closed():
                self._look()

    def _leave(self, kind: Kind, waiter: Waiter) -> None:
        queue = self._queues[kind]
        queue.remove(waiter)
        if not queue:
            del self._queues[kind]

    def _rung(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        self._look()

    def _look(self) -> None:
        if not self._tell():
            return
        try:
            seen = self._core.watch(self._to_claim)
        except Closed:  # by another thread, this moment
            self._tell()
            return
        if self._tell():
            self._watcher.arm(self._bell, seen)

    def _tell(self) -> bool:
        """Tell the first of each queue for whom there is something. Whether there is nothing for any of the others."""
        waits = False
        for kind, queue in self._queues.items():
            told = queue[0].told
            if told.done():
                continue
            if self._core.would_find(self._to_claim, *kind):
                told.set_result(None)
            else:
                waits = True
        return waits
