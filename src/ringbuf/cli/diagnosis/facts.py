"""What this machine is, and what limits a process on it has. Nothing is judged here; None is what cannot be found out."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringbuf import memory

__all__ = ["Facts", "facts"]

HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
OVERCOMMIT = "/proc/sys/vm/overcommit_memory"


@dataclass(frozen=True)
class Facts:
    """All sizes are in bytes."""

    shm_total: int | None = None
    shm_free: int | None = None
    memory_total: int | None = None
    memory_available: int | None = None
    group_limit: int | None = None
    """The tightest limit of a control group around the process; None: there is none."""
    group_left: int | None = None
    """What it leaves. The page cache makes way, shared memory does not."""
    locked_limit: int | None = None
    """-1: none."""
    huge_pages: str | None = None
    """What the kernel does about huge pages of shared memory."""
    kernel: tuple[int, int] | None = None
    processors: int | None = None
    """Of the machine."""
    allowed: int | None = None
    """By the affinity."""
    quota: float | None = None
    """Processors by cpu.max of a control group; None: no limit."""
    files_limit: int | None = None
    files_open: int | None = None
    overcommit: int | None = None
    commit_limit: int | None = None
    committed: int | None = None

    @property
    def cores(self) -> float:
        """Processors that can be used, in parts of one as well."""
        counts = [count for count in (self.processors, self.allowed, self.quota) if count]
        return float(min(counts, default=1))


def facts(pid: int | None = None) -> Facts:
    """Of a process of this user; None: this one."""
    who = "self" if pid is None else str(pid)
    shm = _or_none(lambda: os.statvfs(memory.SHM))
    meminfo = _or_none(_meminfo) or {}
    limit, left = _tightest(f"/proc/{who}/cgroup")
    return Facts(
        shm_total=shm and shm.f_blocks * shm.f_frsize,
        shm_free=shm and shm.f_bavail * shm.f_frsize,
        memory_total=meminfo.get("MemTotal"),
        memory_available=meminfo.get("MemAvailable"),
        group_limit=limit,
        group_left=left,
        locked_limit=_limit(pid, resource.RLIMIT_MEMLOCK),
        huge_pages=_or_none(lambda: _chosen(_line(HUGE_PAGES))),
        kernel=_or_none(lambda: tuple(int(part) for part in platform.release().split(".")[:2])),
        processors=os.cpu_count(),
        allowed=_or_none(lambda: len(os.sched_getaffinity(pid or 0))),
        quota=_quota(f"/proc/{who}/cgroup"),
        files_limit=_limit(pid, resource.RLIMIT_NOFILE),
        files_open=_or_none(lambda: len(os.listdir(f"/proc/{who}/fd"))),
        overcommit=_or_none(lambda: int(_line(OVERCOMMIT))),
        commit_limit=meminfo.get("CommitLimit"),
        committed=meminfo.get("Committed_AS"),
    )


def _or_none(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except (OSError, ValueError, LookupError):
        return None


def _line(path: str) -> str:
    with open(path) as file:
        return file.readline().strip()


def _chosen(words: str) -> str:
    """Of `always [advise] never` the one that holds."""
    return words.partition("[")[2].partition("]")[0] or words


def _meminfo() -> dict[str, int]:
    with open("/proc/meminfo") as lines:
        pairs = (line.split(":", 1) for line in lines)
        return {name: 1024 * int(value.split()[0]) for name, value in pairs}


def _limit(pid: int | None, which: int) -> int | None:
    return _or_none(lambda: resource.prlimit(pid or 0, which)[0])


def _tightest(membership: str) -> tuple[int | None, int | None]:
    """Limit and rest of the control group that leaves least memory."""
    found = []
    for folder, unified in memory.control_groups("memory", membership):
        limit = memory.MEMORY_FILES[0] if unified else memory.MEMORY_FILES_1[0]
        with contextlib.suppress(OSError, ValueError):
            most = int(_line(f"{folder}/{limit}"))
            if most < 1 << 60:  # which is how version 1 says that there is none
                found += [(left, most) for left in memory.left_in_group(folder, unified)]
    if not found:
        return None, None
    left, most = min(found)
    return most, left


def _quota(membership: str) -> float | None:
    found = []
    for folder, unified in memory.control_groups("cpu", membership):
        with contextlib.suppress(OSError, ValueError):
            if unified:
                quota, period = _line(f"{folder}/cpu.max").split()
            else:
                quota, period = _line(f"{folder}/cpu.cfs_quota_us"), _line(f"{folder}/cpu.cfs_period_us")
            if int(quota) > 0:  # "max" is no number
                found.append(int(quota) / int(period))
    return min(found, default=None)
