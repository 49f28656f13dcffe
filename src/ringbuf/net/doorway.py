"""The TCP connections under a server's socket, which ZeroMQ keeps to itself: when they come and go, and how to cut one.

A connection is *bound* to its routing id by its first message; until then it is a stranger. It is known by its
descriptor, of which a duplicate is kept here: the number of a closed one may be another one's the next moment.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ringbuf.net.zeromq import zmq

__all__ = ["Connection", "Doorway", "parse_event"]

MOST_UNREAD = (
    256 << 10
)  # bytes that may come in without making up a message: one of endless parts would fill our memory
LOOK_S = 0.1
_RECEIVED_AT = 128  # tcpi_bytes_received in struct tcp_info
_INFO_BYTES = _RECEIVED_AT + 8
_RESET = struct.pack("ii", 1, 0)  # what lies in buffers is of no use to anybody
_EVENT = struct.Struct("=Hi")


def parse_event(data: bytes) -> tuple[int, int]:
    """An event of a monitor and its value. zmq.utils.monitor does that too, but loads asyncio for it."""
    return _EVENT.unpack(data)


class Connection:
    """routing: by which ZeroMQ knows it, once it has said something. owner: what the server makes of it. alive: whether ZeroMQ
    still has it."""

    def __init__(self, sock: socket.socket | None, now: float):
        self.sock = sock
        self.alive = True
        self.since = now
        self.routing: bytes | None = None
        self.owner: Any = None
        self.refused = False
        self.cut_at: float | None = None  # it has been told why
        self.heard = True  # a message came since its bytes were last counted
        self.bytes_then = 0

    def cut(self) -> None:
        """End it. ZeroMQ notices, and says so."""
        if self.sock is not None:
            with contextlib.suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.alive = False
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def bytes_received(self) -> int:
        """By the kernel, in all."""
        if self.sock is None:
            return 0
        try:
            info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            return struct.unpack_from("<Q", info, _RECEIVED_AT)[0]
        except (OSError, struct.error):  # a kernel older than 4.1, or a sandbox's own
            return 0


class Doorway:
    """Keeps an eye on the connections of a socket.

    lost: called with a connection that has ended.
    refuse: called once for each that spoke wrongly or was not allowed, to be counted.
    offence: called with the time for each that was let in and then gave us useless work.
    watch, forget: have a handler called whenever something has come in at a descriptor, and no more.
    """

    def __init__(
        self,
        router: zmq.Socket,
        *,
        hello_s: float,
        most_strangers: int,
        lost: Callable[[Connection], None],
        refuse: Callable[[], None],
        offence: Callable[[float], None],
        watch: Callable[[int, Callable[[int], None]], None],
        forget: Callable[[int], None],
    ):
        self.monitor = router.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._router = router
        self._port = 0
        self._hello_s, self._most_strangers = hello_s, most_strangers
        self._lost, self._refuse, self._offence = lost, refuse, offence
        self._watch, self._forget = watch, forget
        self._by_fd: dict[int, Connection] = {}
        self._by_routing: dict[bytes, Connection] = {}
        self._ended: deque[tuple[float, Connection]] = deque()  # what they said last may still be to be read
        self._looked_at = 0.0

    def bound(self, port: int) -> None:
        self._port = port

    def __len__(self) -> int:
        return len(self._by_fd)

    def look(self) -> None:
        """What has come and gone. Never waits."""
        while True:
            try:
                parts = self.monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event, value = parse_event(parts[0])
            if event == zmq.EVENT_ACCEPTED:
                self._accepted(value)
            elif event == zmq.EVENT_DISCONNECTED:
                self._disconnected(value)

    def known(self, routing: bytes) -> Connection | None:
        """Whose message begins with this; None when it is the first that is read of its connection."""
        return self._by_routing.get(routing)

    def meet(self, routing: bytes, fd: int) -> Connection:
        """The connection whose first message was read, which is bound to its routing id from now on.

        fd: by which the message came. Where that has ended already, or was taken over by another connection, what comes back is
        a refused one, so that the rest of what it said costs no more than that of any other that is not listened to.
        """
        self.look()  # it may have come a moment ago
        connection = self._by_fd.get(fd)
        if connection is None or connection.routing is not None:
            now = time.monotonic()
            connection = Connection(None, now)
            connection.alive, connection.refused = False, True
            self._offence(now)
            self._ended.append((now, connection))
        connection.routing = routing
        self._by_routing[routing] = connection
        return connection

    def refuse(self, connection: Connection, now: float | None = None) -> None:
        """It spoke wrongly, or is not allowed. now: of a refusal that it has been told, and should be able to read."""
        if not connection.refused:
            connection.refused = True
            self._refuse()
            self._offence(time.monotonic())
        if now is None:
            connection.cut()
        else:
            connection.cut_at = now + 1.0

    def tick(self, now: float) -> None:
        """Cut those that have kept silent, and those that fill our memory."""
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        while self._ended and now - self._ended[0][0] > self._hello_s:
            self._by_routing.pop(self._ended.popleft()[1].routing, None)
        for connection in list(self._by_fd.values()):
            if connection.refused:
                if connection.cut_at is None or now > connection.cut_at:
                    connection.cut()
                continue
            if connection.owner is None and now - connection.since > self._hello_s:
                self.refuse(connection)
                continue
            self._weigh(connection)

    def _weigh(self, connection: Connection) -> None:
        """What came in since its last message: at once when it comes, for a second's worth of it would be a gigabyte."""
        received = connection.bytes_received()
        if connection.heard:
            connection.heard, connection.bytes_then = False, received
        elif received - connection.bytes_then > MOST_UNREAD:
            self.refuse(connection)

    def close(self) -> None:
        for connection in self._by_fd.values():
            self._close(connection)
        self._by_fd.clear()
        self._router.disable_monitor()

    def _accepted(self, fd: int) -> None:
        connection = self._by_fd[fd] = Connection(self._duplicate(fd), time.monotonic())
        if connection.sock is not None:
            self._watch(connection.sock.fileno(), lambda _: self._weigh(connection))
        if sum(other.owner is None for other in self._by_fd.values()) > self._most_strangers:
            self.refuse(connection)

    def _close(self, connection: Connection) -> None:
        if connection.sock is not None:
            self._forget(connection.sock.fileno())
        connection.close()

    def _duplicate(self, fd: int) -> socket.socket | None:
        """None where the connection has ended already, and the number may be somebody else's."""
        try:
            sock = socket.socket(fileno=os.dup(fd))
        except OSError:
            return None
        try:
            if sock.type == socket.SOCK_STREAM and sock.getsockname()[1] == self._port:
                return sock
        except (OSError, IndexError, TypeError):
            pass
        sock.close()
        return None

    def _disconnected(self, fd: int) -> None:
        connection = self._by_fd.pop(fd, None)
        if connection is None:
            return
        self._close(connection)
        if connection.routing is None and not connection.refused:  # it never got as far as a word
            connection.refused = True
            self._refuse()
        if connection.routing is not None:
            self._ended.append((time.monotonic(), connection))
        self._lost(connection)
