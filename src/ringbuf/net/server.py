"""A server: a source of batches in a process of its own, and clients that ask for them."""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple

from ringbuf import checks
from ringbuf.errors import RingbufError
from ringbuf.net import local
from ringbuf.net.broadcast import Broadcast
from ringbuf.net.history import History
from ringbuf.net.hub import Hub, Lag
from ringbuf.net.neighbours import Neighbours
from ringbuf.net.parcel import Memory, Pool
from ringbuf.net.protocol import BODY_BYTES, TEXT_BYTES, Kind, clean, version
from ringbuf.net.session import Batch
from ringbuf.net.source import Source
from ringbuf.net.split import Split
from ringbuf.net.status import describe, page

__all__ = ["Server", "drop_client"]

STOP_S = 10.0  # what the hub's thread may take to end


def drop_client(after: float | int) -> Lag:
    """A lag policy for a broadcast: give up the client that the others wait for.

    after: a float: for so many seconds; an int: when it is so many batches behind.
    """
    if isinstance(after, bool) or not isinstance(after, (int, float)) or not after > 0:
        raise ValueError(f"after should be seconds (a float) or batches (an int), more than 0; got {after!r}")
    return Lag(batches=after) if isinstance(after, int) else Lag(seconds=after)


class Server:
    """Serves the batches of `source` to clients that `ringbuf.connect()` to it.

    source: a RingLoader, whose workers write straight into memory that clients of this machine look at; any iterable of
        batches; or a callable that returns one for each epoch, and may take the parameters `epoch`, and `start`, the first
        batch that is wanted.
    name: by which clients on this machine find it.
    bind: an address like `"tcp://127.0.0.1:5557"` for clients elsewhere. Any that is not loopback needs `keys`.
    mode: "split" gives each batch to one client, "broadcast" gives each to all, in the same order.
    epochs: how many there are, then the server stops; None for no end. An iterator, which ends once, is one epoch.
    compress: "lz4" or "zstd" for what goes over the network.
    keys: a folder made by `ringbuf keygen`.
    ahead: batches that are kept ready, at most, also of the next epoch.
    lag: what becomes of a slow client of a broadcast: "block" has the others wait, drop_client(after=...) gives it up.
    clients: of a broadcast: nothing is sent before so many are there.
    grace: seconds for which the session of a remote client outlives its connection.
    max_clients: more are refused.
    http: an address of this machine alone, like `"127.0.0.1:8265"`, for a status page (`/`), the same as JSON (`/status.json`)
        and metrics for Prometheus (`/metrics`).

    `run()` serves until the last epoch is over; `start()` and `stop()`, or `with`, do so in the background.
    """

    def __init__(
        self,
        source: Any,
        name: str | None = None,
        bind: str | None = None,
        *,
        mode: str = "split",
        epochs: int | None = None,
        compress: str | None = None,
        keys: Any = None,
        ahead: int = 8,
        lag: str | Lag = "block",
        clients: int = 1,
        grace: float = 30.0,
        max_clients: int = 256,
        http: str | None = None,
    ):
        if name is None and bind is None:
            raise ValueError("a server needs a name, for clients on this machine, or bind=, for others; got neither")
        self.name = None if name is None else local.server_name(name)
        self.mode = checks.choice("mode", mode, {"split": "split", "broadcast": "broadcast"})
        self.ahead = checks.whole("ahead", ahead, at_least=1, at_most=1024)
        checks.whole("clients", clients, at_least=1, at_most=1024)
        checks.whole("max_clients", max_clients, at_least=1, at_most=1024)
        checks.seconds("grace", grace)
        if epochs is not None:
            checks.whole("epochs", epochs, at_least=1, at_most=1 << 40)
        if lag == "block":
            lag = Lag()
        elif not isinstance(lag, Lag):
            raise ValueError(f"lag should be 'block' or drop_client(after=...), got {lag!r}")
        if self.mode == "split" and not lag.blocks:
            raise ValueError(
                "in mode='split' no client waits for another one; lag=drop_client(...) is for mode='broadcast'"
            )
        if self.mode == "split" and clients != 1:
            raise ValueError(
                f"clients={clients} is for mode='broadcast', which begins when so many are there; in 'split' each client is "
                "served at once"
            )
        if bind is None and (keys is not None or compress is not None):
            raise ValueError("keys= and compress= are for clients elsewhere, and there is no bind= where they could come in")
        if lag.batches is not None and lag.batches >= self.ahead:
            raise ValueError(
                f"no client can be {lag.batches} batches behind while ahead={self.ahead} are kept ready; raise `ahead`"
            )
        self.address: str | None = None
        """Where remote clients find it, once it runs; with the port where 0 was asked for."""
        self.http_address: str | None = None
        """The URL of the status page, once it runs; with the port where 0 was asked for."""
        self._lag, self._clients, self._max_clients = lag, clients, max_clients
        self._remote = None if bind is None else {"bind": bind, "compress": compress, "keys": keys, "grace": grace}
        self._stopped = threading.Event()
        # Whether the hub's thread has; a join() that Ctrl-C interrupts takes a thread for ended.
        self._ended = threading.Event()
        self._memory = Memory()
        self.account = Account()
        self._pool = Pool(
            self._memory, slots=2 * self.ahead + 8, stopped=self._unwanted, waiting=self.account.room_within_source
        )
        self._source = Source(source, self._memory, self._pool, batches_ahead=self.ahead)
        if self._source.once:
            if epochs not in (None, 1):
                raise ValueError(
                    f"{epochs} epochs of an iterator, which ends once, cannot be served; pass the callable that makes it"
                )
            epochs = 1
        self.epochs = epochs
        self._restart: Start | None = None
        self._told_length: int | None = None
        self._failure: BaseException | None = None
        self._hub: Hub | None = None
        self._neighbours: Neighbours | None = None
        self._thread: threading.Thread | None = None
        self._producer: threading.Thread | None = None
        self._running = False
        self.history = History(self._picture)
        """What it did over the last minutes."""
        self._web: Any = None
        self._http: tuple[str, int] | None = None
        if http is not None:
            from ringbuf.net.web import loopback_address  # http.server and what it takes along: for who asks for it

            self._http = loopback_address(http)
        if self._remote is not None:
            from ringbuf.net.remote import check  # needs pyzmq

            check(**self._remote)

    # ---- its life

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until the last epoch is over for every client, or until Ctrl-C. Raises what the source raised.

        ready: called once clients can connect, and `address` and `http_address` are known.
        """
        self._open()
        try:
            if ready is not None:
                ready()
            self._produce()
            while not self._ended.wait(0.2):
                pass
        finally:
            self._close()
        if self._failure is not None:
            raise self._failure

    def start(self) -> Server:
        """Serve in the background. Ctrl-C is the program's own affair."""
        self._open()
        self._producer = threading.Thread(target=self._produce_alone, name="ringbuf-source", daemon=True)
        self._producer.start()
        return self

    def stop(self) -> None:
        """Tell all clients, and end. Idempotent. What clients still look at stays valid."""
        self._stopped.set()
        if self._hub is not None:
            self._hub.stop(Kind.BYE, {"text": "the server was stopped"})
        if self._producer is not None and self._producer is not threading.current_thread():
            self._producer.join(STOP_S)
        self._close()

    def wait(self, timeout: float | None = None) -> bool:
        """After start(): wait until the last epoch is over. Returns False when `timeout` seconds passed before. Raises what the
        source raised."""
        if self._thread is not None and not self._ended.wait(timeout):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def __enter__(self) -> Server:
        return self if self._running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stats(self) -> dict[str, Any]:
        """What the server does, and what each client does, as plain numbers and text."""
        return describe(self, None) if self._hub is None else self._hub.ask(lambda: describe(self, self._hub))

    @property
    def dropped(self) -> tuple[str, ...]:
        """What the clients called themselves that were given up last, because they were too slow; at most 8."""
        return () if self._hub is None else tuple(self._hub.dropped_last)

    def _picture(self) -> dict[str, Any]:
        """In the hub's thread, or before there is one."""
        return describe(self, self._hub)

    @property
    def length(self) -> int | None:
        """Batches of an epoch; None where the source does not know."""
        return self._source.length

    def _open(self) -> None:
        if self._running or self._stopped.is_set():
            raise RingbufError("a server runs once; make a new one")
        self._running = True
        listener = None if self.name is None else local.listen(self.name)
        try:
            self._open_web()
            self._hub = hub = self._make_hub()
            self._neighbours = Neighbours(hub, self._memory, listener)
            hub.frontends.append(self._neighbours)
            if self._remote is not None:
                from ringbuf.net.remote import Frontend  # needs pyzmq

                frontend = Frontend(hub, **self._remote)
                hub.frontends.append(frontend)
                self.address = frontend.address
        except BaseException:
            if listener is not None:
                listener.close()
            self._close_web()
            if self._hub is not None:
                self._hub.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="ringbuf-server", daemon=True)
        self._thread.start()

    def _open_web(self) -> None:
        self.history.tick(time.monotonic())
        if self._http is not None:
            from ringbuf.net.web import Web

            self._web = Web(*self._http, self.history)
            self.http_address = self._web.url

    def _close_web(self) -> None:
        if self._web is not None:
            self._web.close()

    def _make_hub(self) -> Hub:
        return Hub(
            dispatcher=self._dispatcher(0, 0),
            capacity=self.ahead,
            lag=self._lag,
            max_clients=self._max_clients,
            welcome={
                "session": secrets.token_hex(16),
                "mode": self.mode,
                "epochs": self.epochs,
                "name": self.name or "",
                "version": version(),
            },
            describe=lambda after: page(self._picture(), after),
            restart=self._restart_at,
            sample=self.history.tick,
        )

    def _dispatcher(self, epoch: int, index: int) -> Split | Broadcast:
        if self.mode == "split":
            return Split(self.epochs, epoch, index)
        return Broadcast(self.epochs, epoch, index, self._clients)

    def _serve(self) -> None:
        try:
            self._hub.run()
        except BaseException as error:  # a fault of ours: clients see the connection end, run() raises it
            self._failure = self._failure or error
            traceback.print_exc(file=sys.stderr)
        finally:
            self._stopped.set()
            self._ended.set()

    def _close(self) -> None:
        self._stopped.set()
        if self._hub is not None and self._thread is not None:
            self._hub.stop(Kind.BYE, {"text": "the server was stopped"})
            if self._ended.wait(STOP_S):
                self._thread.join()
        self._close_web()
        self._source.close()
        self._pool.close()
        if self._neighbours is not None:
            self._neighbours.forget_what_is_held()

    # ---- the source, in a thread of its own or in that of run()

    def _produce_alone(self) -> None:
        try:
            self._produce()
        except BaseException as error:  # SystemExit, say: clients would wait for ever
            self._fail(error)

    def _produce(self) -> None:
        start: Start | None = Start(0, 0, 0)
        try:
            while start is not None:
                self._produce_from(start)
                start = self._next_start()
        except Exception as error:
            if not self._stopped.is_set():  # or it says that it was closed meanwhile
                self._fail(error)

    def _produce_from(self, start: Start) -> None:
        """All epochs from there on, until there is no more use in it."""
        epochs = itertools.count(start.epoch) if self.epochs is None else range(start.epoch, self.epochs)
        for epoch in epochs:
            first = epoch == start.epoch
            index = start.index if first else 0
            batches = self._source.epoch(epoch, index, anew=first and start.generation > 0)
            exhausted = False
            with contextlib.closing(batches):
                while self._wait_for_room(epoch):
                    with self.account.source:
                        parcel = next(batches, self)
                    if parcel is self or parcel is None:
                        exhausted = parcel is self
                        break
                    self._note(parcel)
                    self._hub.offer(Batch(epoch, index, parcel), start.generation)
                    del parcel
                    index += 1
            if self._unwanted():
                return
            if exhausted and index == 0 and self.epochs is None:
                raise ValueError(f"the source gave no batch in epoch {epoch}, and without epochs= that would go on for ever")
            if self.account.produced == 0:
                self._tell_schema(None)
            self._hub.end_epoch(epoch, index, start.generation)

    def _unwanted(self) -> bool:
        """Whether what the source gives now is of no use any more."""
        return self._stopped.is_set() or self._restart is not None

    def _wait_for_room(self, epoch: int) -> bool:
        with self.account.room:
            return self._hub.wait_for_room(lambda: self._unwanted() or self._hub.dispatcher.wanted_from > epoch)

    def _next_start(self) -> Start | None:
        """Where a client wants the source to begin anew; it may, as long as nobody got anything. None when the server stops."""
        while self._restart is None and not self._stopped.is_set():
            self._stopped.wait(0.1)
        start, self._restart = self._restart, None
        return None if self._stopped.is_set() else start

    def _restart_at(self, epoch: int, index: int) -> bool:
        """In the hub's thread: have the source begin elsewhere."""
        if self._source.once or (self.epochs is not None and epoch >= self.epochs):
            return False
        self._restart = Start(self._hub.begin_anew(self._dispatcher(epoch, index)), epoch, index)
        return True

    def _note(self, parcel: Any) -> None:
        self.account.produced += 1
        self.account.bytes += parcel.nbytes
        self.account.copies += parcel.copied
        if self.account.produced == 1 or self._source.length != self._told_length:
            self._tell_schema(parcel.schema())

    def _tell_schema(self, schema: bytes | None) -> None:
        """What batches are made of; None where there are none, or where that is too long to be told."""
        self._told_length = self._source.length
        text = "" if schema is None else schema.decode("utf-8", "surrogatepass")
        fits = 0 < len(json.dumps(text)) < BODY_BYTES - 100
        body = {"length": self._told_length, "schema": text if text and fits else None}
        self._hub.call(lambda: self._hub.schema_known(body))

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        kind = type(error)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        trace = "".join(traceback.format_exception(error))[-TEXT_BYTES:]
        body = {"kind": clean(name, 200), "text": clean(str(error)), "traceback": clean(trace)}
        self._hub.stop(Kind.FAILED, body)


