"""The thread in which a server talks: everything that concerns sessions happens here, in turn.

    source --(producer's thread)--> offer() --queue--> [Split or Broadcast] --steps()--> wires --> clients

The producer waits in wait_for_room() while there is as much on the shelf as it may hold; nothing else waits for anything.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ringbuf.net.broadcast import Broadcast
from ringbuf.net.local import Gone
from ringbuf.net.protocol import COPY, Kind, Message, ProtocolError, clean, parse
from ringbuf.net.session import Batch, Session
from ringbuf.net.split import Split

__all__ = ["Hub", "Lag", "Refused"]

TICK_S = 0.2
HELLO_S = 5.0  # to say HELLO after knocking
FLUSH_S = 5.0  # what clients may take to read the last messages
MOST_STRANGERS = 64  # connections that have not said HELLO yet


class Refused(Exception):
    """A client cannot be served as it wants to be; the text says why."""


class Lag:
    """What becomes of a client of a broadcast that is too slow.

    seconds: it is given up when the others have waited for it for so long; None for never.
    batches: ... when it is so many batches behind.
    """

    def __init__(self, seconds: float | None = None, batches: int | None = None):
        self.seconds, self.batches = seconds, batches

    @property
    def blocks(self) -> bool:
        return self.seconds is None and self.batches is None


class Hub:
    """Sessions, and what they are sent.

    dispatcher: who gets which batch.
    capacity: batches that may lie on the shelf.
    welcome: what every client is told first.
    describe: gives the answer to a STATUS, of the clients with numbers above its argument.
    sample: called with the time in every turn.
    """

    def __init__(
        self,
        *,
        dispatcher: Split | Broadcast,
        capacity: int,
        lag: Lag,
        max_clients: int,
        welcome: dict[str, Any],
        describe: Callable[[int], dict[str, Any]],
        restart: Callable[[int, int], bool],
        sample: Callable[[float], None] = lambda now: None,
    ):
        self.dispatcher = dispatcher
        self.sessions: list[Session] = []
        self.frontends: list[Any] = []  # the ways to clients: Neighbours, and Frontend for those elsewhere
        self.refused = 0  # connections that spoke wrongly, or were not allowed
        self.dropped = 0  # clients that were too slow
        self.dropped_last: deque[str] = deque(maxlen=8)  # what they called themselves
        self.served = 0  # clients that there were, in all
        self._capacity = capacity
        self._lag = lag
        self._max_clients = max_clients
        self._welcome = welcome
        self.describe = describe
        self._restart = restart
        self._sample = sample
        self._numbers = itertools.count(1)
        self._schema: dict[str, Any] | None = None
        self._incoming: deque[tuple[int, Batch | tuple[int, int]]] = deque()
        self._generation = 0
        self.begins_at = 0, 0  # the place from which on the source gives
        self._calls: deque[Callable[[], None]] = deque()
        self._room = threading.Condition()
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waking = threading.Lock()  # a descriptor that is closed may be somebody else's the next moment
        self._thread: threading.Thread | None = None
        self._over = False
        self._stopping = False
        self._goodbye: tuple[Message, dict | None] | None = None
        self.watch(self._wake_fd, lambda _: self._awake())

    # ---- from the producer's thread

    def wait_for_room(self, unless: Callable[[], bool]) -> bool:
        """Wait until another batch may be offered. False as soon as `unless()`."""
        with self._room:
            while not unless():
                if self.incoming + self.dispatcher.stored < self._capacity:
                    return True
                self._room.wait(TICK_S)
        return False

    @property
    def incoming(self) -> int:
        """What was offered and is not on the shelf yet."""
        return len(self._incoming)

    def offer(self, batch: Batch, generation: int) -> None:
        self._incoming.append((generation, batch))
        self.wake()

    def end_epoch(self, epoch: int, length: int, generation: int) -> None:
        self._incoming.append((generation, (epoch, length)))
        self.wake()

    def call(self, function: Callable[[], None]) -> None:
        """Have this done in the hub's thread."""
        self._calls.append(function)
        self.wake()

    def ask(self, function: Callable[[], Any]) -> Any:
        """Have this done in the hub's thread, while nothing changes, and return what it returns; here, once that has ended."""
        if self._thread is None or self._over or self._thread is threading.current_thread():
            return function()
        answers: list[Any] = []
        answered = threading.Event()

        def answer() -> None:
            try:
                answers.append(function())
            finally:
                answered.set()

        self.call(answer)
        while not answered.wait(TICK_S) and not self._over:
            pass
        return answers[0] if answers else function()

    def wake(self) -> None:
        with self._waking, contextlib.suppress(BlockingIOError):
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def stop(self, kind: int = Kind.BYE, body: dict | None = None) -> None:
        """Tell every client, and end."""

        def end() -> None:
            if not self._stopping:
                self._goodbye = Message(kind), body
                self._stopping = True

        self.call(end)

    # ---- the loop

    def watch(self, fd: int, handler: Callable[[int], None], edge: bool = False) -> None:
        """Have `handler(events)` called when there is something to read from a descriptor; at an `edge`, when there is more."""
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN | (select.EPOLLET if edge else 0))

    def forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def run(self) -> None:
        """Until stop(), or until the last epoch is over for everybody."""
        self._thread = threading.current_thread()
        try:
            while not self._stopping:
                self._turn()
                if self.dispatcher.finished and not self._incoming:
                    self._goodbye = Message(Kind.FINISHED), None
                    break
            self._say_goodbye()
        finally:
            self.close()

    def _turn(self) -> None:
        for fd, events in self._epoll.poll(TICK_S):
            handler = self._handlers.get(fd)
            if handler is not None:
                handler(events)
        while self._calls:
            self._calls.popleft()()
        self._take_in()
        self._send_out()
        self._tick(time.monotonic())

    def _awake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def _take_in(self) -> None:
        while self._incoming:
            generation, entry = self._incoming[0]
            if generation != self._generation:
                pass
            elif isinstance(entry, Batch):
                self.dispatcher.add(entry)
            else:
                self.dispatcher.end_epoch(*entry)
            self._incoming.popleft()  # only now: what is in neither place would not count as stored

    def _send_out(self) -> None:
        broken = []
        for session, step in self.dispatcher.steps():
            try:
                self._send(session, step)
            except (Gone, OSError):
                broken.append(session)
        for session in broken:
            self.close_session(session)
        with self._room:
            self._room.notify_all()
        if broken:
            self._send_out()

    def _send(self, session: Session, step: Batch | int | None) -> None:
        if isinstance(step, Batch):
            seq = session.send(step)
            flags = COPY if step.parcel.scarce else 0
            message = Message(
                Kind.BATCH, seq=seq, epoch=step.epoch, index=step.index, extra=self.dispatcher.first_open, flags=flags
            )
            session.wire.send_batch(message, step)
        elif step is None:
            session.wire.send(Message(Kind.FINISHED))
        else:
            session.wire.send(Message(Kind.END, epoch=session.epoch - 1, index=step))

    def _tick(self, now: float) -> None:
        self._sample(now)
        for frontend in self.frontends:
            frontend.tick(now)
        if not self._lag.blocks:
            full = self.dispatcher.stored >= self._capacity
            for session in list(self.sessions):
                if self.dispatcher.is_late(
                    session, now, seconds=self._lag.seconds, batches=self._lag.batches, full=full
                ):
                    self._drop(session)

    def _drop(self, session: Session) -> None:
        self.dropped += 1
        self.dropped_last.append(session.label)
        text = (
            f"the server gave this client up: it was {self.dispatcher.lag(session)} batches behind, and the others waited "
            "for it; be quicker, or have the server wait (lag='block')"
        )
        with contextlib.suppress(Gone, OSError):
            session.wire.send(Message(Kind.DROPPED), {"text": text})
        self._part(session)

    # ---- sessions

    def schema_known(self, body: dict[str, Any]) -> None:
        """What batches are made of; told to everybody who is there, and to those who come."""
        self._schema = body
        for session in list(self.sessions):
            self.tell(session, Message(Kind.SCHEMA), body)

    def begin_anew(self, dispatcher: Split | Broadcast) -> int:
        """Forget what the source gave so far. Returns the generation of what counts from now on."""
        if isinstance(dispatcher, Broadcast):
            dispatcher.take_over(self.dispatcher)
        self.dispatcher = dispatcher
        self._generation += 1
        return self._generation

    def open_session(self, wire: Any, hello: dict[str, Any]) -> Session:
        """A client said HELLO. Raises Refused."""
        clients = len(self.sessions) + sum(frontend.parted for frontend in self.frontends)
        if clients >= self._max_clients:
            raise Refused(f"the server has {clients} clients, which is as many as it takes")
        number = next(self._numbers)
        session = Session(number, clean(hello.get("label") or f"client {number}", 80), wire)
        if hello.get("at") is None:
            self.dispatcher.join(session, now=hello.get("join") != "next")
        else:
            self._join_at(session, *hello["at"], hello.get("done") or [])
        try:
            epoch = self.dispatcher.epoch_of(session)
            wire.send(Message(Kind.WELCOME), {**self._welcome, "client": number, "epoch": epoch})
            if self._schema is not None:
                wire.send(Message(Kind.SCHEMA), self._schema)
        except BaseException:  # it went away as soon as it had come
            self.dispatcher.remove(session)
            raise
        self.sessions.append(session)
        self.served += 1
        return session

    def _join_at(self, session: Session, epoch: int, index: int, done: list[int]) -> None:
        """A client knows how far it had come, when it or the server was another one."""
        elsewhere = (
            (epoch, index) != self.begins_at if not self.sessions else not self.dispatcher.begins_before(epoch, index)
        )
        if self.dispatcher.delivered == 0 and elsewhere:
            if not self._restart(epoch, index):
                raise Refused(f"the source cannot begin at batch {index} of epoch {epoch}")
            self.begins_at = epoch, index
        self.dispatcher.join(session)
        why_not = self.dispatcher.begin_at(session, epoch, index, done)
        if why_not is not None:
            self.dispatcher.remove(session)
            raise Refused(why_not)

    def message(self, session: Session, message: Message, body: memoryview) -> None:
        """A client said something. Raises ProtocolError."""
        kind = message.kind
        if kind == Kind.NEXT:
            self.dispatcher.go_on(session, message.seq, message.extra)
        elif kind == Kind.FREE:
            session.free(message.seq)
        elif kind == Kind.BEGIN:
            self.dispatcher.begin(session, message.extra)
        elif kind == Kind.LEAVE:
            self.dispatcher.leave(session, message.seq)
            session.wire.send(Message(Kind.LEFT, seq=session.sent, epoch=self.dispatcher.epoch_of(session)))
        elif kind == Kind.BYE:
            session.forget_after(message.seq)
            self._part(session)
        else:
            raise ProtocolError(f"a client does not say {kind} after its HELLO")

    def close_session(self, session: Session) -> None:
        """A client is gone, and what it was not done with is for others."""
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        session.wire.gone()
        session.held.clear()
        self.dispatcher.remove(session)

    def _part(self, session: Session) -> None:
        """A client gets nothing more. What it still looks at stays as it is, until it has let go of that or is gone."""
        self.sessions.remove(session)
        self.dispatcher.remove(session)
        session.wire.part()

    def tell(self, session: Session, message: Message, body: dict | None = None) -> None:
        try:
            session.wire.send(message, body)
        except (Gone, OSError):
            self.close_session(session)

    # ---- the end

    def _say_goodbye(self) -> None:
        message, body = self._goodbye
        for session in list(self.sessions):
            self.tell(session, message, body)
        until = time.monotonic() + FLUSH_S
        for frontend in self.frontends:
            frontend.flush(until)

    def close(self) -> None:
        """Idempotent."""
        if self._over:
            return
        for frontend in self.frontends:
            frontend.close()
        for session in list(self.sessions):
            self.close_session(session)
        self._stopping = self._over = True
        with self._room:
            self._room.notify_all()
        self._epoll.close()
        with self._waking:
            os.close(self._wake_fd)
            self._wake_fd = -1


def read_hello(body: memoryview) -> dict[str, Any]:
    """The body of a HELLO. Raises ProtocolError."""
    none = type(None)
    hello = parse(body, version=str, label=(str, none), join=(str, none), at=(list, none), done=(list, none))
    for name, most in (("at", 2), ("done", 4096)):
        numbers = hello.get(name)
        if numbers is not None and not (
            len(numbers) <= most and all(type(n) is int and 0 <= n < 1 << 40 for n in numbers)
        ):
            raise ProtocolError(f"{name!r} of a HELLO should be up to {most} whole numbers")
    if hello.get("at") is not None and len(hello["at"]) != 2:
        raise ProtocolError("'at' of a HELLO should be an epoch and the index of a batch")
    if hello.get("join") not in (None, "now", "next"):
        raise ProtocolError("'join' of a HELLO should be now or next")
    return hello
