"""The client's side: a stream of batches from a server, one loop for each epoch.

The stream speaks with its server over a socket for whole messages. It has no thread: all is done in the calls of who iterates. A
batch is views of the server's memory; that it was let go of is told by the views themselves (_window.pyx).
"""

from __future__ import annotations

import contextlib
import copy
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ringbuf import checks, frame
from ringbuf.errors import (
    ClientDropped,
    Closed,
    CorruptSegment,
    RingbufError,
    SessionLost,
    SourceFailed,
    VersionMismatch,
)
from ringbuf.net import local
from ringbuf.net._window import Doorbell, Segment, Window
from ringbuf.net.fields import fields_of
from ringbuf.net.local import Gone, Raw
from ringbuf.net.protocol import COPY, Kind, Message, ProtocolError, encode, parse, version

__all__ = ["Epoch", "Stream", "StreamStats", "connect"]

AHEAD = 2  # batches that are under way to a client while it works on one
LOOK_AGAIN_S = 0.05  # between two looks for a server that is not there yet
SLICE_S = 0.1  # between two looks at whether another thread closed the stream


@dataclass(frozen=True)
class StreamStats:
    """What a stream has received, over all its epochs and sessions."""

    batches: int
    """Batches handed out."""
    bytes: int
    """Their size, as frames."""
    copies: int
    """Batches handed out as private copies, because so many others were held that the server ran short of slots."""
    wait_s: float
    """Seconds waited for a batch."""
    held: int
    """Batches that are looked at now."""
    reconnects: int
    """Sessions begun in the place of lost ones."""


def connect(
    address: str,
    *,
    timeout: float | None = 10.0,
    keys: Any = None,
    join: str = "now",
    ahead: int = AHEAD,
    reconnect: bool = False,
    state: dict | None = None,
    label: str | None = None,
    share: str | None = None,
) -> Stream:
    """Connect to a server: by its name on this machine, or at `"tcp://host:port"`.

    timeout: seconds to wait for it to be there; None for as long as it takes.
    keys: for an address: a folder with this client's keys and the server's public one (`ringbuf keygen`).
    join: of a broadcast: "now" begins in the midst of the epoch, "next" with the next one.
    ahead: batches that may be under way while one is worked on; 2 by default, at most 32.
    reconnect: go on at the same place when the server was started anew, as far as its source can.
    state: from `Stream.state_dict()`: begin where that one was.
    label: what the server calls this client in what it shows.
    share: for an address: several streams of this machine that give the same name here share one download.
    Raises FileNotFoundError, naming the servers that run; ConnectionError, PermissionError, VersionMismatch.
    """
    checks.seconds("timeout", timeout)
    checks.whole("ahead", ahead, at_least=1, at_most=32)
    checks.choice("join", join, {"now": None, "next": None})
    if "://" in address:
        from ringbuf.net.dial import Remote  # needs pyzmq

        dial: Any = Remote(address, keys=keys, share=share, timeout=timeout)
    elif keys is not None or share is not None:
        raise ValueError("keys= and share= are for addresses such as 'tcp://host:5557'; a name means this machine")
    else:
        dial = Local(local.server_name(address))
    stream = Stream(dial, join=join, ahead=ahead, reconnect=reconnect, label=label, timeout=timeout)
    if state is not None:
        stream.load_state_dict(state)
    try:
        stream._open()
    except BaseException:
        stream.close()
        raise
    return stream


class Local:
    """How to reach a server of this machine."""

    local = True

    def __init__(self, name: str):
        self.name = name

    def __call__(self) -> socket.socket:
        return local.connect(self.name)


