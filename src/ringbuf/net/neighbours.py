"""Clients on this machine: where they come in, and the wires of their sessions. In the hub's thread.

    hub -- LocalClient -- LocalWire <--local socket, shared memory--> Stream in the trainer
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
import weakref
from typing import Any

from ringbuf.net import local
from ringbuf.net.hub import HELLO_S, MOST_STRANGERS, TICK_S, Hub, Refused, read_hello
from ringbuf.net.local import Gone, LocalWire
from ringbuf.net.protocol import Kind, Message, OtherVersion, ProtocolError, encode
from ringbuf.net.session import Batch, Session
from ringbuf.net.split import Split

__all__ = ["Neighbours"]

MOST_AT_ONCE = 64  # messages of one client, before others have their turn


class Neighbours:
    """A hub's clients on this machine.

    memory: that of the server, in which batches lie.
    listener: where they come in; None where they are only brought here, by adopt().
    """

    def __init__(self, hub: Hub, memory: Any, listener: socket.socket | None):
        self.hub = hub
        self._memory = memory
        self._listener = listener
        self._deaf_until = 0.0  # for want of descriptors; 0 where it listens
        self._strangers: dict[socket.socket, float] = {}
        self._clients: set[LocalClient] = set()
        self._kept: list[dict[int, Batch]] = []
        self._listen()
        _all.add(self)

    @property
    def strangers(self) -> int:
        """Connections that have not said HELLO yet."""
        return len(self._strangers)

    @property
    def parted(self) -> int:
        """Clients that get nothing more, but still look at batches."""
        return sum(client.parted for client in self._clients)

    def adopt(self, sock: socket.socket) -> None:
        """A connection with a client, who has not said HELLO yet."""
        sock.setblocking(False)
        self._strangers[sock] = time.monotonic()
        self.hub.watch(sock.fileno(), lambda _: self._meet(sock))

    # ---- from the hub

    def tick(self, now: float) -> None:
        if self._deaf_until and now >= self._deaf_until:
            self._deaf_until = 0.0
            self._listen()
        for sock, since in list(self._strangers.items()):
            if now - since > HELLO_S:
                self._refuse(sock)
        for client in list(self._clients):
            client.flush()

    def flush(self, until: float) -> None:
        """Wait until all have what they were sent, but not for longer than that."""
        while time.monotonic() < until:
            for client in list(self._clients):
                client.flush()
            if not any(client.behind for client in self._clients):
                return
            time.sleep(0.01)

    def close(self) -> None:
        """The memory of what clients still look at is kept, until forget_what_is_held()."""
        for client in list(self._clients):
            self._kept.append(dict(client.session.held))
            client.close()
        for sock in list(self._strangers):
            self._let_go(sock)
        if self._listener is not None:
            self.hub.forget(self._listener.fileno())
            self._listener.close()

    def forget_what_is_held(self) -> None:
        """After the end, once nobody writes any more: let go of what clients may still look at."""
        self._kept.clear()

    # ---- who comes

    def _listen(self) -> None:
        if self._listener is not None:
            self.hub.watch(self._listener.fileno(), lambda _: self._accept())

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    self.hub.forget(self._listener.fileno())  # it would be reported again and again; tick() looks again
                    self._deaf_until = time.monotonic() + TICK_S
                return  # or it went away meanwhile
            if local.peer_of(sock)[1] != os.geteuid() or len(self._strangers) >= MOST_STRANGERS:
                self.hub.refused += 1
                sock.close()
                continue
            self.adopt(sock)

    def _meet(self, sock: socket.socket) -> None:
        """The first words of a client."""
        try:
            message, body, descriptors = local.receive(sock)
        except BlockingIOError:
            return
        except Gone:
            self._let_go(sock)
            return
        except ProtocolError as error:
            self._refuse(sock, str(error), isinstance(error, OtherVersion))
            return
        for descriptor in descriptors:
            os.close(descriptor)
        if message.kind == Kind.STATUS:
            with contextlib.suppress(OSError, ValueError):
                answer = encode(Message(Kind.STATUS), self.hub.describe(message.seq))
                sock.send(answer, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            self._let_go(sock)
            return
        try:
            if message.kind != Kind.HELLO:
                raise ProtocolError(f"the first word of a client is HELLO, not {message.kind}")
            hello = read_hello(body)
            wire = LocalWire(sock, isinstance(self.hub.dispatcher, Split), self._memory)
            client = LocalClient(self, wire)
            client.session = self.hub.open_session(client, hello)
        except (ProtocolError, Refused) as error:
            self._refuse(sock, str(error))
            return
        except (Gone, OSError):
            self._let_go(sock)
            return
        del self._strangers[sock]
        self.hub.forget(sock.fileno())
        self._clients.add(client)
        client.watch()

    def _refuse(self, sock: socket.socket, text: str = "no HELLO came in time", version: bool = False) -> None:
        self.hub.refused += 1
        with contextlib.suppress(OSError, ValueError):
            said = encode(Message(Kind.REFUSED), {"text": text, "version": version})
            sock.send(said, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        self._let_go(sock)

    def _let_go(self, sock: socket.socket) -> None:
        self._strangers.pop(sock, None)
        self.hub.forget(sock.fileno())
        sock.close()

    def _sockets(self) -> list[socket.socket]:
        listener = [] if self._listener is None else [self._listener]
        return [*listener, *self._strangers, *(client.sock for client in self._clients)]

    def forget(self, client: LocalClient) -> None:
        """It is closed."""
        self._clients.discard(client)


_all: weakref.WeakSet[Neighbours] = weakref.WeakSet()


def _close_in_child() -> None:
    """A worker that is forked from a server must not keep its name, or its connections, alive."""
    for neighbours in list(_all):
        for sock in neighbours._sockets():
            sock.close()


os.register_at_fork(after_in_child=_close_in_child)


class LocalClient:
    """The wire of a session: a connection, and the process at its other end, whose death is known even if a child of it
    keeps the connection open.

    parted: it gets nothing more, but still looks at batches.
    """

    local = True

    def __init__(self, neighbours: Neighbours, wire: LocalWire):
        self.session: Session
        self.sock = wire.sock
        self.pid = wire.pid
        self.parted = False
        self._neighbours = neighbours
        self._wire = wire
        self._pidfd: int | None = None
        self._closed = False

    @property
    def behind(self) -> bool:
        """Whether something is unsent."""
        return self._wire.behind

    def watch(self) -> None:
        """Its session is open: listen to it from now on."""
        hub = self._neighbours.hub
        hub.watch(self.sock.fileno(), lambda _: self._read())
        with contextlib.suppress(OSError):
            if self.pid and self.pid != os.getpid():
                self._pidfd = os.pidfd_open(self.pid)
                hub.watch(self._pidfd, lambda _: self._lost())

    # ---- from the hub

    def send(self, message: Message, body: dict | None = None) -> None:
        """Raises Gone."""
        self._wire.send(message, body)

    def send_batch(self, message: Message, batch: Batch) -> None:
        """Raises Gone."""
        self._wire.send_batch(message, batch)

    def part(self) -> None:
        """Send it nothing more, but wait until it has let go of all."""
        self.parted = True
        self._close_if_done()

    def gone(self) -> None:
        """It has left; but what it was done with before, as far as it said so, nobody shall get again."""
        dispatcher = self._neighbours.hub.dispatcher
        with contextlib.suppress(BlockingIOError, Gone, OSError, ProtocolError):
            while not self._closed:
                message, _ = self._receive()
                if message.kind == Kind.NEXT:
                    dispatcher.go_on(self.session, message.seq, message.extra)
                elif message.kind == Kind.LEAVE:
                    dispatcher.leave(self.session, message.seq)
                elif message.kind != Kind.FREE:
                    break
        self.close()

    def flush(self) -> None:
        if self._wire.behind:
            try:
                self._wire.flush()
                if self.parted:
                    self._close_if_done()
            except (Gone, OSError):
                self._lost()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        hub = self._neighbours.hub
        hub.forget(self.sock.fileno())
        if self._pidfd is not None:
            hub.forget(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self._wire.close()
        self.session.held.clear()
        self._neighbours.forget(self)

    # ---- what it says

    def _receive(self) -> tuple[Message, memoryview]:
        message, body, descriptors = local.receive(self.sock)
        for descriptor in descriptors:
            os.close(descriptor)
        return message, body

    def _read(self) -> None:
        hub, session = self._neighbours.hub, self.session
        try:
            for _ in range(MOST_AT_ONCE):
                if self._closed:
                    return
                message, body = self._receive()
                if not self.parted:
                    hub.message(session, message, body)
                elif message.kind == Kind.FREE:
                    session.free(message.seq)
                    self._close_if_done()
        except BlockingIOError:
            pass
        except (Gone, OSError):
            self._lost()
        except ProtocolError as error:
            hub.refused += 1
            if self.parted:
                self.close()
            else:
                hub.tell(session, Message(Kind.REFUSED), {"text": str(error)})
                hub.close_session(session)

    def _close_if_done(self) -> None:
        if not self.session.held and not self._wire.behind:
            self.close()

    def _lost(self) -> None:
        if self.parted:
            self.close()
        else:
            self._neighbours.hub.close_session(self.session)
