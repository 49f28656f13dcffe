"""RingLoader for tensors: torch's DataLoader with other workers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import distributed
from torch.autograd.profiler import record_function
from torch.utils.data import DataLoader, IterDataPipe, MapDataPipe, dataloader, graph_settings
from torch.utils.data._utils.pin_memory import pin_memory as pin

from ringbuf.loader.advice import warn
from ringbuf.loader.base import LoaderBase, Opening
from ringbuf.loader.iterator import WorkerIterator
from ringbuf.loader.passes import InProcessIterator
from ringbuf.telemetry._meter import WorkerMeter
from ringbuf.torch.dialect import Tensors
from ringbuf.torch.rebuilding import warn_if_rebuilt

__all__ = ["RingLoader"]

Sample = TypeVar("Sample", covariant=True)


class _Profiled:
    """A pass whose waits torch's profiler counts as time of the DataLoader: it goes by the name."""

    def __next__(self) -> Any:
        if not torch.autograd._profiler_enabled():  # asking is two hundred times quicker than a label nobody sees
            return super().__next__()
        with record_function(f"enumerate(DataLoader)#{type(self).__name__}.__next__"):
            return super().__next__()


class RingDataLoaderIter(_Profiled, WorkerIterator):
    """A pass with workers."""


class InProcessDataLoaderIter(_Profiled, InProcessIterator):
    """A pass without workers."""


class RingLoader(LoaderBase, DataLoader[Sample]):
    """torch's DataLoader with workers that write batches into shared memory, where the tensors lie that you get.

    All arguments of torch's loader mean what they mean there, and for the same arguments and seed the batches are
    the same, bit for bit. Tensors are writable and yours; keeping any number of them is safe. docs/differences.md
    lists what is different on purpose.

    slots: batches that the ring holds, under way and looked at; by default two more than are under way.
    slot_bytes: room for the data of a batch, where it is known; otherwise found out from the first batches.
    max_bytes: bytes that all slots together may take; a batch that would need more is BatchTooLarge.
    dispatch: "static", worker k modulo num_workers makes batch k; or "pull", whichever worker is idle, so that a slow sample
        holds up nobody else; for map-style datasets, where in_order=False always does the latter. With "pull" they also make
        the rows of the first batch of a pass together, if it has the default collate_fn.
    on_worker_death: "raise" WorkerDied after the batches that were finished. "restart" puts another worker in its place,
        which does again what it had in hand, the random streams being as they were at the beginning of that batch. What else
        the dead process changed in its copy of the dataset is gone; worker_init_fn is called anew, and an iterable dataset is
        iterated again from the beginning of the epoch up to where it was.
    max_restarts: how often that may happen in the life of the loader; then it is WorkerDied.
    seed_by: "worker" seeds each worker once, as torch does. "sample" seeds the global streams of random, numpy and torch
        before each sample, so that samples do not depend on the number of workers; for map-style datasets.
    on_error: "raise", or "skip" to leave out samples that fail, or a function of (index, exception) that returns a
        sample to use instead, called in the worker. `stats().failed` tells which.
    name: what `ringbuf trace` and ringbuf.telemetry find it by while it runs; by default $RINGBUF_NAME, or else loader-PID. A
        further loader of the same process that would be called so gets -2 after it, and so on.
    trace: a file for Perfetto (ui.perfetto.dev), begun anew by the first pass: what each worker and the consumer did when.

    A pass raises what the dataset or collate_fn raised, with the worker's traceback as the cause; WorkerDied; BatchTimeout;
    BatchTooLarge beyond max_bytes; OSError when memory is short; Closed after close().
    """

    dialect = Tensors
    _worker_pass = RingDataLoaderIter
    _in_process_pass = InProcessDataLoaderIter

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
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
        self._set_up_life()
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
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

    @property
    def _iterable(self) -> bool:
        return self._dataset_kind == dataloader._DatasetKind.Iterable

    @property
    def _own_generator(self) -> torch.Generator | None:
        return self.generator

    @property
    def multiprocessing_context(self) -> Any:
        """torch's. Who builds another loader of a loader's arguments reads it, and may be unaware of what gets lost."""
        warn_if_rebuilt(sys._getframe(1))
        return DataLoader.multiprocessing_context.fget(self)

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        DataLoader.multiprocessing_context.fset(self, context)

    # What is drawn, and in which order, is torch's: dataloader._BaseDataLoaderIter and its two subclasses.

    def _open(self, *, twice: bool) -> Opening:
        shared_seed = self._draw_shared_seed()
        indices = iter(self._index_sampler)
        base_seed = torch.empty((), dtype=torch.int64).random_(generator=self.generator).item()
        if twice:  # and a sampler may draw each time
            return self._open_again(int(base_seed))._replace(shared_seed=shared_seed)
        return Opening(indices, int(base_seed), shared_seed)

    def _open_again(self, base_seed: int) -> Opening:
        return Opening(iter(self._index_sampler), base_seed, self._draw_shared_seed())

    def _draw_shared_seed(self) -> int | None:
        if not isinstance(self.dataset, IterDataPipe):
            return None
        group = None
        if distributed.is_available() and distributed.is_initialized():
            group = distributed.new_group(backend="gloo")
        return dataloader._share_dist_seed(self.generator, group)

    def _init_of_workers(self) -> Callable | None:
        if not isinstance(self.dataset, (IterDataPipe, MapDataPipe)):
            return self.worker_init_fn
        world_size, rank = dataloader._get_distributed_settings()
        return functools.partial(dataloader._sharding_worker_init_fn, self.worker_init_fn, world_size, rank)

    def _fetcher(self, opening: Opening, maker: WorkerMeter) -> Any:
        if isinstance(self.dataset, (IterDataPipe, MapDataPipe)):
            graph_settings.apply_sharding(self.dataset, *dataloader._get_distributed_settings())
        return super()._fetcher(opening, maker)

    def _warn_at_iter(self) -> None:
        if self.num_workers > 0:
            self.check_worker_number_rationality()
        if not self.pin_memory:
            return
        if self.pin_memory_device:
            warn(
                "pin_memory_device is deprecated, the current accelerator will be used as the device,"
                f"ignore pin_memory_device='{self.pin_memory_device}'."
            )
        if not torch.accelerator.is_available():
            warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used."
            )

    def _finish(self) -> Callable[[Any], Any] | None:
        """Copy each batch into pinned memory. The copy is done when it returns, and the slot is free with the last view
        of it: a device that copies from there on never reads a slot."""
        if not self.pin_memory or not torch.accelerator.is_available():
            return None
        device = torch.accelerator.current_accelerator().type
        return None if device == "mps" else functools.partial(pin, device=device)

