"""A worker's tie to the process that started it: when that one is gone, by whatever death, the worker ends too.

Three ties, since each has a gap:

    a look at the parent's pidfd     whenever the worker waits or comes between two samples; not inside user code
    the parent-death signal          also inside user code; but it follows the *thread* that started the worker,
                                     and a forkserver is not the parent we mean
    a tether                         a pipe whose writing end only the parent has; the kernel kills the worker when
                                     it closes. For the cases that the signal does not cover
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
from typing import Any

__all__ = ["Orphaned", "Parent"]

PR_SET_PDEATHSIG = 1
F_SETSIG = 10


class Orphaned(BaseException):
    """The parent is gone."""


class Parent:
    """The process that this one works for.

    pid: its process id.
    direct: whether we are its child. Otherwise a forkserver is between us.
    from_main_thread: whether the thread that started us is its main one, which lives as long as the process.
    tether: the reading end of its tether, if there is one; becomes ours.
    """

    def __init__(self, pid: int, *, direct: bool, from_main_thread: bool, tether: Any = None):
        self._pid = pid
        self._direct = direct
        if direct and from_main_thread:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if tether is not None:
            with tether:
                _die_with(tether.fileno())
        self._poll = select.poll()
        try:
            self._poll.register(os.pidfd_open(pid), select.POLLIN)
        except ProcessLookupError:
            raise Orphaned from None
        except OSError:  # a kernel before 5.3, or a sandbox
            pass
        self.check()  # it may have died before the signal was set, or before its number was looked up

    def check(self) -> None:
        """Raise Orphaned if it is gone."""
        if self._poll.poll(0) or (self._direct and os.getppid() != self._pid):
            raise Orphaned


def _die_with(reading_end: int) -> None:
    """Have the kernel kill this process when the last writing end of a pipe is closed."""
    # The file description is shared with the other workers, and a description has one owner: so, a new one.
    own = os.open(f"/proc/self/fd/{reading_end}", os.O_RDONLY | os.O_NONBLOCK)
    with contextlib.suppress(OSError):
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    poll = select.poll()  # select() refuses descriptors above 1023, of which a fork may have inherited many
    poll.register(own, select.POLLIN)
    if poll.poll(0):
        raise Orphaned  # closed already
