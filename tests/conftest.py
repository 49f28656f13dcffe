"""Every test: a deadline (pyproject.toml), and nothing left behind when it ends."""

import contextlib
import functools
import importlib.util
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

SHM = Path("/dev/shm")
PREFIX = "ringbuf."
GRACE_S = 5.0  # what a loader may take to stop its workers

# multiprocessing starts one of each when first needed and keeps it until we exit.
SERVANTS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def pytest_report_header():
    spec = importlib.util.find_spec("ringbuf")
    return f"ringbuf: {Path(spec.origin).parent if spec else 'not installed'}"


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    state: str
    started: int  # clock ticks after boot; with the pid, this names a process for good

    @property
    def command(self):
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return ""


def processes():
    """Every process on the machine, as {pid: Process}."""
    found = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:  # twice for each test: no pathlib
            fields = stat.read().rpartition(b")")[2].decode().split()
            found[pid] = Process(pid, int(fields[1]), int(fields[2]), fields[0], int(fields[19]))
    return found


def ours():
    """Processes that this one started: its descendants, and orphans among its process group."""
    everybody = processes()
    me = everybody[os.getpid()]

    def descends(process):
        while process is not None and process.pid != me.pid:
            process = everybody.get(process.parent)
        return process is not None

    def orphaned(process):
        parent = everybody.get(process.parent)
        return process.group == me.group != process.pid and (parent is None or parent.group != me.group)

    def servant(process):
        return process.parent == me.pid and any(name in process.command for name in SERVANTS)

    return {
        process
        for process in everybody.values()
        if process.pid != me.pid
        and (descends(process) or orphaned(process))
        and not (process.state == "Z" and process.parent != me.pid)  # dead; to be buried by its parent, not by us
        and not servant(process)
    }


def segments():
    """Names of rings in /dev/shm, but for those that a stranger (another test run) has mapped."""
    inodes = {}
    for path in SHM.glob(PREFIX + "*"):
        with contextlib.suppress(FileNotFoundError):
            inodes[path.name] = path.stat().st_ino
    if inodes:
        family = {os.getpid(), *(process.pid for process in ours())}
        for pid in processes().keys() - family:
            with contextlib.suppress(OSError):
                maps = [line.split(maxsplit=5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
                mapped = {int(fields[4]) for fields in maps if len(fields) == 6 and fields[5].startswith(f"{SHM}/")}
                inodes = {name: inode for name, inode in inodes.items() if inode not in mapped}
    return set(inodes)


def newest():
    """The number that the kernel gave out last: while it stays the same, nobody started a process."""
    with open("/proc/loadavg") as loadavg:
        return int(loadavg.read().split()[-1])


@functools.lru_cache(maxsize=1)
def ours_when(newest):
    """ours() as of then, perhaps with some that have ended since. To look through /proc twice for each test takes its time."""
    return ours()


class Scene(NamedTuple):
    newest: int
    processes: set
    segments: set

    @classmethod
    def now(cls):
        number = newest()
        return cls(number, ours_when(number), segments())

    def remains(self):
        """What is there and was not: (processes, names of segments)."""
        known = {(process.pid, process.started) for process in self.processes}
        strays = set() if newest() == self.newest else {p for p in ours() if (p.pid, p.started) not in known}
        return strays, segments() - self.segments


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call":
        item.failed = report.failed
    return report


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request):
    """A process or a segment that outlives its test fails it, and is removed so that the next test starts clean."""
    before = Scene.now()
    yield
    deadline = time.monotonic() + GRACE_S
    while any(left := before.remains()) and time.monotonic() < deadline:
        time.sleep(0.02)
    if not any(left):
        return
    strays, names = left
    found = [f"process {p.pid} ({p.state}): {p.command or 'exited, but nobody waited for it'}" for p in strays]
    found += [f"segment {SHM / name}" for name in sorted(names)]
    for stray in strays:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stray.pid, signal.SIGKILL)
        if stray.parent == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(stray.pid, 0)
    for name in names:
        (SHM / name).unlink(missing_ok=True)
    if not getattr(request.node, "failed", False):  # a failed test has said enough
        pytest.fail("left behind after the test:\n  " + "\n  ".join(found))
