"""A client's connection with a server elsewhere, through all reconnections. Runs in a relay (relay.py), never in a trainer.

    dialling --handshake--> up --HELLO or RESUME--> messages ... --cut--> dialling, for as long as the server keeps the session

A socket of ZeroMQ is used for one connection: so what is in it belongs to that, and what was not acknowledged is sent again on
the next one. Pieces of batches are received where they shall lie.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from ringbuf import memory
from ringbuf._core import copy_into
from ringbuf.net.address import Address
from ringbuf.net.codec import CODECS, Codec, codec
from ringbuf.net.doorway import parse_event
from ringbuf.net.keys import ClientKeys
from ringbuf.net.link import ENVELOPE_BYTES, Link, open_envelope
from ringbuf.net.local import Gone
from ringbuf.net.parcel import Pool
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
from ringbuf.net.zeromq import zmq

__all__ = ["Upstream"]

ATTEMPT_S = 5.0  # to connect and shake hands
PAUSE_S = 0.1  # before the next attempt
MOST_AT_ONCE = 16  # pieces that are read before others have their turn
HANDSHAKES = 3  # that may end without a reason given, before that is one
HEARTBEAT_MS = 2_000
DEAD_MS = 15_000
FAREWELL_S = 10.0
MOST_BYTES = ENVELOPE_BYTES + HEADER_BYTES + BODY_BYTES

EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
)


class Upstream:
    """One session.

    ready: called once, when the first handshake succeeded.
    heard: called with each message of the server, and its body; of a BATCH with its parcel.
    failed: called once, with the error with which it ended.
    timeout: seconds for the first connection; None for as long as it takes.
    pool: where batches are received; to be set before the first one is asked for.
    asked: the number of the last batch that was.
    """

    def __init__(
        self,
        context: zmq.Context,
        address: Address,
        keys: ClientKeys | None,
        *,
        timeout: float | None,
        ready: Callable[[], None],
        heard: Callable[[Message, Any], None],
        failed: Callable[[Exception], None],
    ):
        self.pool: Pool | None = None
        self.asked = 0
        self.incoming = 0  # number of the batch that is being received, 0 for none
        self._context, self._address, self._keys = context, address, keys
        self._ready, self._heard, self._failed = ready, heard, failed
        self._link = Link()
        self._dealer: zmq.Socket | None = None
        self._monitor: zmq.Socket | None = None
        self._hello: bytes | None = None
        self._token: str | None = None
        self._grace = 0.0
        self._cause = "nobody answered"
        self._handshakes = 0
        self._shaken = False  # this connection can be used
        self._up = False  # and the server knows which session it is for
        self._was_ready = False
        self._over = False
        self._batch: _Receiving | None = None
        self._give_up_at = None if timeout is None else time.monotonic() + timeout
        self._attempt_at = 0.0
        self._attempt_ends = 0.0

    @property
    def sockets(self) -> list[zmq.Socket]:
        """To be waited for; after each call of work() they may be others."""
        return [] if self._dealer is None else [self._dealer, self._monitor]

    @property
    def idle(self) -> bool:
        """Whether the server has everything that was said, or there is no telling it any more."""
        return self._over or not self._up or self._link.idle

    def hello(self, body: dict) -> None:
        """The first word."""
        self._hello = encode(Message(Kind.HELLO), body)
        self._greet()

    def send(self, message: Message, body: dict | None = None) -> None:
        """Kept until the server has it."""
        if message.kind in (Kind.BEGIN, Kind.NEXT):
            self.asked = max(self.asked, message.extra)
        self._link.put(encode(message, body))
        self._pump()

    def work(self) -> None:
        """All that can be done now. Never waits."""
        now = time.monotonic()
        if self._dealer is None:
            if not self._over:
                self._dial(now)
            return
        try:
            self._read()
        except OtherVersion as error:
            self._fail(error)
        except ProtocolError as error:
            self._fail(ConnectionError(f"what came from the server was not understood: {error}"))
            return
        except Gone:  # who is to hear of it; of that the server has still to be told
            raise
        except OSError as error:  # no memory for a batch
            self._fail(error)
            return
        self._watch()
        if self._up and self._link.told < self._link.received:
            self._post(self._link.seal())
        if not self._shaken and self._dealer is not None:
            if self._give_up_at is not None and now > self._give_up_at:
                self._fail(self._despair())
            elif now > self._attempt_ends:
                self._hang_up("nobody answered")

    def take_leave(self) -> None:
        """Say BYE, and wait until the server has heard it, if it can: what its client was not done with is then for others, at
        once and not after the grace time."""
        self.send(Message(Kind.BYE))
        until = time.monotonic() + FAREWELL_S
        while not self.idle and time.monotonic() < until:
            zmq.select(self.sockets, [], [], 0.05)
            self.work()

    def close(self) -> None:
        self._over = True
        self._close_sockets()

    # ---- connections

    def _dial(self, now: float) -> None:
        if self._give_up_at is not None and now > self._give_up_at:
            self._fail(self._despair())
            return
        if now < self._attempt_at:
            return
        self._attempt_at, self._attempt_ends = now + PAUSE_S, now + ATTEMPT_S
        try:
            family = socket.AF_INET6 if self._address.is_v6 else socket.AF_INET
            host = socket.getaddrinfo(self._address.host, self._address.port, family, socket.SOCK_STREAM)[0][4][0]
        except OSError as error:
            self._cause = f"the host is not known ({error.strerror or error})"
            return
        dealer = self._context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.reconnect_ivl = -1
        dealer.connect_timeout = dealer.handshake_ivl = int(ATTEMPT_S * 1000)
        dealer.heartbeat_ivl, dealer.heartbeat_timeout = HEARTBEAT_MS, DEAD_MS
        dealer.maxmsgsize = PIECE_BYTES + MOST_BYTES
        dealer.rcvhwm = dealer.sndhwm = 0  # what was asked for bounds it; at a mark libzmq may abort, see remote.py
        dealer.ipv6 = self._address.is_v6
        if self._keys is not None:
            dealer.curve_publickey, dealer.curve_secretkey = self._keys.public, self._keys.secret
            dealer.curve_serverkey = self._keys.server
        self._monitor = dealer.get_monitor_socket(EVENTS)
        self._dealer = dealer
        self._shaken = self._up = False
        dealer.connect(Address(host, self._address.port).text)

    def _watch(self) -> None:
        """What became of the connection."""
        while self._monitor is not None:
            try:
                parts = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._note(*parse_event(parts[0]))

    def _note(self, event: int, value: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._shaken = True
            if not self._was_ready:
                self._was_ready = True
                self._ready()
            self._greet()
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self._fail(
                PermissionError(
                    f"{self._where} does not allow this client's key; is it in clients/ of the server's keys?"
                )
            )
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            self._fail(self._explain(value))
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._handshakes += 1
            self._hang_up("the connection was closed before anything was said")
            if not self._was_ready and self._handshakes >= HANDSHAKES:
                self._fail(self._guess())
        elif event == zmq.EVENT_CLOSED:
            self._hang_up("the connection was refused, or there is no way to the host")
        elif event == zmq.EVENT_DISCONNECTED:
            if self._shaken:
                self._read_rest()
            self._hang_up("the connection was cut")

    def _explain(self, value: int) -> Exception:
        if value != zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return ConnectionError(
                f"what answers at {self._address.text} is no server of ringbuf (0x{value & 0xFFFFFFFF:x})"
            )
        if self._keys is None:
            return PermissionError(
                f"{self._where} asks for keys; pass keys=, a folder with client.secret and server.public"
            )
        return PermissionError(
            f"{self._where} was started without keys, so it cannot be told from others; keys= were given"
        )

    def _guess(self) -> Exception:
        """Who does not trust a key says nothing."""
        likely = (
            "does it ask for keys?" if self._keys is None else "is server.public its key, and was it started with keys?"
        )
        return PermissionError(f"{self._where} ended {HANDSHAKES} handshakes without a word; {likely}")

    @property
    def _where(self) -> str:
        return f"the server at {self._address.text}"

    def _greet(self) -> None:
        if not self._shaken or self._up or self._hello is None:
            return
        self._link.rewind()
        if self._token is None:
            self._up = True
            self._post(self._link.seal() + self._hello)
        else:
            self._post(self._link.seal() + encode(Message(Kind.RESUME), {"token": self._token}))

    def _hang_up(self, cause: str) -> None:
        """This connection is over; there may be another one."""
        was_up = self._up
        self._cause = cause
        self._close_sockets()
        if self._over:
            return
        if was_up and self._token is None:
            self._link = Link()  # the server may not have heard of us at all
        if was_up:
            self._give_up_at = time.monotonic() + self._grace
        self._attempt_at = time.monotonic() + PAUSE_S

    def _close_sockets(self) -> None:
        self._batch, self.incoming = None, 0
        self._shaken = self._up = False
        if self._dealer is not None:
            dealer, monitor, self._dealer, self._monitor = self._dealer, self._monitor, None, None
            dealer.disable_monitor()
            monitor.close(linger=0)
            dealer.close(linger=0)

    def _despair(self) -> Exception:
        if self._token is not None:
            return ConnectionError(f"{self._where} could not be reached for {self._grace:g} s: {self._cause}")
        return ConnectionError(
            f"{self._where} could not be reached: {self._cause}; does it run, and is that its address?"
        )

    def _fail(self, error: Exception) -> None:
        if not self._over:
            self.close()
            self._failed(error)

    # ---- what goes

    def _pump(self) -> None:
        while self._up and (entry := self._link.next()) is not None:
            number, data = entry
            self._post(self._link.seal(number) + data)
            self._link.advance()

    def _post(self, data: bytes) -> None:
        try:
            self._dealer.send(data, zmq.NOBLOCK)
        except zmq.Again:  # no connection any more, as its monitor is about to say
            pass

    # ---- what comes

    def _read(self) -> None:
        for _ in range(MOST_AT_ONCE):
            if self._dealer is None or not self._read_one():
                return

    def _read_rest(self) -> None:
        while self._dealer is not None and self._read_one():
            pass

    def _read_one(self) -> bool:
        try:
            if self._batch is not None:
                self._batch.receive(self._dealer)
            else:
                self._hear(self._dealer.recv(zmq.NOBLOCK))
        except zmq.Again:
            return False
        if self._dealer is not None and self._dealer.rcvmore:
            raise ProtocolError("a message has more than one part")
        if self._batch is not None and self._batch.complete:
            batch, self._batch, self.incoming = self._batch, None, 0
            self._link.arrived()
            self._heard(batch.message, self.pool.take(batch.claim, batch.message.nbytes))
        return True

    def _hear(self, data: bytes) -> None:
        if len(data) > MOST_BYTES:
            raise ProtocolError(f"a message has at most {MOST_BYTES} bytes, here are {len(data)}")
        number, received, rest = open_envelope(memoryview(data))
        if not len(rest):
            self._link.acknowledge(received)
            return
        message, body = decode(rest)
        if message.kind != Kind.REFUSED:  # whoever says that may know nothing of the session
            self._link.acknowledge(received)
        if message.kind == Kind.RESUMED and self._token is not None:
            self._up = True
            self._pump()
        elif message.kind == Kind.REFUSED:
            self._refused(message, body)
        else:
            self._link.due(number)
            if message.kind == Kind.BATCH:
                self._begin(message)
                return
            self._link.arrived()
            if message.kind == Kind.WELCOME:
                said = parse(body, token=str, grace=(int, float))
                self._token, self._grace = said["token"], said["grace"]
            self._heard(message, body)

    def _refused(self, message: Message, body: memoryview) -> None:
        if self._token is None:
            self._heard(message, body)
        else:
            self._fail(ConnectionError(parse(body, text=str)["text"]))

    def _begin(self, message: Message) -> None:
        """A batch is coming. Its size is looked at before there is any memory for it."""
        free = memory.free_bytes(named=False)
        if not HEADER_BYTES <= message.nbytes <= free:
            raise ProtocolError(f"a batch of {message.nbytes} bytes was announced, and there are {free} of memory here")
        if message.flags and message.flags not in CODECS.values():
            raise ProtocolError(f"the batch is compressed in a way that is not known here: {message.flags}")
        if self.pool is None or self.pool.free < 1 or message.seq > self.asked:
            raise ProtocolError("a batch came that was not asked for")
        name = next((name for name, number in CODECS.items() if number == message.flags), None)
        self._batch = _Receiving(message, self.pool.begin(message.nbytes), None if name is None else codec(name))
        self.incoming = message.seq


class _Receiving:
    """A batch of which not all pieces are there."""

    def __init__(self, message: Message, claim: Any, packed_by: Codec | None):
        self.message, self.claim = message, claim
        self._packed_by = packed_by
        self._target = memoryview(claim)
        self._at = 0

    @property
    def complete(self) -> bool:
        return self._at == self.message.nbytes

    def receive(self, dealer: zmq.Socket) -> None:
        """The next piece. Raises zmq.Again, ProtocolError."""
        due = min(PIECE_BYTES, self.message.nbytes - self._at)
        target = self._target[self._at : self._at + due]
        if self._packed_by is None:
            piece = dealer.recv(zmq.NOBLOCK, copy=False).buffer
            if len(piece) != due:
                raise ProtocolError(f"a piece of a batch has {len(piece)} bytes, and {due} were due")
            copy_into(target, piece, streaming=True)  # as recv_into() does, but past the caches: a fifth less time
        else:
            target[:] = self._packed_by.unpack(dealer.recv(zmq.NOBLOCK, copy=False).buffer, due)
        self._at += due
