"""A process beside a trainer that speaks with a server elsewhere: to the trainer it is a server of its own machine.

    server <--network--> Upstream -- Relay -- LocalWire <--local socket, shared memory--> Stream in the trainer

Messages are passed on as they are, but for these: a BATCH is received into a slot of the relay's pool and then announced;
FREE stays here, it frees the slot; and the trainer's wishes for more batches are passed on only as far as there are slots.
So slots of this machine are the credits that the server may spend.

It ends when its trainer has gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

from ringbuf.errors import VersionMismatch
from ringbuf.net import local
from ringbuf.net.address import parse_address
from ringbuf.net.keys import load_client
from ringbuf.net.local import Gone, LocalWire
from ringbuf.net.parcel import Memory, Parcel, Pool
from ringbuf.net.protocol import COPY, Kind, Message, ProtocolError, clean, encode, parse
from ringbuf.net.session import MOST_AHEAD
from ringbuf.net.upstream import Upstream
from ringbuf.net.zeromq import zmq

__all__ = ["Relay", "main", "report"]

TICK_MS = 100
SPARE_SLOTS = 8


class Relay:
    """One trainer, and its session.

    sock: the end of its connection.
    reports: whether the trainer is to be told first that there is a connection with the server, or why not.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: zmq.Context,
        address: str,
        keys: str | None,
        timeout: float | None,
        reports: bool = True,
    ):
        sock.setblocking(False)
        self.sock = sock
        self.over = False
        self._parting = False  # the trainer has gone: there is nobody to pass anything on to
        self._wire: LocalWire | None = None
        self._memory = Memory()
        self._held: dict[int, Parcel] = {}
        self._done = 0  # the trainer is done with all up to this one
        self._wanted = 0  # it asked for all up to this one
        self._passed_on = 0  # and the server was asked for all up to this one
        self._received = 0
        self._reports = reports
        self._leaving: int | None = None  # a loop was left, after this one; the server has not answered yet
        self._upstream = Upstream(
            context,
            parse_address("the address", address),
            None if keys is None else load_client(keys),
            timeout=timeout,
            ready=self._ready,
            heard=self._from_server,
            failed=self._failed,
        )

    def poll(self) -> Iterator[Any]:
        """What to wait for."""
        yield self.sock
        yield from self._upstream.sockets

    def work(self) -> None:
        """All that can be done now."""
        try:
            self._read()
            self._upstream.work()
            if self._wire is not None:
                self._wire.flush()
        except (Gone, ProtocolError, ConnectionError):
            self.trainer_gone()

    def close(self) -> None:
        self.over = True
        self._upstream.close()
        self._held.clear()
        if self._upstream.pool is not None:
            self._upstream.pool.close()
        (self.sock if self._wire is None else self._wire).close()

    # ---- the trainer

    def _read(self) -> None:
        while not self.over:
            try:
                message, body, descriptors = local.receive(self.sock)
            except BlockingIOError:
                return
            for descriptor in descriptors:
                os.close(descriptor)
            self._from_trainer(message, body)

    def _from_trainer(self, message: Message, body: memoryview) -> None:
        kind = message.kind
        if kind == Kind.HELLO:
            self._upstream.hello(object_in(body))
        elif kind == Kind.BEGIN:
            self._make_pool(message.extra - self._done)
            self._wanted = message.extra
            self._passed_on = self._allowed()
            self._upstream.send(message._replace(extra=self._passed_on))
        elif kind == Kind.NEXT:
            self._done, self._wanted = message.seq, max(self._wanted, message.extra)
            self._ask()
        elif kind == Kind.FREE:
            self._held.pop(message.seq, None)
            if self._leaving is None and self._allowed() > self._passed_on:
                self._ask()
        elif kind == Kind.LEAVE:
            self._leaving = message.seq
            for seq in [seq for seq in self._held if seq > message.seq]:
                del self._held[seq]
            self._upstream.send(message)
        elif kind == Kind.BYE:
            self.trainer_gone()
        else:
            raise ProtocolError(f"a trainer does not say {kind}")

    def _make_pool(self, ahead: int) -> None:
        if self._upstream.pool is None:
            slots = 2 * min(max(1, ahead), MOST_AHEAD) + SPARE_SLOTS
            self._upstream.pool = Pool(self._memory, slots, stopped=lambda: False)

    def _allowed(self) -> int:
        """The number of the last batch that there is room for, if the trainer wants it."""
        free = self._upstream.pool.free - (self._upstream.incoming > 0)
        received = max(self._received, self._upstream.incoming)
        return max(self._passed_on, min(self._wanted, received + free))

    def _ask(self) -> None:
        self._passed_on = self._allowed()
        self._upstream.send(Message(Kind.NEXT, seq=self._done, extra=max(self._done, self._passed_on)))

    def trainer_gone(self) -> None:
        """What it was not done with is for others, at once."""
        if self.over or self._parting:
            return
        self._parting = True
        self._upstream.take_leave()
        self.close()

    # ---- the server

    def _from_server(self, message: Message, content: Any) -> None:
        kind = message.kind
        if self._parting:
            return
        if kind == Kind.BATCH:
            self._batch(message, content)
            return
        if kind == Kind.WELCOME:
            said = parse(content, mode=str, epochs=(int, type(None)), name=str)
            self._wire = LocalWire(self.sock, said["mode"] == "split", self._memory)
            self._wire.send(message, said)
            return
        if kind == Kind.LEFT:
            self._leaving, self._done = None, max(self._done, message.seq)
        self._say(message, object_in(content))

    def _batch(self, message: Message, parcel: Parcel) -> None:
        self._received = message.seq
        if self._leaving is not None:
            return
        self._held[message.seq] = parcel
        flags = COPY if parcel.scarce else 0
        self._wire.send_batch(message._replace(flags=flags), _Announced(parcel))

    def _failed(self, error: Exception) -> None:
        text = clean(str(error))
        if self._wire is not None:
            with contextlib.suppress(Gone):
                self._say(Message(Kind.BYE), {"text": text})
        elif self._reports:
            report(self.sock, {"kind": type(error).__name__, "text": text})
        else:
            self._say(Message(Kind.REFUSED), {"text": text, "version": isinstance(error, VersionMismatch)})
        self.close()

    def _ready(self) -> None:
        if self._reports:
            self._reports = False
            report(self.sock, {})

    def _say(self, message: Message, body: dict | None) -> None:
        if self._wire is not None:
            self._wire.send(message, body)
        else:
            self.sock.send(encode(message, body), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def object_in(body: memoryview) -> dict | None:
    """What is to be passed on. Raises ProtocolError."""
    if not len(body):
        return None
    try:
        found = json.loads(bytes(body))
        encode(Message(0), found)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the body of a message cannot be passed on ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise ProtocolError(f"the body of a message is not an object, but {type(found).__name__}")
    return found


def report(sock: socket.socket, what: dict) -> None:
    """To dial.Remote, before anything else: that there is a connection, or why not."""
    with contextlib.suppress(OSError):
        sock.send(json.dumps(what).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


class _Announced:
    """A batch as a LocalWire takes it."""

    __slots__ = ("parcel",)

    def __init__(self, parcel: Parcel):
        self.parcel = parcel


def serve(sock: socket.socket, address: str, keys: str | None, timeout: float | None) -> None:
    """Until the trainer at the other end has gone."""
    context = zmq.Context()
    relay = Relay(sock, context, address, keys, timeout)
    trainer = os.getppid()
    with contextlib.suppress(OSError):
        trainer = os.pidfd_open(trainer)  # a child of it may keep its end open
    try:
        while not relay.over:
            poller = zmq.Poller()
            for waiting in relay.poll():
                poller.register(waiting, zmq.POLLIN)
            poller.poll(TICK_MS)
            relay.work()
            if not relay.over and select.select([trainer], [], [], 0)[0]:
                relay.trainer_gone()
    finally:
        context.destroy(linger=0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trainer's affair
    options = json.loads(sys.argv[1])
    serve(socket.socket(fileno=options.pop("fd")), **options)


if __name__ == "__main__":
    main()
