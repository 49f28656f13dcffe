"""Batches of arrays between processes through a ring in shared memory; a data loader and a server on top of it."""

from ringbuf._core import ANY
from ringbuf.buffer import Lost, RingBuffer, Slot, Stats, attach
from ringbuf.building import get_include, get_library
from ringbuf.errors import (
    BatchTooLarge,
    ClientDropped,
    Closed,
    CorruptSegment,
    Empty,
    FrameError,
    Full,
    PeerTableFull,
    RingbufError,
    SessionLost,
    SourceFailed,
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
from ringbuf.net import Field, Server, Stream, StreamStats, connect, drop_client
from ringbuf.rows import Round, Row, RowRing

__version__ = "0.1.0"  # pyproject.toml reads it here

__all__ = [
    "ANY",
    "BatchTimeout",
    "BatchTooLarge",
    "ClientDropped",
    "Closed",
    "CorruptSegment",
    "Dataset",
    "Empty",
    "FailedSample",
    "Field",
    "FrameError",
    "Full",
    "IterableDataset",
    "LoaderStats",
    "Lost",
    "PeerTableFull",
    "RingBuffer",
    "RingLoader",
    "RingbufError",
    "Round",
    "Row",
    "RowRing",
    "Server",
    "SessionLost",
    "Slot",
    "SourceFailed",
    "Stats",
    "Stream",
    "StreamStats",
    "VersionMismatch",
    "WorkerDied",
    "attach",
    "connect",
    "default_collate",
    "drop_client",
    "get_include",
    "get_library",
    "get_worker_info",
]

for _name in __all__:  # tracebacks and reprs name things where users find them
    if hasattr(globals()[_name], "__module__"):
        globals()[_name].__module__ = __name__
del _name
