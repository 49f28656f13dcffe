"""What there is of processes and segments: to see what a test leaves behind."""

import contextlib
import os
import re
import time
from pathlib import Path
from typing import NamedTuple

SHM = Path("/dev/shm")
PREFIX = "ringbuf."

# multiprocessing starts one of each when first needed and keeps it until we exit.
SERVANTS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")

# Who is started by exec carries this, wherever it goes; who is only forked still runs under our command line.
MARK = f"RINGBUF_TEST_RUN={os.getpid()}"
os.environ.update([MARK.split("=")])
if "PYTEST_XDIST_WORKER" in os.environ:  # all of them run under one command line: a group of our own tells whose a process is
    os.setpgid(0, 0)


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    state: str
    started: int  # clock ticks after boot

    def read(self, name):
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/{name}", "rb") as file:
            return file.read()
        return b""

    @property
    def command(self):
        return self.read("cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def processes():
    """Every process on the machine, as {pid: Process}."""
    found = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].decode().split()
            found[pid] = Process(pid, int(fields[1]), int(fields[2]), fields[0], int(fields[19]))
    return found


def ours(since=0):
    """Processes that this one started, at that clock tick or later: its descendants, and orphans of them."""
    everybody = processes()
    me = everybody[os.getpid()]

    def descends(process):
        while process is not None and process.pid != me.pid:
            process = everybody.get(process.parent)
        return process is not None

    def orphaned(process):
        return MARK.encode() in process.read("environ").split(b"\0") or (
            process.group == me.group and process.read("cmdline") == me.read("cmdline")
        )

    def servant(process):
        return process.parent == me.pid and any(name in process.command for name in SERVANTS)

    return {
        process
        for process in everybody.values()
        if process.started >= since
        and process.pid != me.pid
        and (descends(process) or orphaned(process))
        and not (process.state == "Z" and process.parent != me.pid)  # dead; to be buried by its parent, not by us
        and not servant(process)
    }


def segments():
    """Names of rings in /dev/shm, but for those of a stranger (another test run): that one has mapped, or whose name says
    whose it is, ringbuf.t.PROGRAM.PID as the C programs have it."""
    inodes = {}
    for path in SHM.glob(PREFIX + "*"):
        with contextlib.suppress(FileNotFoundError):
            inodes[path.name] = path.stat().st_ino
    if inodes:
        family = {os.getpid(), *(process.pid for process in ours())}
        strangers = processes().keys() - family
        owners = {name: int(name.split(".")[3]) for name in inodes if re.fullmatch(r"ringbuf\.t\.\w+\.\d+(\..*)?", name)}
        inodes = {name: inode for name, inode in inodes.items() if owners.get(name) not in strangers}
        for pid in strangers:
            with contextlib.suppress(OSError):
                maps = [line.split(maxsplit=5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
                mapped = {int(fields[4]) for fields in maps if len(fields) == 6 and fields[5].startswith(f"{SHM}/")}
                inodes = {name: inode for name, inode in inodes.items() if inode not in mapped}
    return set(inodes)


class Scene(NamedTuple):
    """What there is when a test begins."""

    tick: int
    newest: int  # the pid that the kernel gave out last; of this very tick, only later ones are the test's
    segments: set

    @classmethod
    def now(cls):
        tick = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        return cls(tick, int(Path("/proc/loadavg").read_text().split()[-1]), segments())

    def remains(self):
        """What is there now and was not: (processes, names of segments)."""
        strays = {p for p in ours(self.tick) if p.started > self.tick or p.pid > self.newest}
        return strays, segments() - self.segments
