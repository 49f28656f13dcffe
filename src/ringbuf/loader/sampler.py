"""Which samples make up each batch, and in which order: pure iteration over indices, no data and no processes.

A loader iterates one of these in its main process. Anything iterable may take their place.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice, repeat

import numpy as np

__all__ = ["BatchSampler", "EndlessSampler", "RandomSampler", "SequentialSampler", "draw_base_seed", "random_stream"]

# Indices turned into Python ints at a time: a permutation of 10**9 must not become 10**9 int objects at once.
CHUNK = 4096

# Worker ids are added to a base seed, and the sum must stay a signed 64-bit number.
BASE_SEED_LIMIT = 1 << 62


class SequentialSampler:
    """Every index of `data_source`, in order."""

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler:
    """Every index of `data_source` once, in an order drawn anew for each pass.

    generator: where the order is drawn from; None stands for one of its own, seeded by the system's entropy, and leaves every
        other random stream of the process alone.
    """

    def __init__(self, data_source: Sized, *, generator: np.random.Generator | None = None):
        self.data_source = data_source
        self.generator = generator if generator is not None else np.random.default_rng()
        if len(data_source) <= 0:
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={len(data_source)}: "
                "an empty dataset cannot be shuffled"
            )

    @property
    def num_samples(self) -> int:
        return len(self.data_source)

    def __iter__(self) -> Iterator[int]:
        order = self.generator.permutation(len(self.data_source))
        for start in range(0, len(order), CHUNK):
            yield from order[start : start + CHUNK].tolist()

    def __len__(self) -> int:
        return self.num_samples


class EndlessSampler:
    """None, for ever: an iterable dataset decides by itself what comes next, and when it ends."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class BatchSampler:
    """The indices of `sampler` in lists of `batch_size`; the last may be shorter, or is dropped."""

    def __init__(self, sampler: Iterable, batch_size: int, drop_last: bool):
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size!r}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last!r}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[Sequence]:
        if isinstance(self.sampler, EndlessSampler):
            # How many is all that these say, and a batch size may mean "everything".
            yield from repeat(range(self.batch_size))
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        full, rest = divmod(len(self.sampler), self.batch_size)
        return full + bool(rest and not self.drop_last)


def random_stream(generator: int | np.random.Generator | None) -> np.random.Generator:
    """The stream that a loader's `generator` argument stands for; None stands for one from the system's entropy."""
    if isinstance(generator, np.random.Generator):
        return generator
    if generator is None:
        return np.random.default_rng()
    try:
        seed = operator.index(generator)
    except TypeError:
        raise TypeError(
            "generator should be an int seed, a numpy.random.Generator or None, "
            f"but got {type(generator).__module__}.{type(generator).__qualname__}"
        ) from None
    if seed < 0:
        raise ValueError(f"generator should be a non-negative seed, but got {seed}")
    return np.random.default_rng(seed)


def draw_base_seed(stream: np.random.Generator) -> int:
    """The number that a pass derives its workers' seeds from: one draw, whatever the number of workers."""
    return int(stream.integers(BASE_SEED_LIMIT))
