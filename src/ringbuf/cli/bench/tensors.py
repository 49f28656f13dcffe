"""The loaders that are measured where torch is installed: its own, and ours that takes its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils.data import DataLoader

from ringbuf.cli.bench.plan import BATCH_ROWS
from ringbuf.cli.bench.samples import Samples
from ringbuf.torch import RingLoader

__all__ = ["LOADERS", "form", "version"]

form = torch.from_numpy
version = torch.__version__
OPTIONS = {"persistent_workers": True, "multiprocessing_context": "fork"}  # as in arrays.py


def _ring(samples: Samples, workers: int) -> RingLoader:
    return RingLoader(samples, BATCH_ROWS, num_workers=workers, **OPTIONS)


@contextmanager
def _torch(samples: Samples, workers: int) -> Iterator[DataLoader]:
    loader = DataLoader(samples, BATCH_ROWS, num_workers=workers, **OPTIONS)
    try:
        yield loader
    finally:
        loader._iterator = None  # which ends its workers


LOADERS = {"ringbuf": _ring, "torch": _torch}
