"""The first batch of new workers first.

With more workers than processors all of them would begin at once, share the processors, and have their first batches ready at
the same time, late; and the consumer waits for one of these. So workers for whom there is no processor let the others go
ahead until somebody has answered, unless a processor is idle: the others may be waiting for a disk or for the network.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["let_others_go_ahead"]

MOST_S = 0.2  # a batch that takes longer can do without us no more
LOOK_S = 0.001


def let_others_go_ahead(worker_id: int, answered: Callable[[], bool], look_up: Callable[[], None]) -> None:
    """Return at once where this worker is among the first or a processor is idle, else when somebody has answered.

    answered: whether somebody has.
    look_up: called now and then; may raise to end it.
    """
    processors = _processors()
    if worker_id < processors:
        return
    until = time.monotonic() + MOST_S
    while _running() > processors and time.monotonic() < until and not answered():
        time.sleep(LOOK_S)
        look_up()


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except OSError:  # a sandbox
        return os.cpu_count() or 1


def _running() -> int:
    """Threads of this machine that use a processor, or wait for one, at this moment; this one included."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[3].partition(b"/")[0])
    except (OSError, ValueError, IndexError):  # no such file in this container
        return 0
