"""Clients elsewhere: the server's socket for them, in the hub's thread.

    hub -- RemoteWire -- Link --> ROUTER --(I/O thread of ZeroMQ)--> TCP --> relay of a client (relay.py)

A session outlives its connection by the grace time. A batch leaves as it lies in its slot, in pieces; ZeroMQ keeps the
slot until they are gone, and the session until the client is done with it. What is under way to a client is never more
than it has asked for, so nothing in here grows with time or with a client that does not read.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import secrets
import time
from typing import Any

from ringbuf.net.address import Address, parse_address, refuse_exposed
from ringbuf.net.codec import CODECS, Codec, codec
from ringbuf.net.doorway import Connection, Doorway
from ringbuf.net.hub import HELLO_S, MOST_STRANGERS, Hub, Refused, read_hello
from ringbuf.net.keys import ServerKeys, load_server
from ringbuf.net.link import ENVELOPE_BYTES, Link, envelope, open_envelope
from ringbuf.net.protocol import (
    BODY_BYTES,
    HEADER_BYTES,
    PIECE_BYTES,
    Kind,
    Message,
    OtherVersion,
    ProtocolError,
    decode,
    encode,
    parse,
)
from ringbuf.net.session import Batch, Session
from ringbuf.net.zap import Gatekeeper
from ringbuf.net.zeromq import zmq

__all__ = ["Frontend", "check"]

MOST_BYTES = ENVELOPE_BYTES + HEADER_BYTES + BODY_BYTES  # of what a client says
BUFFER_BYTES = 64 << 10
MOST_AT_ONCE = 256  # messages that are read before the hub has its turn
PER_MESSAGE = 6  # messages that a client has reason for, for each one that it was sent
MOST_ALLOWED = 512  # and without such reason
PER_SECOND = 10
HEARTBEAT_MS = 2_000
DEAD_MS = 15_000
BACKLOG = 256
MAX_PACKERS = 4


def check(bind: str, compress: str | None, keys: Any, grace: float) -> None:
    """Raises ValueError, and what loading keys or a codec raises, before a server starts."""
    address = parse_address("bind", bind)
    if compress is not None:
        if compress not in CODECS:
            raise ValueError(f"compress must be one of {', '.join(map(repr, CODECS))}, or None; got {compress!r}")
        codec(compress)
    if keys is None:
        refuse_exposed(address)
    else:
        load_server(keys)
    if grace is None:
        raise ValueError(
            "grace must be a number of seconds, got None: batches would wait for ever for a client that is gone"
        )


class Frontend:
    """A hub's clients elsewhere.

    address: where they find it, with the port that the system chose where 0 was asked for.
    """

    parted = 0  # nobody elsewhere looks at our memory

    def __init__(self, hub: Hub, *, bind: str, compress: str | None, keys: Any, grace: float):
        self.grace = grace
        self._hub = hub
        self._peers: dict[str, _Peer] = {}
        self._codec: Codec | None = None if compress is None else codec(compress)
        self._packers: concurrent.futures.ThreadPoolExecutor | None = None
        self._context = zmq.Context()
        try:
            self._listen(parse_address("bind", bind), None if keys is None else load_server(keys))
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def _listen(self, address: Address, keys: ServerKeys | None) -> None:
        self._router = router = self._context.socket(zmq.ROUTER)
        router.linger = 0
        router.router_mandatory = True
        router.sndhwm = 0  # what clients asked for bounds it, and dropping a piece would not do
        router.rcvhwm = 0  # at a mark, a connection that breaks makes libzmq abort (4.3.5, stream_engine_base.cpp:310)
        router.rcvbuf = BUFFER_BYTES  # so this bounds what one may send before it is looked at
        router.maxmsgsize = MOST_BYTES
        router.handshake_ivl = int(HELLO_S * 1000)
        router.heartbeat_ivl, router.heartbeat_timeout = HEARTBEAT_MS, DEAD_MS
        router.backlog = BACKLOG
        router.ipv6 = address.is_v6
        self._gatekeeper = Gatekeeper(self._context, None if keys is None else keys.allowed)
        self._hub.watch(self._gatekeeper.socket.fd, lambda _: None)  # answered in tick(), as all else
        router.zap_domain = b"ringbuf"  # without one it is not asked
        if keys is not None:
            router.curve_server = True
            router.curve_publickey, router.curve_secretkey = keys.public, keys.secret
        self.doorway = Doorway(
            router,
            hello_s=HELLO_S,
            most_strangers=MOST_STRANGERS,
            lost=self._lost,
            refuse=self._count_refusal,
            offence=self._gatekeeper.offence,
            watch=functools.partial(self._hub.watch, edge=True),
            forget=self._hub.forget,
        )
        try:
            router.bind(address.text)
        except zmq.ZMQError as error:
            raise OSError(error.errno, f"cannot listen at {address.text}: {error.strerror}") from None
        self.address: str = router.last_endpoint.rstrip(b"\0").decode()
        self.doorway.bound(int(self.address.rpartition(":")[2]))
        for sock in (router, self.doorway.monitor):
            self._hub.watch(sock.fd, lambda _: None)

    # ---- from the hub

    def tick(self, now: float) -> None:
        """After whatever happened: descriptors of ZeroMQ tell only of changes, so each time all that is there is taken."""
        self._gatekeeper.answer(now)
        self._drain()
        self.doorway.tick(now)
        for peer in list(self._peers.values()):
            if peer.connection is None and now - peer.lost_at > self.grace:
                self._hub.close_session(peer.session)

    def flush(self, until: float) -> None:
        """Wait until all who are connected have what they were sent, but not for longer than that."""
        while time.monotonic() < until and any(peer.behind for peer in self._peers.values()):
            self._router.poll(20)
            self._drain()
            self._pump()

    def close(self) -> None:
        if self._packers is not None:
            self._packers.shutdown(cancel_futures=True)
        self._peers.clear()
        self._hub.forget(self._router.fd)
        self._hub.forget(self.doorway.monitor.fd)
        self.doorway.close()
        self._hub.forget(self._gatekeeper.socket.fd)
        self._gatekeeper.close()
        self._context.destroy(linger=0)

    # ---- what comes

    def _drain(self) -> None:
        """Read what has come. What a connection says that is not listened to is passed over as cheaply as can be: who floods us
        is to pay for it, not our clients."""
        router, doorway = self._router, self.doorway
        doorway.look()
        for count in range(MOST_AT_ONCE):
            try:
                routing = router.recv(zmq.NOBLOCK)
            except zmq.Again:
                if count == 0:
                    return
                break
            connection = doorway.known(routing)
            if connection is None or not connection.refused:
                frames = router.recv_multipart(zmq.NOBLOCK, copy=False)
                if connection is None:
                    connection = doorway.meet(routing, frames[0].get(zmq.SRCFD))
                if not connection.refused:
                    connection.heard = True
                    self._hear(connection, frames)
            else:
                while router.getsockopt(zmq.RCVMORE):
                    router.recv(zmq.NOBLOCK)
        self._hub.wake()  # there may be something to send, or to read

    def _hear(self, connection: Connection, frames: list[Any]) -> None:
        peer: _Peer | None = connection.owner
        try:
            if len(frames) != 1:
                raise ProtocolError(f"a message has one part, here are {len(frames)}")
            number, received, rest = open_envelope(frames[0].buffer)
            if peer is None:
                self._meet(connection, received, rest)
            else:
                peer.hear(number, received, rest)
        except (Refused, OtherVersion) as error:
            self._refuse(connection, str(error), version=isinstance(error, OtherVersion))
        except ProtocolError as error:
            if peer is None:
                self.doorway.refuse(connection)
            else:
                self._refuse(connection, str(error))

    def _meet(self, connection: Connection, received: int, rest: memoryview) -> None:
        """The first word of a connection."""
        if not connection.alive:
            return
        message, body = decode(rest)
        if message.kind == Kind.HELLO:
            peer = _Peer(self, connection)
            connection.owner = peer
            peer.session = self._hub.open_session(peer, read_hello(body))
            self._peers[peer.token] = peer
        elif message.kind == Kind.RESUME:
            token = parse(body, token=str)["token"]
            peer = self._peers.get(token)
            if peer is None:
                raise Refused("the server does not know this session: it was started anew, or waited too long")
            peer.resume(connection, received)
        else:
            raise ProtocolError(f"the first word of a client is HELLO, not {message.kind}")

    def _refuse(self, connection: Connection, text: str, version: bool = False) -> None:
        peer: _Peer | None = connection.owner
        said = encode(Message(Kind.REFUSED), {"text": text[:2000], "version": version})
        with contextlib.suppress(ConnectionError):
            self.post(connection, envelope(0, 0) + said)
        self.doorway.refuse(connection, time.monotonic())
        if peer is not None and peer.session is not None:
            self._hub.close_session(peer.session)

    def _count_refusal(self) -> None:
        self._hub.refused += 1

    def _lost(self, connection: Connection) -> None:
        peer: _Peer | None = connection.owner
        if peer is not None and peer.connection is connection:
            peer.connection, peer.lost_at = None, time.monotonic()

    def part(self, peer: _Peer) -> None:
        """Its session is over. What it was sent last, it should be able to read."""
        self._peers.pop(peer.token, None)
        connection, peer.connection = peer.connection, None
        if connection is not None:
            connection.refused = True  # nothing that it says counts any more
            connection.cut_at = connection.cut_at or time.monotonic() + HELLO_S

    # ---- what goes

    def post(self, connection: Connection, data: Any, copy: bool = True) -> None:
        """Raises ConnectionError when the connection has ended."""
        try:
            self._router.send(connection.routing, zmq.SNDMORE | zmq.NOBLOCK)
            self._router.send(data, zmq.NOBLOCK, copy=copy)
        except zmq.ZMQError as error:
            raise ConnectionError(error.errno, error.strerror) from None

    def pieces(self, batch: Batch) -> tuple[int, list[Any] | None]:
        """The codec, and the pieces of a batch; None while they are being made smaller, which is done once for all clients."""
        parcel = batch.parcel
        if self._codec is None:
            return 0, _cut(parcel)
        if parcel.packed is None:
            if self._packers is None:
                self._packers = concurrent.futures.ThreadPoolExecutor(min(MAX_PACKERS, os.cpu_count() or 1))
            parcel.packed = self._packers.submit(_pack, self._codec, parcel)
            parcel.packed.add_done_callback(lambda _: self._hub.call(self._pump))
        if not parcel.packed.done():
            return self._codec.number, None
        return self._codec.number, parcel.packed.result()

    def _pump(self) -> None:
        for peer in list(self._peers.values()):
            peer.pump()


class _Peer:
    """A client elsewhere, through all its connections: the wire of its session.

    token: by which it shows, on a new connection, who it is.
    lost_at: when it had a connection last, where it has none.
    """

    local = False
    pid = None

    def __init__(self, frontend: Frontend, connection: Connection):
        self.token = secrets.token_hex(16)
        self.session: Session | None = None
        self.connection: Connection | None = connection
        self.lost_at = 0.0
        self._frontend = frontend
        self._link = Link()
        self._allowed = float(MOST_ALLOWED)
        self._allowed_at = time.monotonic()

    @property
    def behind(self) -> bool:
        """Whether it can be reached, and has not got everything."""
        return self.connection is not None and not self._link.idle

    # ---- from the hub

    def send(self, message: Message, body: dict | None = None) -> None:
        if message.kind == Kind.WELCOME:
            body = {**body, "token": self.token, "grace": self._frontend.grace}
        self._link.put(encode(message, body))
        self.pump()

    def send_batch(self, message: Message, batch: Batch) -> None:
        self._link.put((message, batch))
        self.pump()

    def part(self) -> None:
        """It gets nothing more."""
        if self.session is not None:
            self.session.held.clear()  # what it has is a copy
        self.session = None
        self._frontend.part(self)

    gone = part

    # ---- from the frontend

    def pump(self) -> None:
        """Send what there is, as far as it is ready."""
        try:
            while self.connection is not None and (entry := self._link.next()) is not None:
                if not self._send(*entry):
                    return
                self._link.advance()
                self._allowed = min(MOST_ALLOWED, self._allowed + PER_MESSAGE)
        except ConnectionError:
            self.connection.cut()  # its end will be noticed, if it was not yet

    def _send(self, number: int, entry: Any) -> bool:
        post, connection = self._frontend.post, self.connection
        if isinstance(entry, bytes):
            post(connection, self._link.seal(number) + entry)
            return True
        message, batch = entry
        codec_number, pieces = self._frontend.pieces(batch)
        if pieces is None:
            return False
        header = encode(message._replace(nbytes=batch.parcel.nbytes, flags=codec_number))
        post(connection, self._link.seal(number) + header)
        for piece in pieces:
            post(connection, piece, copy=False)
        return True

    def hear(self, number: int, received: int, rest: memoryview) -> None:
        """Raises ProtocolError."""
        self._count()
        for entry in self._link.acknowledge(received):
            if not isinstance(entry, bytes) and self.session is not None:
                self.session.free(entry[0].seq)  # it is there: who would look at it here any more?
        if not len(rest):
            return
        self._link.due(number)
        message, body = decode(rest)
        self._link.arrived()
        if message.kind == Kind.BYE and self.connection is not None:  # it waits until it knows that this is here
            with contextlib.suppress(ConnectionError):
                self._frontend.post(self.connection, self._link.seal())
        if self.session is not None:
            self._frontend._hub.message(self.session, message, body)

    def resume(self, connection: Connection, received: int) -> None:
        """It is back. Raises ProtocolError."""
        self._link.rewind()
        former, self.connection = self.connection, connection
        connection.owner = self
        if former is not None:  # it knows better than we do that this one is over
            former.refused = True
            former.cut()
        self.hear(0, received, memoryview(b""))
        with contextlib.suppress(ConnectionError):  # of its end we shall hear
            self._frontend.post(connection, self._link.seal() + encode(Message(Kind.RESUMED)))
        self.pump()

    def _count(self) -> None:
        """Who says more than there can be reason for is not listened to."""
        now = time.monotonic()
        self._allowed = min(MOST_ALLOWED, self._allowed + (now - self._allowed_at) * PER_SECOND) - 1
        self._allowed_at = now
        if self._allowed < 0:
            raise ProtocolError("so many messages were not called for")


def _cut(parcel: Any) -> list[memoryview]:
    frame = memoryview(parcel.lease)[: parcel.nbytes]
    return [frame[at : at + PIECE_BYTES] for at in range(0, len(frame), PIECE_BYTES)]


def _pack(codec: Codec, parcel: Any) -> list[Any]:
    return [codec.pack(piece) for piece in _cut(parcel)]
