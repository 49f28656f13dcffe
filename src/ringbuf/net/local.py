"""Servers and clients of one machine: sockets with names, and memory that is handed over.

A name stands for an abstract socket, which is gone with its server whatever became of that; two servers cannot have one.
Anybody on the machine may knock, but each side asks the kernel who the other one is, and speaks to its own user alone.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import re
import socket
import struct
from collections import deque
from typing import Any

from ringbuf import checks
from ringbuf.net.protocol import Kind, Message, ProtocolError, decode, encode
from ringbuf.net.session import Batch

__all__ = [
    "Gone",
    "LocalWire",
    "Raw",
    "connect",
    "descriptors_in",
    "listen",
    "peer_of",
    "receive",
    "running",
    "server_name",
    "take_in",
    "understand",
]

MESSAGE_BYTES = 64 << 10
BACKLOG = 128
_CREDENTIALS = struct.Struct("3i")
NOT_NOW = {errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS}
LISTED = re.compile(r"@ringbuf/(\d+)/(\S+)$")


class Gone(ConnectionError):
    """The other end is closed."""


def server_name(value: Any) -> str:
    """Return `value` if a server may be called so: as a ring, but shorter."""
    if isinstance(value, str) and re.fullmatch(r"[^/]*:\d+", value):
        raise ValueError(f"{value!r} is neither a server's name nor an address; did you mean 'tcp://{value}'?")
    name = checks.ring_name(value)
    if len(name) > 80:
        raise ValueError(f"a server's name must be 1 to 80 characters long, got {len(name)}: {name[:81]!r}")
    return name


def _address(name: str, kind: str) -> str:
    return f"\0{kind}/{os.geteuid()}/{name}"


def listen(name: str, kind: str = "ringbuf") -> socket.socket:
    """The socket of a server with this name. FileExistsError when there is one.

    kind: a name means something else in another one, and only those of the usual one are listed.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        sock.bind(_address(name, kind))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise FileExistsError(
                error.errno, "a server with this name is running; stop it or choose another name", name
            ) from None
        raise
    return sock


def connect(name: str, kind: str = "ringbuf", timeout: float | None = None) -> socket.socket:
    """A connection to the server with this name. FileNotFoundError, which names those that run; PermissionError.

    timeout: of the socket. With one, a server that takes no connections and has as many waiting as it may is a
    ConnectionError at once; without one that is waited out.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    sock.settimeout(timeout)
    try:
        sock.connect(_address(name, kind))
        _, uid, _ = peer_of(sock)
        if uid != os.geteuid():
            raise PermissionError(errno.EACCES, f"the server's name was taken by user {uid}, who is not you", name)
    except ConnectionRefusedError:
        sock.close()
        others = running()
        there = f"; running: {', '.join(others)}" if others else "; none is running"
        raise FileNotFoundError(errno.ENOENT, f"no server has this name{there}", name) from None
    except BlockingIOError:
        sock.close()
        raise ConnectionError(f"the server {name!r} takes no connections, and {BACKLOG} wait for it") from None
    except BaseException:
        sock.close()
        raise
    return sock


def running() -> list[str]:
    """The names of this user's servers on this machine."""
    names = set()
    with contextlib.suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found = LISTED.search(line)
            if found and int(found[1]) == os.geteuid():
                names.add(found[2])
    return sorted(names)


def peer_of(sock: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end; process 0 where it is not seen from here."""
    return _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))


def receive(sock: socket.socket, *, leave: bool = False) -> tuple[Message, memoryview, list[int]]:
    """The next message, its body, and its descriptors, which become the caller's. Raises Gone, BlockingIOError, ProtocolError.

    leave: look at it, and leave it where it is.
    """
    inbox: deque[Raw] = deque()
    take_in(sock, inbox, socket.MSG_PEEK if leave else 0)
    descriptors = descriptors_in(inbox[0])
    try:
        return *understand(inbox[0]), descriptors
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


Raw = tuple[bytes, list, int, Any]
"""What recvmsg() gave."""


def take_in(sock: socket.socket, inbox: deque[Raw], how: int = 0) -> None:
    """Put the next message into a deque, if there is one. Raises BlockingIOError otherwise.

    A signal handler that raises, as Ctrl-C does, cannot come between: what has left the socket is in the deque.
    """
    size, room, flags = (MESSAGE_BYTES,), (socket.CMSG_LEN(4),), (how | socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC,)
    for _ in range(2):
        # An end that closes without having read all resets the connection, before what it has sent is read.
        with contextlib.suppress(ConnectionResetError):
            inbox.extend(map(sock.recvmsg, size, room, flags))
            return
    inbox.append((b"", [], 0, None))


def descriptors_in(raw: Raw) -> list[int]:
    """The descriptors that came along with a message."""
    descriptors = array.array("i")
    for level, kind, content in raw[1]:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % 4])
    return list(descriptors)


def understand(raw: Raw) -> tuple[Message, memoryview]:
    """A message, and its body. Raises Gone, ProtocolError."""
    data, ancillary, got, _ = raw
    if not data and not ancillary:
        raise Gone("the other end of the connection is closed")
    if got & socket.MSG_TRUNC:
        raise ProtocolError(f"a message is longer than {MESSAGE_BYTES} bytes")
    return decode(data)


class LocalWire:
    """The server's end of a connection to one client. Never waits: what there is no room for now, flush() sends.

    writable: whether the client may write into batches.
    """

    local = True

    def __init__(self, sock: socket.socket, writable: bool, memory: Any):
        sock.setblocking(False)
        self.sock = sock
        self.pid = peer_of(sock)[0]
        self._writable = writable
        self._memory = memory
        self._known: set[int] = set()
        self._unsent: deque[tuple[bytes, int | None]] = deque()

    @property
    def behind(self) -> bool:
        """Whether something is unsent."""
        return bool(self._unsent)

    def send(self, message: Message, body: dict | None = None) -> None:
        """Raises Gone."""
        self._put(encode(message, body), None)

    def send_batch(self, message: Message, batch: Batch) -> None:
        """A batch: where it lies, and first its memory, if this client does not know that yet. Raises Gone."""
        parcel = batch.parcel
        segment = parcel.segment
        if segment.number not in self._known:
            for gone in self._known - self._memory.numbers:
                self._put(encode(Message(Kind.SEGMENT, segment=gone)), None)
            self._known &= self._memory.numbers
            self._known.add(segment.number)
            flags = int(self._writable)
            header = Message(Kind.SEGMENT, segment=segment.number, nbytes=segment.nbytes, flags=flags)
            self._put(encode(header), segment.descriptor(self._writable))
        self._put(encode(message._replace(segment=segment.number, offset=parcel.offset, nbytes=parcel.nbytes)), None)

    def flush(self) -> None:
        """Raises Gone."""
        while self._unsent:
            if not self._send(*self._unsent[0]):
                return
            self._unsent.popleft()

    def close(self) -> None:
        while self._unsent:
            descriptor = self._unsent.popleft()[1]
            if descriptor is not None:
                os.close(descriptor)
        self.sock.close()

    def _put(self, data: bytes, descriptor: int | None) -> None:
        if self._unsent or not self._send(data, descriptor):
            self._unsent.append((data, descriptor))

    def _send(self, data: bytes, descriptor: int | None) -> bool:
        """Whether it was sent; then the descriptor is closed here."""
        rights = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        try:
            self.sock.sendmsg([data], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError as error:
            if error.errno in NOT_NOW:
                return False
            if descriptor is not None:
                os.close(descriptor)
            if error.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                raise Gone("the client is gone") from None
            raise
        if descriptor is not None:
            os.close(descriptor)
        return True
