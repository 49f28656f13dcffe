"""Other processes in tests: started by any method, given a deadline, ended through their own object."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import time

METHODS = ("fork", "spawn", "forkserver")
DEADLINE_S = 30.0


@contextlib.contextmanager
def process(target, *args, method="fork"):
    """A child that runs target(*args) for as long as the block lasts, at most."""
    child = multiprocessing.get_context(method).Process(target=target, args=args, daemon=True)
    child.start()
    try:
        yield child
    finally:
        if child.is_alive():
            child.kill()
        child.join(DEADLINE_S)
        child.close()


def succeeds(child, within_s=DEADLINE_S):
    """Wait for a child's end and say whether it was a good one."""
    child.join(within_s)
    return child.exitcode == 0


def eventually(condition, within_s=DEADLINE_S):
    """Whether condition() becomes true before the deadline."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def forked(function):
    """Run function() in a child made by a bare fork; return its exit status: 0, or 1 after a printed exception."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    if not eventually(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
        os.kill(pid, 9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def script(code, *arguments, wrapper=()):
    """Run Python code in a process of its own; return the completed process, its output as text."""
    return subprocess.run(
        [*wrapper, sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