class Stream:
    """Batches from a server. `for batch in stream:` is one epoch, and ends with it.

    Arrays are views of the server's memory: in "split" they may be written to, in "broadcast" they are read-only. They stay
    valid for as long as they are kept, whatever becomes of the server. A batch counts as done when the next one is asked for;
    if this process dies before, another client gets it.

    local: whether the server is on this machine.
    mode: "split" or "broadcast".
    epochs: how many there are; None for no end.
    epoch: the epoch that the loop is in; between loops, the next one.
    """

    def __init__(self, dial: Any, *, join: str, ahead: int, reconnect: bool, label: str | None, timeout: float | None):
        self._dial = dial
        self._join, self._ahead, self._reconnect, self._label, self._timeout = join, ahead, reconnect, label, timeout
        self._sock: socket.socket | None = None
        self._bell: Doorbell | None = None
        self._poll = select.poll()
        self._inbox: deque[Raw] = deque()  # what the server has said; each is taken out once all is done about it
        self._segments: dict[int, Segment] = {}
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._seq = 0  # of the last batch received
        self._ready: tuple[Any, tuple[int, int]] | None = None  # a batch that was received and not handed out, and its place
        self._place: tuple[int, int] | None = None  # of the batch handed out last, if it is not done yet
        self._at = (0, 0)  # all before it are done
        self._done: set[int] = set()  # and these of its epoch
        self._resume = False  # whether the place counts
        self._loop: object | None = None  # the token of the loop that there is
        self._begun = False  # whether the server knows of that
        self._closed = False
        self._finished = False
        self._to_leave: int | None = None  # a loop was left after this batch, and the server was not told yet
        self._leaving = False  # it was told, and has not answered yet
        self._lost: BaseException | None = None
        self._schema: dict | None = None
        self._warned = False
        self._batches = self._bytes = self._copies = self._reconnects = 0
        self._waited_s = 0.0
        self.local: bool = dial.local
        self.mode = ""
        self.epochs: int | None = None
        self.epoch = 0
        self.name = ""

    # ---- looking at it

    @property
    def fields(self) -> Any:
        """What batches are made of: their nesting with a Field(dtype, shape) for each leaf, as it was in the server's first
        batch. Waits until the server has that."""
        schema = self._wait_for_schema()["schema"]
        if schema is None:
            raise RingbufError("there are no batches, or their description is too long to be sent ahead")
        return fields_of(schema.encode("utf-8", "surrogatepass"))

    def __len__(self) -> int:
        """Batches of an epoch, of all clients together. Raises TypeError where the source does not know."""
        length = self._wait_for_schema()["length"]
        if length is None:
            raise TypeError("the server's source has no length")
        return length

    def stats(self) -> StreamStats:
        """What this stream has received, over all its epochs and sessions."""
        return StreamStats(
            batches=self._batches,
            bytes=self._bytes,
            copies=self._copies,
            wait_s=self._waited_s,
            held=0 if self._bell is None else self._bell.held,
            reconnects=self._reconnects,
        )

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<Stream {self._dial.name!r} {self.mode} epoch {self.epoch}{state}>"

    # ---- batches

    def __iter__(self) -> Epoch:
        """Begin a loop over the next epoch. A loop that was not ended ends with that."""
        self._check_process()
        with self._lock:
            if self._loop is not None:
                self._leave(self._loop)
            self._raise_if_over()
            self._reconnect_if_lost()
            self._say_that_it_left()
            while self._leaving:
                self._hear(until=None)
            self._raise_if_finished()
            self._begun = False  # until the first batch is asked for; who is interrupted before has left nothing
            self._loop = token = object()
            return Epoch(self, token)

    def _begin(self) -> None:
        if not self._begun:
            words, send = [encode(Message(Kind.BEGIN, extra=self._seq + self._ahead))], self._sock.sendmsg
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._begun = True  # no call between this one and the next, see _next(): it is said once
                send(words, [], socket.MSG_NOSIGNAL)

    def _next(self, loop: object) -> Any:
        """The next batch of a loop. A batch is in `_ready` until the very moment when it is handed out, so that no interrupt,
        such as Ctrl-C, loses it."""
        self._check_process()
        while True:
            with self._lock:
                if loop is not self._loop:
                    raise StopIteration
                if self._ready is None:
                    began = time.monotonic()
                    try:
                        self._wait_for_batch(loop)
                    finally:
                        self._waited_s += time.monotonic() - began
            # Python looks for interrupts, and lets other threads run, at calls: there is none from here on.
            if self._ready is not None:
                content, self._place = self._ready
                self._ready = None
                return content

    def _wait_for_batch(self, loop: object) -> None:
        """Until there is one in `_ready`. StopIteration at the end of the epoch."""
        self._raise_if_over()
        self._settle()
        self._reconnect_if_lost()
        self._send(Message(Kind.NEXT, seq=self._seq, extra=self._seq + self._ahead))
        while self._ready is None:
            if self._finished:
                self._raise_if_finished()
                self._loop = None
                self._move(self.epoch + 1)
            if loop is not self._loop:
                raise StopIteration
            self._hear(until=None)

    def _hear(self, until: float | None) -> None:
        """Wait for a message of the server, and act on it."""
        while not self._inbox:
            self._fetch(until, "its next word")
        raw = self._inbox[0]
        try:
            message, body = local.understand(raw)
            self._act_on(message, body, raw)
        except Gone:
            self._recover()
        except (ProtocolError, CorruptSegment) as error:
            self._lose(SessionLost(f"what came from the server was not understood: {error}"))
        if self._inbox and self._inbox[0] is raw:
            self._drop_first()

    def _fetch(self, until: float | None, what: str) -> None:
        """Wait until something is in the inbox."""
        while True:
            if self._closed:
                raise Closed("this stream was closed")
            self._bell.flush()
            with contextlib.suppress(BlockingIOError):
                local.take_in(self._sock, self._inbox)
                return
            left = SLICE_S if until is None else min(SLICE_S, until - time.monotonic())
            if left <= 0:
                raise ConnectionError(f"the server {self._dial.name!r} is there, but {what} did not come in time")
            self._poll.poll(left * 1000)

    def _drop_first(self) -> None:
        for descriptor in local.descriptors_in(self._inbox.popleft()):
            os.close(descriptor)

    def _act_on(self, message: Message, body: memoryview, raw: Raw) -> None:
        """One message of the server. Whoever is interrupted in here does it once more."""
        kind = message.kind
        if kind == Kind.SEGMENT:
            self._map(message, local.descriptors_in(raw))
        elif kind == Kind.LEFT:
            self._move(message.epoch)
            self._seq, self._leaving = message.seq, False
        elif self._leaving and kind in (Kind.BATCH, Kind.END):
            pass  # sent before the server knew that the loop was left
        elif kind == Kind.BATCH and self._loop is not None:
            self._receive(message)
        elif kind == Kind.SCHEMA:
            self._schema = parse(body, length=(int, type(None)), schema=(str, type(None)))
        elif kind == Kind.END and self._loop is not None:
            # No call before the message is gone, as in _receive(): a second time it would end the next loop.
            self.epoch, self._at, self._done = message.epoch + 1, (message.epoch + 1, 0), {*()}
            self._loop = None
            self._inbox.popleft()  # it has no descriptor
        elif kind == Kind.FINISHED:
            self._finished = True
        elif kind == Kind.FAILED:
            said = parse(body, kind=str, text=str, traceback=str)
            text = f"the server's source raised {said['kind']}: {said['text']}\n\nOn the server:\n{said['traceback']}"
            self._lose(SourceFailed(text, **said))
        elif kind in (Kind.DROPPED, Kind.REFUSED, Kind.BYE):
            text = parse(body, text=str)["text"] if len(body) else "the server ended the session"
            if kind == Kind.BYE and self._reconnect:
                self._recover()
            else:
                self._lose(ClientDropped(text) if kind == Kind.DROPPED else SessionLost(text))
        else:
            raise ProtocolError(f"a server does not say {kind} here")

    def _map(self, message: Message, descriptors: list[int]) -> None:
        if message.nbytes == 0:
            self._segments.pop(message.segment, None)  # views of it keep it for as long as they need it
            return
        if len(descriptors) != 1:
            self._lose(SessionLost("the server's memory did not come along; has this process too many open files?"))
        self._segments[message.segment] = Segment(descriptors[0], message.nbytes, bool(message.flags & 1))

    def _receive(self, message: Message) -> None:
        """A batch."""
        segment = self._segments.get(message.segment)
        if segment is None or message.seq != self._seq + 1:
            raise ProtocolError(f"batch {message.seq} in memory {message.segment} was not due")
        window = Window(segment, message.offset, message.nbytes, self._bell, message.seq)
        copied = bool(message.flags & COPY)
        content = frame.read(window, copy=copied)
        if self.mode == "split":
            index = max(self._at[1], message.extra) if message.epoch == self._at[0] else message.extra
            self._move_to(message.epoch, index)
        # No call from here on, see _next(): the message is either not looked at yet, or all of it is done.
        window.owned = True
        self._seq = message.seq
        self.epoch = message.epoch
        self._batches += 1
        self._bytes += message.nbytes
        self._copies += copied
        self._ready = content, (message.epoch, message.index)
        self._inbox.popleft()  # it has no descriptor

    def _settle(self) -> None:
        """What was handed out last is done."""
        if self._place is None:
            return
        epoch, index = self._place
        if self.mode == "broadcast":
            self._at = epoch, index + 1
        else:
            if epoch == self._at[0]:
                self._done.add(index)
            else:
                self._at, self._done = (epoch, 0), {index}
            self._move_to(epoch, self._at[1])
        self._place = None

    def _move_to(self, epoch: int, index: int) -> None:
        """All before `index` of an epoch is done."""
        done = self._done if epoch == self._at[0] else set()
        while index in done:
            index += 1
        self._at, self._done = (epoch, index), {other for other in done if other > index}

    def _move(self, epoch: int) -> None:
        """The next loop is over this epoch."""
        self.epoch, self._at, self._done = epoch, (epoch, 0), {*()}

    def _leave(self, loop: object) -> None:
        """A loop ended before its epoch did."""
        if self._pid != os.getpid() or self._loop is not loop:
            return
        with self._lock:
            if self._loop is not loop:
                return
            if not self._begun:
                self._loop = None
                return
            self._settle()
            seq = self._last_seq
            self._loop, self._ready, self._to_leave = None, None, seq
            self._move(self.epoch + 1)
            self._say_that_it_left()

    def _say_that_it_left(self) -> None:
        if self._to_leave is None or self._sock is None or self._finished:
            return
        words, send = [encode(Message(Kind.LEAVE, seq=self._to_leave))], self._sock.sendmsg
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._to_leave, self._leaving = None, True  # no call between this one and the next, as in _begin()
            send(words, [], socket.MSG_NOSIGNAL)

    @property
    def _last_seq(self) -> int:
        """The number of the batch that was handed out last."""
        return self._seq if self._ready is None else self._seq - 1

    # ---- where it is

    def state_dict(self) -> dict:
        """The place up to which this client is done, the batch in hand included: {"epoch", "index", "done"}. A stream that
        loads it before its first loop, or `connect(..., state=...)`, goes on there, as far as the server's source can.

        epoch, index: all batches before this one are done, in "split" by whomever; done: later ones of the epoch that are, too.
        """
        self._check_process()
        with self._lock:
            if self._place is not None:
                self._settle()
                if self._sock is not None:
                    self._send(Message(Kind.NEXT, seq=self._last_seq, extra=self._seq))
            epoch, index = self._at
            if epoch < self.epoch:  # nothing of the one that it is in is done
                return {"epoch": self.epoch, "index": 0, "done": []}
            return {"epoch": epoch, "index": index, "done": sorted(self._done)}

    def load_state_dict(self, state: dict) -> None:
        """Begin where the stream was that gave this. Raises RingbufError once a loop has begun."""
        if not isinstance(state, dict) or not {"epoch", "index", "done"} <= state.keys():
            raise TypeError(f"state should be the dict that state_dict() gave, got {state!r}")
        epoch = checks.whole("state['epoch']", state["epoch"], at_least=0, at_most=1 << 40)
        index = checks.whole("state['index']", state["index"], at_least=0, at_most=1 << 40)
        done = {checks.whole("an index in state['done']", other, at_least=0, at_most=1 << 40) for other in state["done"]}
        with self._lock:
            self._raise_if_over()
            if self._batches or self._loop is not None:
                raise RingbufError("a stream that has begun cannot be moved; connect anew, with state=")
            self._at, self._done, self.epoch, self._resume = (epoch, index), done, epoch, True
            if self._sock is not None:
                self._hang_up()
                self._open()

    # ---- the connection

    def _open(self) -> None:
        """Connect, and hear the server's welcome. Tries again while there is none, and while one is about to end."""
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            try:
                self._sock = self._dial()
                self._greet(until)
                return
            except (FileNotFoundError, ConnectionRefusedError, Gone) as error:
                self._hang_up()
                if until is not None and time.monotonic() >= until:
                    if isinstance(error, Gone):
                        raise SessionLost("the server closed the connection before it said anything") from error
                    raise
            except BaseException:
                self._hang_up()
                raise
            time.sleep(LOOK_AGAIN_S)

    def _greet(self, until: float | None) -> None:
        self._bell = Doorbell(self._sock, encode(Message(Kind.FREE)))
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)
        self._seq = 0
        self._place = None
        self._to_leave, self._leaving, self._begun = None, False, False
        hello: dict[str, Any] = {
            "version": version(),
            "label": self._label or f"process {os.getpid()}",
            "join": self._join,
        }
        if self._resume:
            hello.update(at=list(self._at), done=sorted(self._done)[:4096])
        self._send(Message(Kind.HELLO), hello)
        self._fetch(until, "a word of welcome")
        message, body = local.understand(self._inbox[0])
        if message.kind == Kind.REFUSED:
            said = parse(body, text=str, version=(bool, type(None)))
            error = VersionMismatch if said.get("version") else SessionLost
            raise error(f"the server refused this client: {said['text']}")
        if message.kind != Kind.WELCOME:
            raise ProtocolError(f"a server's first word is WELCOME, not {message.kind}")
        said = parse(body, mode=str, epochs=(int, type(None)), name=str, epoch=(int, type(None)))
        if said["mode"] not in ("split", "broadcast"):
            raise ProtocolError(f"a server's mode is split or broadcast, not {said['mode']!r}")
        self.mode = said["mode"]
        self.epochs, self.name = said["epochs"], said["name"]
        if not self._resume and said.get("epoch"):
            self._move(said["epoch"])
        self._resume = True
        self._drop_first()

    def _wait_for_schema(self) -> dict:
        self._check_process()
        with self._lock:
            until = None if self._timeout is None else time.monotonic() + self._timeout
            while self._schema is None:  # it comes before any batch, and before the end of an epoch that has none
                self._raise_if_over()
                if self._finished:
                    raise SessionLost("the server's epochs are over, and it has stopped")
                self._reconnect_if_lost()
                self._hear(until)
            return self._schema

    def _send(self, message: Message, body: dict | None = None) -> None:
        """To a server that is gone there is nothing to say; that it is gone shows once all is read that it has said."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._sock.sendmsg([encode(message, body)], [], socket.MSG_NOSIGNAL)

    def _recover(self) -> None:
        """The server is gone. Go on with the next one, if that is wanted."""
        if not self._reconnect:
            self._lose(SessionLost(f"the server {self._dial.name!r} went away; batches that were received stay valid"))
        self._settle()
        self._hang_up()
        self._reconnect_if_lost()

    def _reconnect_if_lost(self) -> None:
        """Be connected, and have the server know of the loop that there is; an interrupt may have come between."""
        if self._sock is None:
            try:
                self._open()
            except (OSError, RingbufError) as error:
                self._lose(SessionLost(f"the server {self._dial.name!r} went away, and another could not be had: {error}"))
            self._reconnects += 1
        if self._loop is not None:
            self._begin()

    def _lose(self, error: BaseException) -> None:
        self._lost = error
        self._loop = None
        self._hang_up()
        raise copy.copy(error)  # its traceback keeps what the caller has in hands, for as long as it is kept itself

    def _raise_if_over(self) -> None:
        if self._closed:
            raise Closed("this stream was closed; connect again")
        if self._lost is not None:
            raise copy.copy(self._lost)

    def _raise_if_finished(self) -> None:
        if self._finished and (self.epochs is None or self.epoch >= self.epochs):
            self._loop = None
            raise Closed(f"the server's {self.epochs} epochs are over, and it has stopped")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(f"this stream belongs to process {self._pid}; in a forked process connect anew")

    def _hang_up(self) -> None:
        """End the connection, but for what it is needed for by views that are held."""
        goodbye = encode(Message(Kind.BYE, seq=self._last_seq))
        sock, bell = self._sock, self._bell
        self._sock = self._bell = self._ready = None
        self._segments = {}
        while self._inbox:
            self._drop_first()
        if bell is not None:
            bell.part(goodbye)
        elif sock is not None:
            sock.close()

    def close(self) -> None:
        """End the session: what was not done goes to other clients. What is held stays valid. Idempotent. A thread that waits for
        a batch gets Closed, within a moment."""
        if os.getpid() != self._pid:
            if self._bell is not None:
                self._bell.hang_up()
            return
        self._closed = True
        with self._lock:
            if self._sock is not None and self._place is not None:
                done = Message(Kind.NEXT, seq=self._last_seq, extra=self._last_seq)
                with contextlib.suppress(OSError):
                    self._sock.send(encode(done), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            self._loop = None
            self._hang_up()
            close = getattr(self._dial, "close", None)
            if close is not None:
                close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Epoch:
    """One loop over a stream. Ends with its epoch; when it is dropped before, the rest of the epoch is left to others."""

    def __init__(self, stream: Stream, token: object):
        self._stream = stream
        self._token = token  # which the stream has, and not this, or this would not be dropped

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._stream._next(self._token)

    def close(self) -> None:
        """Leave the epoch. Idempotent."""
        self._stream._leave(self._token)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
