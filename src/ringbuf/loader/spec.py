"""What a worker is given: a plain record, pickled once for all workers where it is pickled at all."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

from ringbuf.loader.channel import read_memory, shared_memory
from ringbuf.loader.dialect import Dialect

__all__ = ["Sealed", "WorkerSpec"]


class WorkerSpec(NamedTuple):
    """All that workers have in common."""

    dataset: Any
    dialect: type[Dialect]
    collate_fn: Callable
    batched: bool
    iterable: bool
    drop_last: bool
    num_workers: int
    base_seed: int
    worker_init_fn: Callable[[int], Any] | None
    on_error: Any = "raise"

    def load(self) -> WorkerSpec:
        return self


class Sealed:
    """A spec for processes that do not inherit it, as an argument of theirs.

    It is pickled when the first of them starts, into shared memory that all of them read. Only then can it be:
    queues and locks refuse to be pickled outside the start of a process. What contains descriptors is pickled
    anew for each process, since each has other numbers for them.
    """

    def __init__(self, spec: WorkerSpec):
        self._spec = spec
        self._memory: int | None = None

    def __reduce__(self) -> tuple:
        from multiprocessing import context, reduction

        if self._memory is None:
            starting = context.get_spawning_popen()
            descriptors = len(getattr(starting, "_fds", ()))
            data = reduction.ForkingPickler.dumps(self._spec)
            if len(getattr(starting, "_fds", ())) != descriptors:
                return Pickled, (bytes(data),)
            self._memory = shared_memory(data, "ringbuf-dataset")
        return Mapped, (reduction.DupFd(self._memory),)

    def close(self) -> None:
        """All processes are started."""
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None


class Pickled:
    """A spec as it arrives; unpacked where its errors can be reported."""

    def __init__(self, data: bytes):
        self._data = data

    def load(self) -> WorkerSpec:
        return pickle.loads(self._data)


class Mapped:
    """A spec as it arrives through shared memory."""

    def __init__(self, descriptor: Any):
        self._descriptor = descriptor

    def load(self) -> WorkerSpec:
        descriptor = self._descriptor.detach()
        try:
            with read_memory(descriptor) as data:
                return pickle.loads(data)
        finally:
            os.close(descriptor)
