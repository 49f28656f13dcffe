"""The loader that is measured where torch is not installed."""

from __future__ import annotations

import numpy as np

from ringbuf.cli.bench.plan import BATCH_ROWS
from ringbuf.cli.bench.samples import Samples
from ringbuf.loader import RingLoader

__all__ = ["LOADERS", "form"]

form = np.asarray


def _ring(samples: Samples, workers: int) -> RingLoader:
    # The workers get the rows by forking, whatever this Python's usual way is: to send them would take longer than to measure.
    return RingLoader(
        samples, BATCH_ROWS, num_workers=workers, persistent_workers=True, multiprocessing_context="fork"
    )


LOADERS = {"ringbuf": _ring}
