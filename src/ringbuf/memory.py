"""How much shared memory can still be had, and what to tell whoever asked for more."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator

SHM = "/dev/shm"
CGROUP = "/sys/fs/cgroup"
MEMBERSHIP = "/proc/self/cgroup"
# Of a control group: its limit, what it uses, and in memory.stat what of that is cache, and what of the cache stays.
MEMORY_FILES = ("memory.max", "memory.current", "file", "shmem")
MEMORY_FILES_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "total_shmem")


def path_of(name: str) -> str:
    """The file that a named ring is."""
    return f"{SHM}/ringbuf.{name}"


def free_bytes(*, named: bool) -> int:
    """Bytes that a new segment can have at most: free memory, of the machine and of each control group
    around us, and for a named ring also what /dev/shm has left."""
    found = [_machine_bytes(), *_cgroup_bytes()]
    if named:
        found.append(_shm_bytes())
    return min(found)


def refuse_beyond_control_groups(needed_bytes: int, *, named: bool) -> None:
    """Raise when a reservation would make the kernel kill in our control group, as it does instead of failing.

    The machine's own memory is libringbuf's to check.
    """
    if any(needed_bytes > left for left in _cgroup_bytes()):
        raise shortage(errno.ENOMEM, needed_bytes, named=named)


def shortage(code: int, needed_bytes: int, *, named: bool) -> OSError:
    """The error for a ring that does not fit: needed, free, and what helps."""
    try:
        free = free_bytes(named=named)
        full_shm = named and free == _shm_bytes()
    except (OSError, LookupError, ValueError):  # /proc is not there, or not even for this is there memory
        return OSError(code, f"a ring of {needed_bytes} bytes does not fit; how much is free cannot be found out")
    if full_shm:
        where = SHM
        remedy = (
            f"enlarge {SHM} (docker run --shm-size=, or mount -o remount,size=), ask for fewer or smaller slots, "
            "or leave out name=: an anonymous ring does not live there"
        )
    elif free >= needed_bytes:
        where = "memory"
        remedy = "so a limit on this process is in the way: look at ulimit -v, and at vm.overcommit_memory"
    else:
        where = "memory"
        remedy = "ask for fewer or smaller slots, or raise the memory limit of the container"
    return OSError(code, f"a ring of {needed_bytes} bytes does not fit: {free} bytes of {where} are free; {remedy}")


def hint(code: int) -> str:
    """What to do about a system call that was refused, to follow its errno's text; empty where that says enough."""
    if code == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"; this process may have {most} (ulimit -n), and takes two for each ring"
    if code == errno.EAGAIN:
        return "; memory that this process locks is limited (ulimit -l)"
    if code in (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EACCES, errno.ENOENT, errno.EROFS, errno.EOPNOTSUPP):
        return (
            f"; rings need memfd_create, open-file-description locks, /proc/self/fd, and {SHM} if they have names: does a "
            "sandbox refuse one of them?"
        )
    return ""


def _shm_bytes() -> int:
    room = os.statvfs(SHM)
    return room.f_bavail * room.f_frsize


def _machine_bytes() -> int:
    fields = _fields("/proc/meminfo", separator=":")
    return 1024 * (fields["MemAvailable"] + fields["SwapFree"])


def _cgroup_bytes() -> list[int]:
    """What the limits of our control group, and of those around it, leave."""
    return [left for group in control_groups("memory", MEMBERSHIP) for left in left_in_group(*group)]


def control_groups(controller: str, membership: str) -> Iterator[tuple[str, bool]]:
    """The folders of the control groups that a process is in, each followed by the one around it; and whether that is of the
    unified hierarchy, version 2.

    membership: /proc/PID/cgroup.
    """
    try:
        with open(membership) as lines:
            groups = [line.rstrip("\n").split(":", 2) for line in lines]
    except OSError:
        return
    for _, controllers, path in groups:
        if controllers == "":
            root = CGROUP
        elif controller in controllers.split(","):
            root = f"{CGROUP}/{controller}"
        else:
            continue
        while path:
            yield root + path.rstrip("/"), controllers == ""
            path = "" if path == "/" else os.path.dirname(path)


def left_in_group(folder: str, unified: bool) -> list[int]:
    """Bytes that one group may still take, or nothing when it has no limit or is not ours to read."""
    limit, usage, cache, shmem = MEMORY_FILES if unified else MEMORY_FILES_1
    try:
        with open(f"{folder}/{limit}") as most, open(f"{folder}/{usage}") as used:
            left = int(most.read()) - int(used.read())
        stat = _fields(f"{folder}/memory.stat", separator=" ")
    except (OSError, ValueError):
        return []
    return [max(0, left + stat.get(cache, 0) - stat.get(shmem, 0))]  # the page cache makes way, shared memory does not


def _fields(path: str, *, separator: str) -> dict[str, int]:
    with open(path) as lines:
        pairs = (line.split(separator, 1) for line in lines)
        return {name: int(value.split()[0]) for name, value in pairs}
