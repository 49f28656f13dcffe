"""RingLoader for arrays: the arguments of torch's DataLoader, and what they mean together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from ringbuf.loader.advice import warn
from ringbuf.loader.base import LoaderBase, Opening
from ringbuf.loader.dataset import is_iterable_style
from ringbuf.loader.dialect import Arrays
from ringbuf.loader.sampler import (
    BatchSampler,
    EndlessSampler,
    RandomSampler,
    SequentialSampler,
    draw_base_seed,
    random_stream,
)

__all__ = ["RingLoader"]

# What is fixed once a loader is made.
FROZEN = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class RingLoader(LoaderBase):
    """Batches of a dataset, made by worker processes in shared memory and handed out as arrays that are views of it.

    Takes the arguments of torch's DataLoader, which mean the same, and yields numpy arrays, nested as a sample is, of shape
    `(batch_size, *shape in a sample)`. Batches are writable and the consumer's own; keeping any number of them is safe.

    dataset: samples by index (`__getitem__`), or in its own order (`__iter__` alone, or torch's IterableDataset).
    batch_size: samples in a batch; None delivers single samples.
    shuffle: whether a new order is drawn for each pass.
    sampler, batch_sampler: iterables of indices, or of lists of indices, instead of shuffle and batch_size.
    num_workers: processes that make batches; with 0 they are made when they are asked for, in this process.
    collate_fn: makes a batch of a list of samples; by default arrays are stacked: see `default_collate`.
    drop_last: whether a last batch that is not full is left out; with an iterable dataset, each worker's last.
    timeout: seconds to wait for a batch; 0 waits for ever.
    worker_init_fn: called in each worker with its id, after it was seeded.
    multiprocessing_context: a start method or a context; by default multiprocessing's own.
    generator: an int seed or a numpy.random.Generator, for shuffling and for the workers' seeds.
    prefetch_factor: batches under way for each worker; 2 by default.
    persistent_workers: whether workers live on from one pass to the next.
    in_order: whether batches come in the order of the sampler, or as they are finished.
    pin_memory, pin_memory_device: kept for code that reads them; without effect on arrays.

    slots: batches that the ring holds, under way and looked at; by default two more than are under way.
    slot_bytes: room for the arrays of a batch, where it is known; otherwise found out from the first batches.
    max_bytes: bytes that all slots together may take; a batch that would need more is BatchTooLarge.
    dispatch: "static", worker k modulo num_workers makes batch k; or "pull", whichever worker is idle, so that a slow sample
        holds up nobody else; for map-style datasets, where in_order=False always does the latter. With "pull" they also make
        the rows of the first batch of a pass together, if it has the default collate_fn.
    on_worker_death: "raise" WorkerDied after the batches that were finished. "restart" puts another worker in its place,
        which does again what it had in hand, the random streams being as they were at the beginning of that batch. What else
        the dead process changed in its copy of the dataset is gone; worker_init_fn is called anew, and an iterable dataset is
        iterated again from the beginning of the epoch up to where it was.
    max_restarts: how often that may happen in the life of the loader; then it is WorkerDied.
    seed_by: "worker" seeds each worker once. "sample" seeds the global streams of random, numpy and torch before each
        sample, so that samples do not depend on the number of workers; for datasets with `__getitem__`.
    on_error: "raise", or "skip" to leave out samples that fail, or a function of (index, exception) that returns a
        sample to use instead, called in the worker. `stats().failed` tells which.
    name: what `ringbuf trace` and ringbuf.telemetry find it by while it runs; by default $RINGBUF_NAME, or else loader-PID. A
        further loader of the same process that would be called so gets -2 after it, and so on.
    trace: a file for Perfetto (ui.perfetto.dev), begun anew by the first pass: what each worker and the consumer did when.

    A pass raises what the dataset or collate_fn raised, with the worker's traceback as the cause; WorkerDied; BatchTimeout;
    BatchTooLarge beyond max_bytes; OSError when memory is short; Closed after close().
    """

    dialect = Arrays

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable | None = None,
        batch_sampler: Iterable | None = None,
        num_workers: int = 0,
        collate_fn: Callable | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: int | np.random.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        slots: int | None = None,
        slot_bytes: int | None = None,
        max_bytes: int | None = None,
        dispatch: str = "static",
        on_worker_death: str = "raise",
        max_restarts: int = 3,
        seed_by: str = "worker",
        on_error: str | Callable[[Any, Exception], Any] = "raise",
        name: str | None = None,
        trace: Any = None,
    ):
        self._initialized = False
        self._check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        if num_workers > 0 and prefetch_factor is None:
            prefetch_factor = 2
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.in_order = in_order
        self.multiprocessing_context = multiprocessing_context

        self._dataset_kind = "iterable" if is_iterable_style(dataset) else "map"
        self._check_samplers(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        self.generator = generator
        self._stream = random_stream(generator)
        if sampler is None:
            sampler = self._default_sampler(bool(shuffle))
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        if collate_fn is None:
            collate_fn = Arrays.collate if self._auto_collation else Arrays.convert
        self.collate_fn = collate_fn

        self._set_ring_options(
            slots=slots,
            slot_bytes=slot_bytes,
            max_bytes=max_bytes,
            dispatch=dispatch,
            on_worker_death=on_worker_death,
            max_restarts=max_restarts,
            seed_by=seed_by,
            on_error=on_error,
            name=name,
            trace=trace,
        )

        self._IterableDataset_len_called: int | None = None
        self._iterator: Any = None  # with persistent workers, the only one
        self._initialized = True
        self._set_up_life()
        self.check_worker_number_rationality()

    # ---- passes

    def __len__(self) -> int:
        """Batches of a pass. For an iterable dataset it is what the dataset's own `__len__` makes of it, whatever the
        number of workers."""
        if self._dataset_kind == "map":
            return len(self._index_sampler)
        samples = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return samples
        full, rest = divmod(samples, self.batch_size)
        return full + bool(rest and not self.drop_last)

    @property
    def _iterable(self) -> bool:
        return self._dataset_kind == "iterable"

    @property
    def _own_generator(self) -> np.random.Generator:
        return self._stream

    def _open(self, *, twice: bool) -> Opening:
        del twice  # that would help nobody
        return Opening(iter(self._index_sampler), draw_base_seed(self._stream))

    def _open_again(self, base_seed: int) -> Opening:
        return Opening(iter(self._index_sampler), base_seed)

    def _warn_at_iter(self) -> None:
        self.check_worker_number_rationality()
        if self.pin_memory:
            warn("pin_memory has no effect: batches are numpy arrays in shared memory")

    # ---- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FROZEN and getattr(self, "_initialized", False):
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """The context that workers are started in; None for multiprocessing's own."""
        return self._multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        self._multiprocessing_context = self._checked_context(context)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable:
        return self.batch_sampler if self._auto_collation else self.sampler

    # ---- checks

    @staticmethod
    def _check_workers(
        num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
    ) -> None:
        if not isinstance(num_workers, Integral):
            raise TypeError(f"num_workers must be a whole number, got {num_workers!r}")
        if not isinstance(timeout, Real):
            raise TypeError(f"timeout must be a number of seconds, got {timeout!r}; 0 waits for ever")
        if prefetch_factor is not None and not isinstance(prefetch_factor, Integral):
            raise TypeError(f"prefetch_factor must be a whole number or None, got {prefetch_factor!r}")
        if num_workers < 0:
            raise ValueError(
                f"num_workers option should be non-negative, but got {num_workers}; "
                "num_workers=0 makes batches in this process"
            )
        if not timeout >= 0:
            raise ValueError(f"timeout option should be non-negative, but got {timeout}; 0 waits for ever")
        if prefetch_factor is not None:
            if num_workers == 0:
                raise ValueError(
                    f"prefetch_factor option could only be specified in multiprocessing, but got {prefetch_factor} with "
                    "num_workers=0; leave it out or set num_workers"
                )
            if prefetch_factor < 0:
                raise ValueError(f"prefetch_factor option should be non-negative, but got {prefetch_factor}")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")

    def _check_samplers(
        self, batch_size: int | None, shuffle: bool | None, sampler: Any, batch_sampler: Any, drop_last: bool
    ) -> None:
        if self._dataset_kind == "iterable":
            # An iterable dataset decides by itself what comes and in which order.
            if shuffle not in (False, None):
                raise ValueError(
                    f"RingLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}"
                )
            if sampler is not None:
                raise ValueError(
                    f"RingLoader with IterableDataset: expected unspecified sampler option, but got sampler={sampler}"
                )
            if batch_sampler is not None:
                raise ValueError(
                    "RingLoader with IterableDataset: expected unspecified batch_sampler option, "
                    f"but got batch_sampler={batch_sampler}"
                )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")

    def _default_sampler(self, shuffle: bool) -> Iterable:
        if self._dataset_kind == "iterable":
            return EndlessSampler()
        if shuffle:
            return RandomSampler(self.dataset, generator=self._stream)
        return SequentialSampler(self.dataset)

    def _checked_context(self, context: Any) -> Any:
        if context is None:
            return None
        import multiprocessing
        from multiprocessing.context import BaseContext

        if self.num_workers == 0:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading (num_workers > 0), "
                f"but got num_workers={self.num_workers}"
            )
        if isinstance(context, str):
            methods = multiprocessing.get_all_start_methods()
            if context not in methods:
                raise ValueError(
                    f"multiprocessing_context option should specify a valid start method in {methods!r}, "
                    f"but got multiprocessing_context={context!r}"
                )
            return multiprocessing.get_context(context)
        if not isinstance(context, BaseContext):
            raise TypeError(
                "multiprocessing_context option should be a valid context object or a string specifying the start "
                f"method, but got multiprocessing_context={context}"
            )
        return context

    def check_worker_number_rationality(self) -> None:
        """Warn where there are more workers than cores that this process may use."""
        try:
            cores = len(os.sched_getaffinity(0))
        except OSError:  # it is advice, no more
            return
        if self.num_workers > cores:
            warn(
                f"This RingLoader has num_workers={self.num_workers}, but this process may use {cores} cores: "
                "more workers than that make it slower, or freeze it"
            )
