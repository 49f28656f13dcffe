"""What others may see of a loader: its page, and the trace that it writes, from its first pass to its end.

A pass borrows the page, since each row of it has one writer; a second pass at the same time gets another page, with a name of its
own. Passes without workers are this process's own, and share one.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import NamedTuple

from ringbuf.checks import ring_name
from ringbuf.loader.advice import warn
from ringbuf.telemetry._meter import Consumer, ConsumerMeter, WorkerMeter
from ringbuf.telemetry.page import Page
from ringbuf.telemetry.snapshot import Snapshot
from ringbuf.telemetry.tracing import TraceFile, Tracer

__all__ = ["Observation", "Observed", "given_name"]

VARIABLE = "RINGBUF_NAME"


def given_name(name: str | None) -> str | None:
    """What a loader is to be called, by its argument or else by the environment. Raises TypeError and ValueError."""
    if name is not None:
        return ring_name(name)
    name = os.environ.get(VARIABLE) or None
    try:
        return name if name is None else ring_name(name)
    except ValueError as error:
        raise ValueError(f"{VARIABLE} is set, and is no name for a loader: {error}") from None


class Observation(NamedTuple):
    """Of one pass, or one after the other with the same workers."""

    page: Page
    tracer: Tracer | None

    @property
    def meter(self) -> ConsumerMeter:
        return self.page.consumer

    def begin_pass(self, *, epoch: int | None, length: int | None) -> None:
        self.meter.begin_pass(epoch, length)

    def note_ring(self, *, workers: int, slots: int, slot_bytes: int) -> None:
        meter = self.meter
        meter.set(Consumer.WORKERS, workers)
        meter.set(Consumer.SLOTS, slots)
        meter.set(Consumer.SLOT_BYTES, slot_bytes)

    def rest(self) -> None:
        """The pass is over, and its workers are gone."""
        self.meter.rest()
        for row in range(self.page.rows):
            self.page.ended(row)
        self.flush()

    def flush(self) -> None:
        if self.tracer is not None:
            self.tracer.flush()


class Observed:
    """All pages of one loader.

    trace: where a trace goes; None for none.
    """

    def __init__(self, name: str | None, trace: str | None):
        self._name, self._trace = name, trace
        self._pid = os.getpid()
        self._lock = threading.RLock()  # re-entrant: a collection in here may end an iterator, which gives back
        self._all: list[Observation] = []
        self._idle: list[Observation] = []
        self._own: tuple[Observation, WorkerMeter] | None = None
        self._file: TraceFile | None = None
        self._last: list[Snapshot] | None = None  # once it is closed
        self._hide = weakref.finalize(self, _hide, self._all)  # at exit as well: what is not in the trace yet

    def borrow(self, workers: int) -> Observation:
        """A page that nobody uses, with a row for each worker. Raises OSError where no trace can be written."""
        self._begin_anew_after_fork()
        with self._lock:
            while self._idle:
                observation = self._idle.pop()
                if observation.page.rows >= workers:
                    return observation
                observation.page.hide()
            return self._make(workers)

    def give_back(self, observation: Observation) -> None:
        """For the next pass; the workers of this one are gone. Idempotent."""
        observation.rest()
        with self._lock:
            if self._last is None and observation not in self._idle:
                self._idle.append(observation)

    def own(self) -> tuple[Observation, WorkerMeter]:
        """The page of passes without workers, and this process as who makes batches."""
        self._begin_anew_after_fork()
        with self._lock:
            if self._own is None:
                observation = self._make(1)
                self._own = observation, observation.page.worker(0)
            return self._own

    def snapshots(self) -> list[Snapshot]:
        return self._last if self._last is not None else [one.page.snapshot() for one in list(self._all)]

    def close(self) -> None:
        """There will be no further pass, and the pages go. Idempotent; snapshots() are what they were at last."""
        self._last = self.snapshots()
        _hide(self._all)
        self._all.clear()
        self._idle.clear()
        self._own = None
        if self._file is not None:
            self._file.close()

    def _make(self, rows: int) -> Observation:
        if self._trace is not None and self._file is None:
            self._file = TraceFile(self._trace)
        page = Page(self._name, rows)
        tracer = None
        if self._file is not None:
            tracer = Tracer(page, self._file, len(self._all), lambda text: warn(text, RuntimeWarning))
        observation = Observation(page, tracer)
        self._all.append(observation)
        return observation

    def _begin_anew_after_fork(self) -> None:
        if os.getpid() != self._pid:  # the pages are the parent's, and the lock may be held for ever
            for observation in self._all:
                observation.page.hide()
            self._hide.detach()
            Observed.__init__(self, self._name, self._trace)


def _hide(observations: list[Observation]) -> None:
    for observation in observations:
        if observation.page.pid == os.getpid():
            observation.flush()
        observation.page.hide()
