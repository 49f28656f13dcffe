"""Events as a file that Perfetto (ui.perfetto.dev) and chrome://tracing show: the JSON array of the Trace Event Format.

The file is a complete array after each write, since a write begins at the bracket that ended it and brings another one. Who is
killed between two writes leaves valid JSON; whom it hits in the midst of one, an array without its end, which the format allows
and both viewers read. What was not written yet is lost: some 0.1 s.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from ringbuf.telemetry.events import Cursor, Event, Events
from ringbuf.telemetry.page import Page
from ringbuf.telemetry.reader import Reader

__all__ = ["TraceFile", "Tracer", "Tracks", "check_trace_path"]

END = "\n]\n"
TURNS = 128  # calls of next() between two writes, at most: a log has room for more
PAUSE_NS = 100_000_000  # and this, where they are slow
ROOM = 1000  # for the threads of one page

_open: weakref.WeakSet[TraceFile] = weakref.WeakSet()


def check_trace_path(path: Any) -> str:
    """The absolute path of a trace to be written; raises TypeError or OSError where that is impossible. Writes nothing."""
    try:
        name = os.path.abspath(os.fsdecode(path))
    except TypeError:
        raise TypeError(f"trace should be the path of a file, or None; got {path!r}") from None
    folder = os.path.dirname(name)
    if os.path.isdir(name):
        raise IsADirectoryError(f"trace={str(path)!r} is a folder; give the name of a file in it")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"there is no folder {folder!r} for trace={str(path)!r}; make it first")
    if os.path.exists(name) and not os.path.isfile(name):
        raise OSError(f"trace={str(path)!r} is no plain file, and a trace has to be one")
    if not os.access(name if os.path.exists(name) else folder, os.W_OK):
        raise PermissionError(f"trace={str(path)!r} may not be written by this user; give a path that may")
    return name


class TraceFile:
    """One file, begun anew, for one loader at a time. Raises OSError."""

    def __init__(self, path: str):
        self.path = path
        self.events = 0
        self._pid = os.getpid()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._close.atexit = False
        try:
            self._claim()
            os.ftruncate(self._descriptor, 0)
            self._end = 0  # where the bracket is
            self._write("[")
        except BaseException:
            self._close()
            raise
        _open.add(self)

    def put(self, events: Iterable[str]) -> None:
        """Add events, each as JSON. In a forked process it does nothing: the file is the parent's."""
        lines = list(events)
        if not lines or os.getpid() != self._pid:
            return
        self._write(("\n" if self.events == 0 else ",\n") + ",\n".join(lines))
        self.events += len(lines)

    def close(self) -> None:
        """Idempotent; the file is complete at any time."""
        self._close()

    def _claim(self) -> None:
        """Refuse what is no file, and one that another loader writes: two would write over each other's events."""
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise OSError(f"{self.path!r} is no plain file, and a trace has to be one")
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"another loader, of this process or of another one, writes its trace to {self.path!r}; give each one a file "
                "of its own"
            ) from None
        except OSError:  # no locks on this file system
            pass

    def _write(self, text: str) -> None:
        data = (text + END).encode()
        at, left = self._end, memoryview(data)
        while left:
            written = os.pwrite(self._descriptor, left, at)
            at, left = at + written, left[written:]
        self._end += len(data) - len(END)


def _close_the_parents_files() -> None:
    """In a forked child, which would else hold the lock for as long as it lives."""
    for file in list(_open):
        file.close()


os.register_at_fork(after_in_child=_close_the_parents_files)


class Tracks:
    """The tracks of one page: events become JSON, and what a track is called comes before its first one."""

    def __init__(self, reader: Reader, number: int = 0):
        self._reader = reader
        self._first = number * ROOM
        self._named: set[int] = set()
        self._pid = reader.pid

    def lines(self, found: Events) -> Iterable[str]:
        if found.missed:
            yield self._missed(found.missed)
        for event in found.events:
            thread = self._first + (0 if event.worker is None else event.worker + 1)
            if thread not in self._named:
                yield from self._names(thread, event.worker)
            yield self._line(event, thread)

    def _names(self, thread: int, worker: int | None) -> Iterable[str]:
        reader = self._reader
        if not self._named and self._first == 0:
            yield self._meta("process_name", 0, {"name": f"{reader.name} ({reader.program})"})
        self._named.add(thread)
        whose = "consumer" if worker is None else f"worker {worker}"
        if self._first:
            whose += f" of {reader.name}"
        yield self._meta("thread_name", thread, {"name": whose})
        yield self._meta("thread_sort_index", thread, {"sort_index": thread})

    def _meta(self, name: str, thread: int, arguments: dict) -> str:
        return json.dumps({"ph": "M", "name": name, "pid": self._pid, "tid": thread, "args": arguments})

    def _missed(self, count: int) -> str:
        now = time.monotonic_ns()
        return json.dumps({
            "ph": "i", "s": "g", "name": f"{count} spans missing before", "pid": self._pid, "tid": self._first, "ts": now / 1000
        })

    def _line(self, event: Event, thread: int) -> str:
        begin = f"{event.begin_ns // 1000}.{event.begin_ns % 1000:03}"
        if event.kind == "ready":
            ready = event.batch if event.batch is not None else 0
            return f'{{"ph":"C","name":"batches ready","pid":{self._pid},"tid":{thread},"ts":{begin},"args":{{"ready":{ready}}}}}'
        took = f"{event.duration_ns // 1000}.{event.duration_ns % 1000:03}"
        batch = "" if event.batch is None else f',"batch":{event.batch}'
        maker = "" if event.maker is None else f',"worker":{event.maker}'
        whose = "consumer" if event.worker is None else "worker"
        return (
            f'{{"ph":"X","name":"{event.kind}","cat":"{whose}","pid":{self._pid},"tid":{thread},"ts":{begin},"dur":{took},'
            f'"args":{{"pass":{event.number}{batch}{maker}}}}}'
        )


class Tracer:
    """Takes the events of a page of one's own to a file, now and then.

    number: of the page in the file, from 0.
    complain: called with what went wrong, once.
    """

    def __init__(self, page: Page, file: TraceFile, number: int, complain: Callable[[str], None]):
        self._file = file
        self._complain = complain
        self._meter = page.consumer
        self._reader = page.reader()
        self._tracks = Tracks(self._reader, number)
        self._cursor: Cursor | None = self._reader.cursor()
        self._turns = 0
        self._written_at = time.monotonic_ns()

    def turn(self) -> None:
        """next() was called."""
        self._turns += 1
        if self._turns >= TURNS or time.monotonic_ns() - self._written_at >= PAUSE_NS:
            self.flush()

    def flush(self) -> None:
        """Write what there is. A disk that is full ends the trace, not the pass."""
        self._turns, self._written_at = 0, time.monotonic_ns()
        if self._cursor is None:
            return
        found = self._reader.events(self._cursor)
        self._cursor = found.cursor
        try:
            self._file.put(self._tracks.lines(found))
        except OSError as error:
            self._cursor = None
            self._complain(f"RingLoader: the trace {self._file.path!r} ends here: {error.strerror}")
