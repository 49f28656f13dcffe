"""RingLoader and its parts.

    sampler                                 which samples make up each batch
    course, state                           the batches of a pass, and how far it is
    dataset, collate, dialect, seeding,
    substitute, fetch                       from indices to a batch, in whatever process
    worker, lifecycle                       the worker processes
    iterator, base, loader                  the main process
"""

from ringbuf.loader.collate import default_collate, default_convert
from ringbuf.loader.dataset import Dataset, IterableDataset
from ringbuf.loader.failure import BatchTimeout, WorkerTraceback
from ringbuf.loader.loader import RingLoader
from ringbuf.loader.sampler import BatchSampler, RandomSampler, SequentialSampler
from ringbuf.loader.stats import LoaderStats
from ringbuf.loader.substitute import FailedSample
from ringbuf.loader.worker import WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler",
    "BatchTimeout",
    "Dataset",
    "FailedSample",
    "IterableDataset",
    "LoaderStats",
    "RandomSampler",
    "RingLoader",
    "SequentialSampler",
    "WorkerInfo",
    "WorkerTraceback",
    "default_collate",
    "default_convert",
    "get_worker_info",
]
