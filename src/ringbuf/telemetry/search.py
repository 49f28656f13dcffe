"""Which loaders run, found through the descriptors that processes of this user have open. Nothing is registered anywhere, so
nothing is left behind, and a process that hangs is found like any other."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from ringbuf.errors import CorruptSegment
from ringbuf.telemetry._meter import PREFIX
from ringbuf.telemetry.reader import Reader

__all__ = ["Found", "Unreadable", "find", "open", "unreadable"]

LINK = f"/memfd:{PREFIX}"
DELETED = " (deleted)"


class Found(NamedTuple):
    """A loader that runs."""

    name: str
    pid: int
    """Of its trainer."""
    program: str
    age_s: float
    """Seconds since its first pass began."""
    path: str
    """Where its page can be opened, as long as it is there."""


class Unreadable(NamedTuple):
    """What is called like a loader's page, and makes no sense to this ringbuf."""

    name: str
    """What its memory is called; whatever somebody has chosen."""
    pid: int
    """Of the process that has it, of several the oldest."""
    problem: str


def find() -> list[Found]:
    """The loaders of this user that have begun a pass and are not gone, oldest first.

    Those whose trainer is dead are not listed, although a process that it has started may hold their page. What is no page,
    although it is called so, is passed over.
    """
    found: dict[tuple[int, int], Found] = {}
    for pid, path in _candidates():
        with contextlib.suppress(OSError, CorruptSegment):
            status = os.stat(path)
            page = (status.st_dev, status.st_ino)
            if page in found:
                continue
            with _read(path) as reader:
                if _number_within(pid) != reader.pid:  # one of its workers or other children
                    continue
                age_s = (time.monotonic_ns() - reader.started_ns) / 1e9
                found[page] = Found(reader.name, pid, reader.program, age_s, path)
    return sorted(found.values(), key=lambda loader: -loader.age_s)


def unreadable() -> list[Unreadable]:
    """Pages of this user's processes that find() passes over: of another version, damaged, or none at all."""
    found: dict[tuple[int, int], Unreadable] = {}
    for pid, path in sorted(_candidates(), key=lambda candidate: _born(candidate[0])):
        with contextlib.suppress(OSError):
            status = os.stat(path)
            name = _called(path)
            try:
                _read(path).close()
            except CorruptSegment as error:
                found.setdefault((status.st_dev, status.st_ino), Unreadable(name, pid, str(error)))
    return list(found.values())


def open(loader: str | int) -> Reader:
    """Look at a loader that runs.

    loader: its name, or the pid of its trainer.
    Raises FileNotFoundError, which lists those that run, when there is none; ValueError, which lists the pids, when there are
    several; CorruptSegment when its page makes no sense.
    """
    running = find()
    if isinstance(loader, int):
        matching = [one for one in running if one.pid == loader]
        what = f"trainer with pid {loader}"
    else:
        matching = [one for one in running if one.name == loader]
        what = f"loader called {loader!r}"
    if not matching:
        _complain(loader)
        names = ", ".join(f"{one.name} (pid {one.pid})" for one in running) or "none; a loader can be seen from its first pass on"
        raise FileNotFoundError(f"there is no {what} among this user's processes; running: {names}")
    if len(matching) > 1 and isinstance(loader, int):
        raise ValueError(f"pid {loader} has several loaders: {', '.join(one.name for one in matching)}; give the name of one")
    if len(matching) > 1:
        pids = ", ".join(str(one.pid) for one in matching)
        raise ValueError(f"several trainers have a loader called {loader!r}: pids {pids}; give the pid of one")
    try:
        return _read(matching[0].path, matching[0].pid)
    except FileNotFoundError:
        raise FileNotFoundError(f"the {what} ended just now") from None


def _complain(loader: str | int) -> None:
    """Raise what is wrong with a page that is called so, or is of that process, if it makes no sense."""
    for pid, path in _candidates():
        with contextlib.suppress(OSError):
            if loader in (pid, _called(path)):
                _read(path).close()


def _candidates() -> Iterator[tuple[int, str]]:
    """Descriptors that are called like a page, as (pid, path)."""
    uid = os.getuid()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        folder = f"/proc/{entry}/fd"
        with contextlib.suppress(OSError):  # it has ended, or is not ours to look into
            if os.stat(f"/proc/{entry}").st_uid != uid:
                continue
            for number in os.listdir(folder):
                with contextlib.suppress(OSError):
                    link = os.readlink(f"{folder}/{number}")
                    if link.startswith(LINK) and link.endswith(DELETED):
                        yield int(entry), f"{folder}/{number}"


def _called(path: str) -> str:
    return os.readlink(path).removeprefix(LINK).removesuffix(DELETED)


def _read(path: str, pid: int | None = None) -> Reader:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return Reader.of_descriptor(descriptor, pid)
    finally:
        os.close(descriptor)


def _number_within(pid: int) -> int:
    """The pid of a process as it knows itself: in a container it is another one than outside."""
    with contextlib.suppress(OSError):
        with os.fdopen(os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC), "rb") as file:
            for line in file:
                if line.startswith(b"NSpid:"):
                    return int(line.split()[-1])
    return pid


def _born(pid: int) -> int:
    """When a process began, in the kernel's ticks. 0: it is gone."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        with os.fdopen(os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC), "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    return 0
