"""The side channel between a loader and one of its workers: a socket pair for what does not fit into a ring.

Rings carry tasks and batches. The channel carries descriptors: of the rings themselves, of a larger ring when
batches grow, of the memory of an oversized task or error. Each message is a short list that starts with its
kind, in one datagram, with a descriptor attached where it is about one. Nobody blocks on a channel for long: messages are few and
small, and a receiver waits in slices.
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import mmap
import os
import select
import socket
import time
from collections import deque
from typing import Any

__all__ = ["Channel", "Unsent", "read_memory", "shared_memory", "take_memory"]

MESSAGE_BYTES = 65536
DESCRIPTOR_BYTES = array.array("i", [0]).itemsize  # a message has one at most
# The kernel has no room for a message now: the other end has much to read, or memory or descriptors in flight are short.
NOT_NOW = {errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS}
SHORTAGE_S = 5.0  # of memory: how long it may last
GONE = {errno.EPIPE, errno.ECONNRESET}


class Unsent(OSError):
    """A message that a worker waits for could not even be kept for later: without it the pass cannot go on."""


class Channel:
    """One end of the socket pair."""

    def __init__(self, end: socket.socket):
        self._socket = end
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)
        self._unsent: deque[tuple[bytes, int | None]] = deque()
        self._short_since: float | None = None

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """The main process's end, and the socket that becomes the worker's."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), theirs

    def send(self, *message: Any, descriptor: int | None = None) -> bool:
        """Send without waiting. False: not now, the other end has much to read; or never, it is gone."""
        return not self._unsent and self._send(json.dumps(message).encode(), descriptor) == 0

    def post(self, *message: Any, descriptor: int | None = None) -> bool:
        """Send now, or else, and then it returns False, as soon as flush() finds room; after what was posted before.
        Raises Unsent."""
        data = json.dumps(message).encode()
        if not self._unsent and self._send(data, descriptor) not in NOT_NOW:
            return True
        try:
            self._unsent.append((data, None if descriptor is None else os.dup(descriptor)))
        except OSError as error:
            raise Unsent(error.errno, f"no message to a worker: {error.strerror}") from error
        return False

    def flush(self) -> bool:
        """Send what was posted and is not sent yet, as far as there is room. To an end that is gone there is nothing to send.
        Returns whether nothing is left to send.

        Raises Unsent when the kernel has been short of memory for it for too long; what is unsent stays so.
        """
        while self._unsent:
            refused = self._send(*self._unsent[0])
            if refused in NOT_NOW - {errno.EAGAIN}:
                self._short_since = self._short_since or time.monotonic()
                if time.monotonic() - self._short_since > SHORTAGE_S:
                    raise Unsent(refused, f"no message to a worker for {SHORTAGE_S} s: {os.strerror(refused)}")
                return False
            self._short_since = None
            if refused == errno.EAGAIN:
                return False
            self._forget_first()
        return True

    def forget(self) -> None:
        """Never send what is not sent yet."""
        while self._unsent:
            self._forget_first()

    def _send(self, data: bytes, descriptor: int | None) -> int:
        """0, or an errno of NOT_NOW or GONE."""
        rights = []
        if descriptor is not None:
            rights.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor])))
        try:
            self._socket.sendmsg([data], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError as error:
            if error.errno not in NOT_NOW | GONE:
                raise
            return error.errno
        return 0

    def _forget_first(self) -> None:
        _, descriptor = self._unsent.popleft()
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def waiting(self, timeout_ms: int = 0) -> bool:
        """Whether there is something to receive, within `timeout_ms`."""
        return bool(self._poll.poll(timeout_ms))

    def receive(self) -> tuple[list, list[int]] | None:
        """The next message and its descriptors, none or one, which become the caller's; None: nothing now.

        Raises EOFError when there will be no more.
        """
        try:
            # Not socket.recv_fds(), which ignores the flags in Python 3.11.
            data, ancillary, _, _ = self._socket.recvmsg(
                MESSAGE_BYTES, socket.CMSG_LEN(DESCRIPTOR_BYTES), socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        except ConnectionResetError:
            data = b""
        if not data:
            raise EOFError("the other end of the channel is closed")
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(content)
        return json.loads(data), list(descriptors)

    def close(self) -> None:
        self.forget()
        # Not shutdown(): after a fork other processes have this end too, and it stays theirs.
        self._socket.close()


def shared_memory(data: bytes, label: str) -> int:
    """A descriptor of nameless memory that holds `data`, for sending over a channel."""
    descriptor = os.memfd_create(label, os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_memory(descriptor: int) -> mmap.mmap:
    """A view of what `shared_memory` put behind a descriptor, which stays the caller's."""
    return mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)


def take_memory(descriptors: list[int]) -> bytes:
    """What is behind the first of these descriptors; all are closed."""
    try:
        with read_memory(descriptors[0]) as data:
            return data[:]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
