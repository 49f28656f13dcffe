"""The writing side: a loader's page, from its first pass to its end, and who writes into it.

The page is memory without a name in the file system, called `ringbuf-loader:NAME`. Whoever holds its descriptor shows it to all
of this user's processes (search.py), and it goes with the last of them. Where there is no descriptor or no shared memory to be
had, the page is the process's own, and nobody sees it.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import sys
import time
import weakref
from pathlib import Path

from ringbuf.telemetry import _meter
from ringbuf.telemetry._meter import ConsumerMeter, Header, Memory, Worker, WorkerMeter
from ringbuf.telemetry.reader import Reader
from ringbuf.telemetry.snapshot import Snapshot

__all__ = ["Page", "attach"]

RECORDS = 2048  # of each log: of the quickest loaders, those of some 5 ms
NAME_BYTES, PROGRAM_BYTES = 256, 128  # with the zero at the end
WORD = 8

_living: weakref.WeakSet[Page] = weakref.WeakSet()


class Page:
    """For one loader, with rows for so many workers.

    name: what it is called; another living page of this process that is called so makes it NAME-2, or -3.
    Raises OSError where there is not even address space for it.
    """

    def __init__(self, name: str | None, rows: int):
        self.pid = os.getpid()
        self.rows = rows
        self.name = _distinct(name if name is not None else f"loader-{self.pid}")
        nbytes = WORD * _meter.page_words(rows, RECORDS)
        self._descriptor = _shared(_meter.PREFIX + self.name, nbytes)
        try:
            self.memory = Memory(self._descriptor, nbytes)
        except OSError:
            _close(self._descriptor)
            raise
        self._bytes = memoryview(self.memory).cast("B")
        self._write_header(nbytes)
        self.consumer = ConsumerMeter(self.memory, -1, rows, RECORDS)
        _living.add(self)
        self._hide = weakref.finalize(self, _close, self._descriptor)
        self._hide.atexit = False

    def worker(self, row: int) -> WorkerMeter:
        """For this process as the one that makes batches."""
        return WorkerMeter(self.memory, row, self.rows, RECORDS, waits=False)

    def fileno(self) -> int | None:
        """For workers; None when nobody else can have it."""
        return self._descriptor

    def reader(self) -> Reader:
        return Reader(self.memory, self.memory.nbytes)

    def snapshot(self) -> Snapshot:
        """As Reader.snapshot(), but takes the workers' own word for how they are."""
        return self.reader().look()

    def ended(self, row: int) -> None:
        """A worker has ended, perhaps without a word. Nobody else writes there any more."""
        self._put(_meter.row_at(row) + Worker.W_STATE, _meter.State.ENDED)
        self._put(_meter.row_at(row) + Worker.W_SINCE_NS, time.monotonic_ns())

    def hide(self) -> None:
        """Let nobody find it any more; what is there can still be read here."""
        self._descriptor = None
        self._hide()
        _living.discard(self)

    def _write_header(self, nbytes: int) -> None:
        put = self._put
        put(Header.VERSION_AT, _meter.LAYOUT_VERSION)
        put(Header.PAGE_WORDS, nbytes // WORD)
        put(Header.ROWS, self.rows)
        put(Header.RECORDS, RECORDS)
        put(Header.PID, self.pid)
        put(Header.STARTED_NS, time.monotonic_ns())
        put(Header.STARTED_WALL_NS, time.time_ns())
        self._put_text(Header.NAME_AT, self.name, NAME_BYTES)
        self._put_text(Header.PROGRAM_AT, _program(), PROGRAM_BYTES)
        put(Header.MAGIC_AT, _meter.MAGIC)  # last: without it there is no page

    def _put(self, word: int, value: int) -> None:
        self._bytes[word * WORD : (word + 1) * WORD] = value.to_bytes(WORD, sys.byteorder)

    def _put_text(self, word: int, text: str, nbytes: int) -> None:
        data = text.encode("utf-8", "replace")[: nbytes - 1]
        self._bytes[word * WORD : word * WORD + len(data)] = data


def attach(descriptor: int, row: int) -> WorkerMeter:
    """A worker's row in the page behind a descriptor, which stays the caller's."""
    memory = Memory(descriptor, os.fstat(descriptor).st_size)
    words = memoryview(memory).cast("q")
    return WorkerMeter(memory, row, words[Header.ROWS], words[Header.RECORDS])


def _distinct(name: str) -> str:
    taken = {page.name for page in _living if page.pid == os.getpid()}
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(candidate for candidate in names if candidate not in taken)


def _shared(label: str, nbytes: int) -> int | None:
    try:
        descriptor = os.memfd_create(label, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return None
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
        # Readers map it: it must not shrink under them.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _program() -> str:
    script = getattr(sys.modules.get("__main__"), "__file__", None) or sys.executable or "python"
    return Path(script).name
