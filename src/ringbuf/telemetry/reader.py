"""The reading side: one page, looked at from whatever process."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import time
from types import TracebackType
from typing import Any

from ringbuf.errors import CorruptSegment
from ringbuf.telemetry import _meter
from ringbuf.telemetry._meter import Memory, Sizes
from ringbuf.telemetry.events import Cursor, Events, cursor_of, read_events
from ringbuf.telemetry.snapshot import WORD, Snapshot, WorkerSnapshot, header_of, snapshot_of

__all__ = ["Reader"]

MOST_BYTES = 1 << 28
HEADER_BYTES = WORD * Sizes.HEADER


class Reader:
    """Looks at one loader. The loader does not notice, and need not run: a process that hangs or is stopped can be read as well.
    What was read last stays there when the loader is gone.

    name, program: of the loader, and of its trainer's script.
    pid: of the trainer, here; the page's own view of it may differ where that runs in a container.
    started_ns, started_wall_ns: when its first pass began, by CLOCK_MONOTONIC and by the calendar.
    """

    def __init__(self, memory: Any, nbytes: int, pid: int | None = None):
        self._words: memoryview | None = None
        words = memoryview(memory).cast("B")[: nbytes // WORD * WORD].cast("q")
        self._header = header = header_of(words[: Sizes.HEADER].tolist(), nbytes)
        self._rows_end = _meter.row_at(header.rows)
        self._words = words
        self.name, self.program = header.name, header.program
        self.pid = header.pid if pid is None else pid
        self.started_ns, self.started_wall_ns = header.started_ns, header.started_wall_ns

    @classmethod
    def of_descriptor(cls, descriptor: int, pid: int | None = None) -> Reader:
        """Of the page behind a descriptor, which stays the caller's. Raises CorruptSegment for whatever else is there."""
        nbytes = os.fstat(descriptor).st_size
        if not HEADER_BYTES <= nbytes <= MOST_BYTES:
            raise CorruptSegment(
                f"it has {nbytes} bytes, and a loader's page has {HEADER_BYTES} at least and {MOST_BYTES} at most"
            )
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        if not seals & fcntl.F_SEAL_SHRINK:  # reading what is cut off meanwhile would kill this process
            raise CorruptSegment("it could shrink while it is read, which a loader's page cannot")
        return cls(Memory(descriptor, nbytes, writable=False), nbytes, pid)

    def snapshot(self) -> Snapshot:
        """How the loader is now. Raises CorruptSegment where its page makes no sense."""
        snapshot = self.look()
        if self.pid != self._header.pid:  # another namespace: the workers' pids mean nothing here
            return dataclasses.replace(snapshot, pid=self.pid)
        return dataclasses.replace(snapshot, workers=tuple(map(_with_death, snapshot.workers)))

    def look(self) -> Snapshot:
        """The same, without a look at whether workers live that could not say how they ended."""
        taken_ns = time.monotonic_ns()
        return snapshot_of(self._header, self._open()[: self._rows_end].tolist(), taken_ns)

    def events(self, since: Cursor | None = None) -> Events:
        """What was logged since a cursor, at most the last 2048 spans of the consumer and of each worker: that is what the
        quickest loaders do within some 5 ms. None: all that is there."""
        return read_events(self._open(), self._header, since)

    def cursor(self) -> Cursor:
        """Where the logs are now: events(since=...) of it gives what comes from now on."""
        return cursor_of(self._open(), self._header)

    def alive(self) -> bool:
        """Whether the trainer still lives. Its loader may be gone: then find() does not list it any more."""
        return _lives(self.pid)

    def close(self) -> None:
        """Let go of the memory. Idempotent."""
        self._words = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> memoryview:
        if self._words is None:
            raise ValueError("this reader was closed; open() another one")
        return self._words


def _with_death(worker: WorkerSnapshot) -> WorkerSnapshot:
    if worker.state in ("absent", "ended") or _lives(worker.pid):
        return worker
    return dataclasses.replace(worker, state="dead")


def _lives(pid: int) -> bool:
    """Whether there is such a process, and it has not ended. A stopped one lives."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False
