"""A worker's way out: batches and other answers into the data ring, and the ring's growth."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ringbuf import frame
from ringbuf._core import Claim, Ring, copy_into
from ringbuf.errors import BatchTooLarge, Full
from ringbuf.frame import FRAME_ROOM
from ringbuf.loader.collate import Stack
from ringbuf.loader.failure import Failure
from ringbuf.loader.messages import BATCH, END, FAILED, GROW, NOTED, Wish, fill
from ringbuf.loader.post import LOOK_S, Post
from ringbuf.loader.substitute import LEFT_OUT, NOTHING, PassedOver
from ringbuf.telemetry._meter import WorkerMeter

__all__ = ["Draft", "Outlet", "Refused", "Stranded"]

FIRST_PAGE_BYTES = 4096  # is there, whether or not the rest of a slot can be secured


class Refused(Exception):
    """No larger ring can be had; the main process knows, and reports it."""


class Stranded(BaseException):
    """The ring in which the main process looks for answers cannot be attached to. No answer would be found, not even
    that one, so the worker has to end."""


class Outlet:
    """The data ring of this moment.

    The rule by which main knows where to look for an answer: a worker answers in the newest ring that it has
    seen, and it takes in a new one only when a task says so, or when it has asked for more room; then it takes
    in all that arrive, up to the first that is large enough.
    """

    def __init__(self, post: Post, worker_id: int, meter: WorkerMeter):
        self._post = post
        self._worker_id = worker_id
        self._meter = meter
        self._generation = -1
        self._slot_bytes = 0
        self._ring: Ring
        self.follow(0)

    def follow(self, generation: int) -> None:
        """Take in rings up to this generation."""
        while self._generation < generation:
            self._take_in(*self._post.wait_for(lambda message: message[0] == "ring"))

    def claim(self, number: int, needed_bytes: int, kind: int = BATCH) -> Claim:
        """A slot for the answer to a task, of at least this size. Raises Refused where none is to be had."""
        while needed_bytes > self._slot_bytes:
            self._ask_for_more(number, needed_bytes)
        claim = self._claim(number, kind)
        try:
            claim.secure()
        except BaseException:
            claim.abort()
            raise
        return claim

    def news(self) -> Callable[[], bool]:
        """A function that tells whether anybody has answered since this call."""
        ring = self._ring
        before = ring.stats()["published"]
        return lambda: ring.stats()["published"] != before

    def end(self, number: int, passed_over: PassedOver) -> None:
        self._meter.end()
        fill(self._claim(number, END), passed_over.encode(FIRST_PAGE_BYTES))

    def fail(self, number: int, failure: Failure) -> None:
        """Answer a task with what went wrong."""
        self._meter.end()
        room = self._slot_bytes + FRAME_ROOM
        payload = failure.encode()
        if len(payload) > room:
            sent = self._post.send("failure", number, memory=payload, label="ringbuf-failure")
            payload = b"" if sent else failure.encode(room)
        claim = self._claim(number, FAILED)
        if len(payload) > FIRST_PAGE_BYTES:
            try:
                claim.secure()
            except OSError:
                payload = failure.encode(FIRST_PAGE_BYTES)
        fill(claim, payload)

    def _claim(self, number: int, kind: int) -> Claim:
        try:
            return self._ring.claim(tag=number, target=kind, timeout=0)
        except Full:
            return self._claim_later(number, kind)

    def _claim_later(self, number: int, kind: int) -> Claim:
        # There is a free slot for each task that was given out: waiting is for a moment, or for a dead peer's slot.
        self._meter.wait_for_slot()
        try:
            while True:
                self._post.look()
                with contextlib.suppress(Full):
                    return self._ring.claim(tag=number, target=kind, timeout=LOOK_S)
        finally:
            self._meter.has_slot()

    def _ask_for_more(self, number: int, needed_bytes: int) -> None:
        fill(self._claim(number, GROW), Wish(needed_bytes, self._worker_id).encode())
        self._meter.wait_for_slot()
        try:
            while needed_bytes > self._slot_bytes:
                message, descriptors = self._post.wait_for(
                    lambda message: message[0] == "ring" or message == ["refused", number]
                )
                if message[0] == "refused":
                    raise Refused
                self._take_in(message, descriptors)
        finally:
            self._meter.has_slot()

    def _take_in(self, message: list, descriptors: list[int]) -> None:
        _, generation, slot_bytes = message
        (descriptor,) = descriptors
        try:
            ring = Ring.attach_fd(descriptor, unsecured=True)
        except Exception as error:
            raise Stranded("cannot attach to the ring for batches; workers need a few descriptors, memory and /proc") from error
        finally:
            os.close(descriptor)
        if self._generation >= 0:
            self._ring.close()
        self._generation, self._slot_bytes, self._ring = generation, slot_bytes, ring


class Draft:
    """The answer to one task while it is made, and the room for it (fetch.Room). As a context manager it gives an
    unpublished slot back.

    meter: to be told when it is made.
    """

    def __init__(self, outlet: Outlet, number: int, meter: WorkerMeter | None = None):
        self._outlet = outlet
        self._meter = meter
        self._number = number
        self._kind = BATCH
        self._claim: Claim | None = None
        self._writer: frame.Writer | None = None
        self._stack: Stack | None = None

    def lay_out(self, stack: Stack) -> None:
        """Rows in a slot; at the places that they had in the slot of the last batch, if that was of this stack, too."""
        self._stack = stack
        self._claim = claim = self._outlet.claim(self._number, stack.nbytes())
        if stack.form is not None and stack.form.frame_bytes <= claim.nbytes:
            stack.place(claim, stack.form.offsets)
        else:
            self._writer = frame.Writer(claim, pickle=True)
            stack.allocate(self._empty)

    def collect(self, stack: Stack) -> Any:
        """The batch of a stack; or the stack itself, where its batch is the last one but for what is in the rows."""
        if self._writer is None:
            if stack.whole:
                return stack
            self._writer = frame.Writer(self._claim, pickle=True, form=stack.form)
        return stack.finish()

    def publish(self, batch: Any, passed_over: PassedOver = NOTHING) -> None:
        """Send the batch. Rows that were laid out are where they belong, other arrays are copied.

        passed_over: samples that failed on the way; the report travels along.
        """
        if self._claim is not None and self._writer is None:
            if not passed_over.count:
                self._commit(self._claim, self._stack.form.write(self._claim))
                self._claim = None
                return
            batch = batch.finish()
        if passed_over.count:
            batch, self._kind = (None if batch is LEFT_OUT else (batch,), tuple(passed_over)), NOTED
        if self._claim is None:
            plan = frame.plan(batch, pickle=True)
            claim = self._outlet.claim(self._number, _needed_bytes(plan), self._kind)
            with claim:
                self._commit(claim, plan.write(claim))
            return
        if self._kind != BATCH:
            self._publish_in_larger_slot(batch)
            return
        try:
            nbytes = self._writer.finish(batch)
        except BatchTooLarge:
            self._publish_in_larger_slot(batch)
            return
        self._stack.form = self._writer.form
        self._commit(self._claim, nbytes)
        self._claim = None

    def _commit(self, claim: Claim, nbytes: int) -> None:
        # Before: whoever has the batch finds all about it, and how long we wait for a processor after it is not its time.
        if self._meter is not None:
            self._meter.end(nbytes)
        claim.commit(nbytes)

    def _publish_in_larger_slot(self, batch: Any) -> None:
        """The first sample promised less than came. A worker may hold one slot: leave this one, then take another."""
        plan = frame.plan(batch, pickle=True)
        content = np.empty(plan.frame_bytes, np.uint8)
        nbytes = plan.write(content)
        self.discard()
        with self._outlet.claim(self._number, _needed_bytes(plan), self._kind) as claim:
            copy_into(claim, content)
            self._commit(claim, nbytes)

    def discard(self) -> None:
        """Give the slot back, unpublished."""
        if self._claim is not None:
            self._claim.abort()
            self._claim = None

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.discard()
        if self._stack is not None:
            self._stack.clear()

    def _empty(self, shape: tuple, dtype: np.dtype) -> np.ndarray:
        try:
            return self._writer.empty(shape, dtype)
        except BatchTooLarge:
            return np.empty(shape, dtype)  # publish() finds it a larger slot


def _needed_bytes(plan: frame.Plan) -> int:
    return max(plan.data_bytes, plan.frame_bytes - FRAME_ROOM)
