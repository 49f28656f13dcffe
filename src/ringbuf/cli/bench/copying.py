"""Plain copying by several threads at a time: what a loader that does nothing else could reach."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ringbuf._core import copy_into
from ringbuf.cli.bench.plan import BATCH_ROWS, under_way
from ringbuf.cli.bench.samples import Samples

__all__ = ["Copying"]


WAYS = {
    "memcpy": lambda place, rows: copy_into(place, rows, streaming=False),
    "stores past the cache": lambda place, rows: copy_into(place, rows, streaming=True),
}


class Copying:
    """Each thread copies batches out of the samples' memory into places of its own, in the way that is faster here. Together
    there are as many places as a loader with as many workers has slots.

    run_s: seconds that a run takes.
    """

    def __init__(self, samples: Samples, threads: int, run_s: float):
        self._rows = samples.rows
        shape = BATCH_ROWS, self._rows.shape[1]
        places = [np.full(shape, 1, np.float32) for _ in range(under_way(threads))]  # its pages are there before time runs
        self._places = [places[at::threads] for at in range(threads)]
        self._run_s = run_s / 4
        rates = {}
        for self.way in WAYS:
            rates[self.way] = self.rate()
        self.way = max(rates, key=rates.__getitem__)
        self._run_s = run_s

    def rate(self) -> float:
        """Bytes per second, of all threads together."""
        with ThreadPoolExecutor(len(self._places)) as pool:
            return sum(pool.map(self._copy, range(len(self._places))))

    def _copy(self, at: int) -> float:
        copy, places, copies = WAYS[self.way], self._places[at], 0
        last = len(self._rows) - BATCH_ROWS
        first = at * last // len(self._places)
        start = time.perf_counter()
        while (elapsed_s := time.perf_counter() - start) < self._run_s or not copies:
            copy(places[copies % len(places)], self._rows[first : first + BATCH_ROWS])
            first = (first + BATCH_ROWS) % last
            copies += 1
        return copies * places[0].nbytes / elapsed_s
