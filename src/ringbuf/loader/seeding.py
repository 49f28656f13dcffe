"""The random streams that a process has by itself: of `random`, of numpy, and of torch where it is loaded."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Streams", "preserved", "seed_sample", "seed_worker"]

WORD = 0xFFFFFFFF


def seed_worker(base_seed: int, worker_id: int) -> int:
    """Give a worker streams of its own, the same that torch's workers have; returns its seed."""
    seed = base_seed + worker_id
    words = np.random.SeedSequence([worker_id, base_seed & WORD, base_seed >> 32, 0]).generate_state(4)
    _seed(seed, words)
    return seed


def seed_sample(pass_seed: int, batch: int, row: int) -> None:
    """Begin all streams anew for one sample: the row-th of the batch-th batch of a pass."""
    words = np.random.SeedSequence([pass_seed & WORD, pass_seed >> 32, batch, row]).generate_state(6)
    _seed(int(words[4]) | int(words[5]) << 32, words[:4])


def _seed(seed: int, words: np.ndarray) -> None:
    random.seed(seed)
    np.random.seed(words)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


class Streams(NamedTuple):
    """Where all streams are at some moment; pickles."""

    python: Any
    numpy: Any
    torch: Any
    """A tensor of bytes; None where torch is not loaded."""

    @classmethod
    def now(cls) -> Streams:
        torch = sys.modules.get("torch")
        return cls(random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state())

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        if self.torch is not None:
            sys.modules["torch"].set_rng_state(self.torch)  # loaded, or there would be no such tensor


@contextmanager
def preserved() -> Iterator[None]:
    """Leave the streams as they were, whatever the block draws from them."""
    before = Streams.now()
    try:
        yield
    finally:
        before.restore()
