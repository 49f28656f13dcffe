"""What every pass over a dataset has in common, and the pass without workers."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ringbuf.errors import Closed
from ringbuf.loader.fetch import Exhausted, Fetcher
from ringbuf.loader.stats import Account, array_bytes

__all__ = ["InProcessIterator", "Pass", "Promise"]


class Promise(NamedTuple):
    """How many samples an iterable dataset said it has, when somebody asked for the loader's length."""

    dataset: Any
    samples: int


class Pass:
    """An iterator over batches. Any thread of its process may ask; each batch goes to one of them.

    index_sampler: what the tasks are about.
    promise: what to warn about when more comes; None when nobody asked.
    """

    def __init__(self, *, index_sampler: Iterable, account: Account, promise: Promise | None):
        self._index_sampler = index_sampler
        self._account = account
        self._promise = promise
        self._num_yielded = 0
        self._done = False
        self._closed = False  # before it was done
        self._pid = os.getpid()
        self._lock = threading.RLock()  # re-entrant: a signal handler may close what it interrupted

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        if not self.ours:
            raise RuntimeError(
                f"this iterator belongs to process {self._pid}; in a forked process call iter() on the loader anew"
            )
        with self._lock:
            if self._closed:
                raise Closed("the loader was closed before this pass was over")
            if self._done:
                raise StopIteration
            began = time.monotonic_ns()
            try:
                batch = self._produce()
            finally:
                self._account.wait_ns += time.monotonic_ns() - began
            self._num_yielded += 1
            self._account.batches += 1
            if self._promise is not None and self._num_yielded > self._promise.samples:
                self._warn_of_broken_promise()
            return batch

    @property
    def ours(self) -> bool:
        """Whether this process made it. To a forked one nothing of it is of use, not even its lock."""
        return os.getpid() == self._pid

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled: it is a pass that is under way")

    def close(self) -> None:
        """End the pass. Whoever asks for a batch that it still owed gets Closed, and does not take it for the end."""
        self._closed = not self._done
        self._done = True

    def _produce(self) -> Any:
        """The next batch; StopIteration, with `_done` set, after the last one."""
        raise NotImplementedError

    def _advice(self) -> str:
        return ""

    def _warn_of_broken_promise(self) -> None:
        dataset, samples = self._promise
        warnings.warn(
            f"Length of IterableDataset {dataset!r} was reported to be {samples} (when accessing len(dataloader)), "
            f"but {self._num_yielded} samples have been fetched.{self._advice()}",
            stacklevel=3,
        )


class InProcessIterator(Pass):
    """Makes each batch when it is asked for."""

    def __init__(self, *, fetcher: Fetcher, **common: Any):
        super().__init__(**common)
        self._fetcher = fetcher
        self._indices = iter(self._index_sampler)

    def _produce(self) -> Any:
        try:
            index = next(self._indices)
            batch = self._fetcher.fetch(index, _private_room, private=True)
        except (StopIteration, Exhausted):
            self._done = True
            raise StopIteration from None
        self._account.bytes += array_bytes(batch)
        return batch


def _private_room(nbytes: int) -> Any:
    del nbytes
    return np.empty
