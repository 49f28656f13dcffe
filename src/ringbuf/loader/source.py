"""The random streams that a loader and its samplers draw from, as far as anybody can tell: saved and restored together.

A sampler that has a `generator` draws from that. One of somebody's own that has none may draw from any stream that the whole
program shares, and what it draws decides the order of samples. So those count as well, where there is such a sampler.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Source"]

# Samplers that draw nothing, or from a seed of their own: by module and name, since torch may not be there.
QUIET = {
    ("torch.utils.data.sampler", "SequentialSampler"),
    ("torch.utils.data.sampler", "BatchSampler"),
    ("torch.utils.data.distributed", "DistributedSampler"),
    ("torch.utils.data.dataloader", "_InfiniteConstantSampler"),
    ("ringbuf.loader.sampler", "SequentialSampler"),
    ("ringbuf.loader.sampler", "BatchSampler"),
    ("ringbuf.loader.sampler", "EndlessSampler"),
}


class Stream(NamedTuple):
    """One of them. What `state` returns pickles, and is made of numbers and tensors alone where its generator allows."""

    state: Callable[[], Any]
    restore: Callable[[Any], None]


class Source:
    """The streams by name."""

    def __init__(self, streams: dict[str, Stream]):
        self._streams = streams

    @classmethod
    def of(cls, own: Any, samplers: Iterable) -> Source:
        """What a loader draws from that was given the generator `own`, or None for torch's global stream."""
        streams = _of_generator("the loader", own) if own is not None else _globals("torch")
        known = [own]
        for place, sampler in enumerate(samplers):
            generator = getattr(sampler, "generator", None)
            found = _of_generator(f"sampler {place}", generator)
            if found and not any(generator is other for other in known):
                known.append(generator)
                streams |= found
            elif not found and sampler is not None:
                streams |= _globals(*_shared_streams_of(type(sampler)))
        return cls(streams)

    def state(self) -> dict[str, Any]:
        """Where they are."""
        return {name: stream.state() for name, stream in self._streams.items()}

    def check(self, state: Any) -> None:
        """Raise ValueError where `state` is not one of these streams."""
        names = set(state) if isinstance(state, dict) else {type(state).__qualname__}
        if (names ^ self._streams.keys()) - {"torch"}:  # which may have been loaded by now, or not yet
            raise ValueError(
                f"the state is that of the random streams {sorted(names)}, this loader draws from {sorted(self._streams)}: make "
                "it with the same kind of generator and sampler"
            )

    def restore(self, state: dict[str, Any]) -> None:
        """Go there."""
        for name, stream in self._streams.items():
            if name in state:
                stream.restore(state[name])

    @contextmanager
    def replay(self, state: dict[str, Any]) -> Iterator[None]:
        """Draw once more, within the block, what was drawn from there on."""
        now = self.state()
        self.restore(state)
        try:
            yield
        finally:
            self.restore(now)


def _of_generator(whose: str, generator: Any) -> dict[str, Stream]:
    """The stream of a generator; none where it is something else."""
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        return {f"numpy generator of {whose}": Stream(lambda: bits.state, lambda state: setattr(bits, "state", state))}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(generator, torch.Generator):
        return {f"torch generator of {whose}": Stream(generator.get_state, generator.set_state)}
    return {}


def _shared_streams_of(kind: type) -> tuple[str, ...]:
    """The streams of the whole program that a sampler of this kind may draw from, if it has no generator."""
    if kind.__module__ == "builtins" or (kind.__module__, kind.__qualname__) in QUIET:
        return ()
    if kind.__module__.startswith("torch.utils.data."):
        return ("torch",)
    return ("random", "numpy", "torch")


def _globals(*names: str) -> dict[str, Stream]:
    torch = sys.modules.get("torch")
    streams = {
        "random": Stream(random.getstate, random.setstate),
        "numpy": Stream(_numpys_state, np.random.set_state),
        "torch": Stream(torch.get_rng_state, torch.set_rng_state) if torch is not None else None,
    }
    return {name: stream for name in names if (stream := streams[name]) is not None}


def _numpys_state() -> tuple:
    """As numbers: torch.load refuses arrays, unless it is told to trust a file."""
    name, words, *rest = np.random.get_state()
    return (name, words.tolist(), *rest)