class Start(NamedTuple):
    """Where the source begins.

    generation: tells what it gives from what it gave before it began anew.
    """

    generation: int
    epoch: int
    index: int


class Account:
    """What the source gave, and how long it took."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.produced = 0
        self.bytes = 0
        self.copies = 0  # batches that the server itself copied into shared memory
        self.source = Stopwatch()  # the source was waited for
        self.room = Stopwatch()  # there was no room for another batch: clients were slower

    @contextlib.contextmanager
    def room_within_source(self) -> Iterator[None]:
        """Where a batch is made and there is no slot for it: that is not the source's time."""
        self.source.__exit__()
        try:
            with self.room:
                yield
        finally:
            self.source.__enter__()


class Stopwatch:
    """Seconds spent inside of `with`, in all. One thread is inside; any may look."""

    def __init__(self) -> None:
        self._state: tuple[float, float | None] = 0.0, None  # before, and since when: always seen together

    @property
    def seconds(self) -> float:
        """Up to now, where it runs."""
        before, since = self._state
        return before if since is None else before + time.monotonic() - since

    @property
    def running_s(self) -> float | None:
        """For how long it has run this time; None where it does not."""
        since = self._state[1]
        return None if since is None else time.monotonic() - since

    def __enter__(self) -> None:
        self._state = self._state[0], time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._state = self.seconds, None
