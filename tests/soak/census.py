"""Counts what a process and its family have: processes, threads, descriptors, mappings, memory, names in /dev/shm."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

SHM = Path("/dev/shm")
PREFIX = "ringbuf."


class Possessions(NamedTuple):
    """What must be the same whenever a process is at rest."""

    descriptors: int
    threads: int
    children: int
    ring_mappings: int

    @classmethod
    def now(cls) -> Possessions:
        return cls(
            len(os.listdir("/proc/self/fd")),
            int(_status("self")["Threads"]),
            len(children_of(os.getpid())),
            len(ring_mappings("self")),
        )


def _status(pid: int | str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.split()[0] for key, _, value in (line.partition(":") for line in lines) if value.split()}


def memory_kib(pid: int | str = "self") -> int:
    """Anonymous and shared memory that it has touched. Without the pages of files, which come and go with the libraries' use."""
    status = _status(pid)
    return int(status["RssAnon"]) + int(status["RssShmem"])


def ring_mappings(pid: int | str) -> list[str]:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [line for line in lines if "/memfd:ringbuf" in line or f"{SHM}/{PREFIX}" in line]


def ring_inodes(pid: int) -> set[str]:
    """Which segments it has mapped."""
    with contextlib.suppress(OSError):
        return {line.split()[4] for line in ring_mappings(pid)}
    return set()


def names_of_rings() -> set[str]:
    return {path.name for path in SHM.glob(PREFIX + "*")}


def parents() -> dict[int, int]:
    """{pid: its parent} of every process there is."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found[int(pid)] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def children_of(pid: int) -> list[int]:
    """Zombies included."""
    with contextlib.suppress(OSError):
        tasks = os.listdir(f"/proc/{pid}/task")
        return [int(child) for task in tasks for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return [child for child, parent in parents().items() if parent == pid]  # a kernel that does not list them


def family(pid: int) -> list[int]:
    """All descendants, however deep."""
    known = parents()
    found, front = [], [pid]
    while front:
        front = [child for child, parent in known.items() if parent in front]
        found += front
    return found


def pss_kib(pid: int) -> int:
    """Its proportional share of memory; 0 when it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def descriptors(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0
