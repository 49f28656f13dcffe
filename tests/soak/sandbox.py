"""A pid namespace and a /dev/shm of our own, where the system gives them: nothing gets out, the kernel ends every process
in it with the first one, and whatever is left in /dev/shm is ours."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

from .troupe import die_with_parent

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
REFUSED = 200  # exit status: the system does not allow it

_libc = ctypes.CDLL(None, use_errno=True)


def contained(body: Callable[[], int]) -> int:
    """Run body() in a sandbox, or, where that is not allowed, just so. Returns what it returns."""
    status = _relayed(lambda: _enter(body))
    if status != REFUSED:
        return status
    print("no namespaces here: running among all other processes", file=sys.stderr)
    return body()


def _enter(body: Callable[[], int]) -> int:
    """In a child: leave the system's namespaces, and run body() as the first process of the new ones."""
    user, group = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWPID
    if _libc.unshare(flags) != 0:
        if _libc.unshare(flags | CLONE_NEWUSER) != 0:
            return REFUSED
        for name, text in {"setgroups": "deny", "uid_map": f"0 {user} 1", "gid_map": f"0 {group} 1"}.items():
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    return _relayed(lambda: body() if _mount_own() else REFUSED)


def _mount_own() -> bool:
    return (
        _libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
        and _libc.mount(b"proc", b"/proc", b"proc", 0, None) == 0
        and _libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, None) == 0
    )


def _relayed(body: Callable[[], int]) -> int:
    """Run body() in a child, hand on the signals that end a program, and return its status."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            die_with_parent()
            status = body()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    return status if status >= 0 else 128 - status
