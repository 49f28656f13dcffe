"""multiprocessing.Queue: a pipe, with a thread in each producer that writes into it."""

import multiprocessing
from typing import Any

from benchmarks.py.channels import mp_simple_queue

LABEL = "multiprocessing.Queue"
ROOM = 1024

versions = mp_simple_queue.versions


class Channel(mp_simple_queue.Channel):
    def _make(self) -> Any:
        return multiprocessing.get_context("fork").Queue(ROOM)
