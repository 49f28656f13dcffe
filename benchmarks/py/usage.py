"""What processes use, as /proc has it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

GONE = FileNotFoundError, ProcessLookupError, PermissionError


def memory_bytes(pids: Iterable[int]) -> int:
    """What processes have together: proportional set sizes, added up, in which a page that n of them share counts once.

    Shared memory also counts when it is open but nobody has it mapped, as it is on the way from one process to another.
    Who is gone has none.
    """
    private = mapped = 0
    opened: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(*GONE):
            sizes = _rollup(pid)
            mapped += sizes["Pss_Shmem"]
            private += sizes["Pss"] - sizes["Pss_Shmem"]
            opened |= _shared_files(pid)
    return private + max(mapped, sum(opened.values()))


def _rollup(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}


def _shared_files(pid: int) -> dict[int, int]:
    """Bytes that files in shared memory take, by inode, of those that a process has open."""
    found = {}
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(*GONE):
            if os.readlink(entry.path).startswith(("/dev/shm/", "/memfd:")):
                status = os.stat(entry.path)
                found[status.st_ino] = status.st_blocks * 512
    return found


def descendants(pid: int) -> list[int]:
    """`pid` and all that it started, or they; also in sessions of their own."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(*GONE):
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = [pid]
    for each in found:  # grows while we go
        found += children.get(each, [])
    return found
