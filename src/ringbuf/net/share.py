"""A relay that several trainers of one machine share, by a name: connect(url, share="name").

    "split"      each trainer has a session of its own with the server, for no batch goes to two of them
    "broadcast"  one session: each batch comes over the network once, and all trainers look at the same memory

                 server <--network--> Upstream -- Share --batches--> Server (of this machine) --> trainers

It ends a while after the last trainer has gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from typing import Any

from ringbuf.errors import VersionMismatch
from ringbuf.net import local
from ringbuf.net.address import parse_address
from ringbuf.net.dial import SHARED
from ringbuf.net.keys import load_client
from ringbuf.net.local import Gone
from ringbuf.net.parcel import Parcel, Pool
from ringbuf.net.protocol import Kind, Message, ProtocolError, clean, encode, parse
from ringbuf.net.relay import Relay, object_in, report
from ringbuf.net.server import Server
from ringbuf.net.session import Batch
from ringbuf.net.upstream import Upstream
from ringbuf.net.zeromq import zmq

__all__ = ["Share", "main"]

AHEAD = 4  # batches that are kept ready for all
SLOTS = 4 * AHEAD + 4
TICK_MS = 100
DEAF_S = 0.1  # where no more trainers can be let in
LINGER_S = 2.0


class Share:
    """All trainers that use one name.

    listener: where they come in.
    """

    def __init__(self, listener: socket.socket, address: str, keys: str | None, timeout: float | None):
        listener.setblocking(False)
        self._listener = listener
        self._options = (address, keys, timeout)
        self._context = zmq.Context()
        self._newcomers: list[socket.socket] = []  # who have not been served yet
        self._deaf_until = 0.0
        self._relays: list[Relay] = []
        self._server: _Fan | None = None
        self._mode: str | None = None
        self._ready = self._greeted = self._over = False
        self._hello: dict[str, Any] = {}  # what the first trainer said
        self._failure: tuple[Message, dict] | None = None
        self._used_at = time.monotonic()
        self._upstream: Upstream | None = Upstream(
            self._context,
            parse_address("the address", address),
            None if keys is None else load_client(keys),
            timeout=timeout,
            ready=self._reached,
            heard=self._heard,
            failed=self._failed,
        )

    def run(self) -> None:
        """Until nobody uses it any more."""
        try:
            while not self._over:
                self._wait()
                self._accept()
                if self._upstream is not None:
                    self._upstream.work()
                self._serve()
                self._end_if_unused()
        finally:
            self._close()

    def _wait(self) -> None:
        poller = zmq.Poller()
        waiting: list[Any] = [] if time.monotonic() < self._deaf_until else [self._listener]
        if self._upstream is not None:
            waiting += self._upstream.sockets
        if self._server is not None:
            waiting.append(self._server.wake)
        elif not self._greeted or self._mode == "split":
            waiting += self._newcomers
        for relay in self._relays:
            waiting += relay.poll()
        for sock in waiting:
            poller.register(sock, zmq.POLLIN)
        poller.poll(TICK_MS)

    # ---- trainers

    def _accept(self) -> None:
        while time.monotonic() >= self._deaf_until:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor is left; who wants to come waits, those who are here go on
                self._deaf_until = time.monotonic() + DEAF_S
                return
            if local.peer_of(sock)[1] != os.geteuid():
                sock.close()
                continue
            sock.setblocking(False)
            self._newcomers.append(sock)
            if self._ready:
                report(sock, {"address": self._options[0]})

    def _serve(self) -> None:
        if self._ready and not self._greeted:
            self._greet()
        if self._mode == "split":
            self._relays += [Relay(sock, self._context, *self._options, reports=False) for sock in self._newcomers]
            self._newcomers.clear()
            for relay in self._relays:
                relay.work()
            self._relays = [relay for relay in self._relays if not relay.over]
        elif self._server is not None and self._upstream is not None:
            for sock in self._newcomers:
                self._server.adopt(sock)
            self._newcomers.clear()
            self._server.ask(self._upstream)

    def _greet(self) -> None:
        """What the first trainer wants is what the server is asked for."""
        for sock in list(self._newcomers):
            try:
                message, body, descriptors = local.receive(sock, leave=True)
                for descriptor in descriptors:
                    os.close(descriptor)
                if message.kind != Kind.HELLO:
                    raise ProtocolError("the first word is HELLO")
                self._hello = object_in(body)
                self._upstream.hello(self._hello)
                self._greeted = True
                return
            except BlockingIOError:
                continue
            except (Gone, ProtocolError):
                self._newcomers.remove(sock)
                sock.close()

    def _end_if_unused(self) -> None:
        now = time.monotonic()
        used = self._newcomers or self._relays or (self._server is not None and self._server.used)
        if used:
            self._used_at = now
        elif now - self._used_at > LINGER_S:
            self._over = True
        if self._server is not None and self._server.ended:
            self._over = True

    # ---- the server elsewhere

    def _reached(self) -> None:
        self._ready = True
        for sock in self._newcomers:
            report(sock, {"address": self._options[0]})

    def _heard(self, message: Message, content: Any) -> None:
        kind = message.kind
        if kind == Kind.WELCOME:
            said = parse(content, mode=str, epochs=(int, type(None)), name=str, epoch=(int, type(None)))
            self._mode = said["mode"]
            if self._mode == "split":
                self._farewell()
            else:
                epoch, index = self._hello.get("at") or (said.get("epoch") or 0, 0)
                self._server = _Fan(said["epochs"], epoch, index)
                self._upstream.pool = self._server.slots
                self._server.start()
        elif self._server is not None:
            self._server.heard(message, content)
        elif kind == Kind.REFUSED:
            self._end_all(message, parse(content, text=str, version=(bool, type(None))))

    def _failed(self, error: Exception) -> None:
        text = clean(str(error))
        if self._server is not None:
            self._server.end(Kind.BYE, {"text": text})
        elif self._ready:
            self._end_all(Message(Kind.REFUSED), {"text": text, "version": isinstance(error, VersionMismatch)})
        else:
            for sock in self._newcomers:
                report(sock, {"kind": type(error).__name__, "text": text})
            self._over = True

    def _end_all(self, message: Message, body: dict) -> None:
        for sock in self._newcomers:
            with contextlib.suppress(OSError):
                sock.send(encode(message, body), socket.MSG_NOSIGNAL)
        self._over = True

    def _farewell(self) -> None:
        """This session is over."""
        upstream, self._upstream = self._upstream, None
        upstream.take_leave()
        upstream.close()

    def _close(self) -> None:
        self._listener.close()  # who comes now begins another one
        if self._server is not None:
            self._server.stop()
        if self._upstream is not None:
            self._farewell()
        for relay in self._relays:
            relay.trainer_gone()
        for sock in self._newcomers:
            sock.close()
        self._context.destroy(linger=0)


class _Fan(Server):
    """Gives each batch that comes to all trainers of this machine, with the number that it has elsewhere.

    epoch, index: where the server elsewhere was asked to begin.
    wake: readable when there is room for more. ask() and heard() are called in one thread, batches are offered in another.
    """

    def __init__(self, epochs: int | None, epoch: int, index: int):
        self._begins_at = epoch, index
        super().__init__((), name=f"share.{os.getpid()}", mode="broadcast", epochs=epochs, ahead=AHEAD)
        self._arrived: deque[tuple[Message, Parcel | None]] = deque()  # batches, and ends of epochs
        self._changed = threading.Condition()
        self._slots = Pool(self._memory, SLOTS, stopped=lambda: False)
        self._in_loop = False
        self._received = self._passed_on = self._offered = self._done = 0  # numbers of batches, as they are elsewhere
        self._length: int | None = None
        self.wake, self._waker = socket.socketpair()
        for sock in (self.wake, self._waker):
            sock.setblocking(False)

    @property
    def slots(self) -> Pool:
        return self._slots

    @property
    def used(self) -> bool:
        return bool(self._hub.sessions or self._neighbours.strangers)

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def adopt(self, sock: socket.socket) -> None:
        self._hub.call(lambda: self._neighbours.adopt(sock))

    def end(self, kind: Kind, body: dict) -> None:
        self._hub.stop(kind, body)

    def stop(self) -> None:
        super().stop()
        self._arrived.clear()
        self._slots.close()
        for sock in (self.wake, self._waker):
            sock.close()

    # ---- with the server elsewhere

    def ask(self, upstream: Upstream) -> None:
        """Have it send on, as far as there is room. What all trainers were given is done."""
        with contextlib.suppress(BlockingIOError):
            self.wake.recv(4096)
        waiting = len(self._arrived)
        # In this order, which may count one twice that changes places meanwhile, and never misses one.
        under_way = self._received - self._offered + self._hub.incoming + self._hub.dispatcher.stored
        self._done = max(self._done, self._received - under_way - 1)
        room = min(self._slots.free - (upstream.incoming > 0), AHEAD - waiting)
        limit = max(self._passed_on, self._received + max(0, room))
        if not self._in_loop:
            self._in_loop = True
            upstream.send(Message(Kind.BEGIN, extra=limit))
        elif limit > self._passed_on:
            upstream.send(Message(Kind.NEXT, seq=self._done, extra=limit))
        self._passed_on = limit

    def heard(self, message: Message, content: Any) -> None:
        kind = message.kind
        if kind == Kind.BATCH:
            self._received = message.seq
            self._put(message, content)
        elif kind == Kind.END:
            self._in_loop = False
            self._put(message, None)
        elif kind == Kind.SCHEMA:
            self._length = parse(content, length=(int, type(None)))["length"]
        elif kind == Kind.FAILED:
            self.end(kind, parse(content, kind=str, text=str, traceback=str))
        elif kind in (Kind.BYE, Kind.DROPPED, Kind.REFUSED):
            self.end(Kind.BYE, parse(content, text=str))

    def _put(self, message: Message, parcel: Parcel | None) -> None:
        with self._changed:
            self._arrived.append((message, parcel))
            self._changed.notify_all()

    # ---- in the source's thread

    def _produce(self) -> None:
        while self._hub.wait_for_room(self._unwanted):
            entry = self._next()
            if entry is None:
                return
            message, parcel = entry
            if parcel is None:
                self._hub.end_epoch(message.epoch, message.index, 0)
                continue
            self._source.length = self._length
            self._note(parcel)
            self._hub.offer(Batch(message.epoch, message.index, parcel), 0)
            self._offered = message.seq
            del entry, parcel

    def _next(self) -> tuple[Message, Parcel | None] | None:
        """What has arrived next; None when nobody wants it any more."""
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        with self._changed:
            while not self._arrived:
                if self._unwanted():
                    return None
                self._changed.wait(TICK_MS / 1000)
            return self._arrived.popleft()

    def _dispatcher(self, epoch: int, index: int) -> Any:
        return super()._dispatcher(*self._begins_at)

    def _make_hub(self) -> Any:
        hub = super()._make_hub()
        hub.begins_at = self._begins_at
        return hub

    def _restart_at(self, epoch: int, index: int) -> bool:
        return False  # the server elsewhere was asked for one place


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trainers' affair
    options = json.loads(sys.argv[1])
    try:
        listener = local.listen(options.pop("name"), SHARED)
    except FileExistsError:  # another trainer's was faster
        return
    if os.fork():  # once this one has ended, which the trainer waits for, the name can be found; nobody's child is left
        return
    os.dup2(0, 2)  # /dev/null: who waits for the first trainer's stderr to end shall not wait for us
    Share(listener, **options).run()


if __name__ == "__main__":
    main()
