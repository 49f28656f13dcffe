"""The side channel between a loader and one of its workers: a socket pair for what does not fit into a ring.

Rings carry tasks and batches. The channel carries descriptors: of the rings themselves, of a larger ring when
batches grow, of the memory of an oversized task or error. Each message is a short list that starts with its
kind, in one datagram, with a descriptor attached where it is about one. Nobody blocks on a channel for long: messages are few and
small, and a receiver waits in slices.
"""

from __future__ import annotations

import array
import json
import mmap
import os
import select
import socket
from typing import Any

__all__ = ["Channel", "read_memory", "shared_memory", "take_memory"]

MESSAGE_BYTES = 65536
DESCRIPTOR_BYTES = array.array("i", [0]).itemsize  # a message has one at most


class Channel:
    """One end of the socket pair."""

    def __init__(self, end: socket.socket):
        self._socket = end
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """The main process's end, and the socket that becomes the worker's."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), theirs

    def send(self, *message: Any, descriptor: int | None = None) -> bool:
        """Send without waiting. False: not now, the other end has much to read; or never, it is gone."""
        data = json.dumps(message).encode()
        rights = []
        if descriptor is not None:
            rights.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor])))
        try:
            self._socket.sendmsg([data], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            return False
        return True

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
