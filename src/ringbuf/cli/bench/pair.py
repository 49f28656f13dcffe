"""Two processes and a RingBuffer: 64 bytes by put and get, and how soon the one that sleeps has what the other puts."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from statistics import median

from ringbuf.buffer import RingBuffer
from ringbuf.cli.outcome import Failed
from ringbuf.errors import RingbufError

__all__ = ["Pair", "pair"]

SLOTS, SLOT_BYTES = 64, 256
PILOT = 500  # messages
NAP_S = 0.002  # long enough for the other to be asleep
PATIENCE_S = 20.0


class Pair:
    """This process, which receives, and another that sends when it is told to."""

    def __init__(self, ring: RingBuffer, orders: Connection, run_s: float):
        self._ring, self._orders = ring, orders
        self._run_s = run_s
        self._count = PILOT
        self.arrived = 0  # messages and wake-ups

    def warm_up(self) -> None:
        """Find out how many messages a run should have."""
        while (elapsed_s := self._messages()) < self._run_s / 4:
            self._count *= 4
        self._count = max(PILOT, round(self._count * self._run_s / elapsed_s))

    def rate(self) -> float:
        """Messages per second, from when the sender, which has them in hand, is told to go."""
        return self._count / self._messages()

    def wake_s(self) -> float:
        """Seconds from just before a put until the consumer, which slept, has the message: the median of a run."""
        count = max(5, round(self._run_s / NAP_S))
        self._order("wakes", count)
        taken = []
        for _ in range(count):
            sent_ns = self._get()
            taken.append(time.perf_counter_ns() - sent_ns)  # one clock for all processes of a machine
        self.arrived += count
        return median(taken) / 1e9

    def _messages(self) -> float:
        self._order("messages", self._count)
        start = time.perf_counter()
        got = [self._get() for _ in range(self._count)]
        elapsed_s = time.perf_counter() - start
        for number, message in enumerate(got):
            if message != (want := _message(number)):
                raise Failed(f"RingBuffer: message {number} of {len(got)} should be {want!r}, got {message!r}")
        self.arrived += len(got)
        return elapsed_s

    def _order(self, what: str, count: int) -> None:
        try:
            self._orders.send((what, count))
            if not self._orders.poll(PATIENCE_S):
                raise Failed(f"RingBuffer: the other process was not ready within {PATIENCE_S:g} s")
            self._orders.recv()
            self._orders.send("go")
        except (EOFError, OSError):
            raise Failed("RingBuffer: the other process died") from None

    def _get(self):
        try:
            return self._ring.get(timeout=PATIENCE_S)
        except RingbufError as error:
            raise Failed(f"RingBuffer: the other process sends nothing: {error}") from None


@contextmanager
def pair(run_s: float) -> Iterator[Pair]:
    """Two processes, until the end. run_s: seconds that one run of either kind should take."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    with RingBuffer(SLOTS, SLOT_BYTES) as ring:
        partner = fork.Process(target=_send, args=(ring, theirs, ours), daemon=True)
        partner.start()
        theirs.close()
        try:
            yield Pair(ring, ours, run_s)
        finally:
            partner.kill()
            partner.join()
            partner.close()
            ours.close()


def _send(ring: RingBuffer, orders: Connection, others: Connection) -> None:
    """What the other process does, until it is killed, or nobody is left to tell it anything."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a Ctrl-C the first process tells
    others.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            what, count = orders.recv()
            messages = [_message(number) for number in range(count)] if what == "messages" else []
            orders.send("ready")
            orders.recv()
            for message in messages:
                ring.put(message, timeout=PATIENCE_S)
            for _ in range(count - len(messages)):
                time.sleep(NAP_S)
                ring.put(time.perf_counter_ns(), timeout=PATIENCE_S)


def _message(number: int) -> bytes:
    return number.to_bytes(8, "little") * 8
