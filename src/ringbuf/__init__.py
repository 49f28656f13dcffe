"""Batches of arrays between processes through a ring in shared memory, and a data loader on top of it."""

from ringbuf._core import ANY
from ringbuf.buffer import Lost, RingBuffer, Slot, Stats, attach
from ringbuf.errors import (
    BatchTooLarge,
    Closed,
    CorruptSegment,
    Empty,
    FrameError,
    Full,
    PeerTableFull,
    RingbufError,
    VersionMismatch,
    WorkerDied,
)
from ringbuf.loader import (
    BatchTimeout,
    Dataset,
    FailedSample,
    IterableDataset,
    LoaderStats,
    RingLoader,
    default_collate,
    get_worker_info,
)

__version__ = "0.1.0"  # pyproject.toml reads it here

__all__ = [
    "ANY",
    "BatchTimeout",
    "BatchTooLarge",
    "Closed",
    "CorruptSegment",
    "Dataset",
    "Empty",
    "FailedSample",
    "FrameError",
    "Full",
    "IterableDataset",
    "LoaderStats",
    "Lost",
    "PeerTableFull",
    "RingBuffer",
    "RingLoader",
    "RingbufError",
    "Slot",
    "Stats",
    "VersionMismatch",
    "WorkerDied",
    "attach",
    "default_collate",
    "get_worker_info",
]

for _name in __all__:  # tracebacks and reprs name things where users find them
    if hasattr(globals()[_name], "__module__"):
        globals()[_name].__module__ = __name__
del _name
