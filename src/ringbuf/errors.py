"""What can go wrong, as a tree.

    Exception
      RingbufError             anything ringbuf raises about rings, frames and workers
        Full                   also queue.Full, TimeoutError: no slot became free in time
        Empty                  also queue.Empty, TimeoutError: no message came in time
        Closed                 also RuntimeError (queue.ShutDown where Python has it)
        BatchTooLarge          also ValueError: a batch cannot fit into a slot, ever
        FrameError             also ValueError: these bytes are not a frame that may be read
        CorruptSegment         also ValueError: this memory is not a sound ring
        VersionMismatch        also RuntimeError: a ring of another layout version
        PeerTableFull          also RuntimeError: no room for one more participant
        WorkerDied             also RuntimeError: a loader's worker is gone
        SessionLost            also ConnectionError: a server went away, and with it this client's session
          ClientDropped        the server gave this client up, because it was too slow
        SourceFailed           also RuntimeError: what a server serves raised an exception

Catch the narrow class where you can act on it, RingbufError where you only report it. A wrong
argument is a plain TypeError or ValueError; out of memory is a plain OSError.

Each class also derives from what the standard library raises in the same case, so code written for
`queue.Queue` or for another loader keeps working. All of them survive pickling with their attributes.
"""

from __future__ import annotations

import queue
import sys

__all__ = [
    "BatchTooLarge",
    "ClientDropped",
    "Closed",
    "CorruptSegment",
    "Empty",
    "FrameError",
    "Full",
    "PeerTableFull",
    "RingbufError",
    "SessionLost",
    "SourceFailed",
    "VersionMismatch",
    "WorkerDied",
]


class RingbufError(Exception):
    """The base of all errors that ringbuf defines."""


class Full(RingbufError, queue.Full, TimeoutError):
    """No slot became free within `timeout`; the consumers are slower than the producers."""


class Empty(RingbufError, queue.Empty, TimeoutError):
    """No message arrived within `timeout`; the stream itself goes on."""


if sys.version_info >= (3, 13):

    class Closed(RingbufError, queue.ShutDown, RuntimeError):
        """The ring was closed, or its stream is finished and drained."""

else:

    class Closed(RingbufError, RuntimeError):
        """The ring was closed, or its stream is finished and drained."""


class BatchTooLarge(RingbufError, ValueError):
    """A batch needs more room than a slot has; waiting would not help, so nobody waits.

    needed_bytes: what the batch asks for: a ring with `slot_bytes` of at least this much takes it.
    available_bytes: what there is.
    """

    def __init__(self, message: str = "", *, needed_bytes: int = 0, available_bytes: int = 0):
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


class FrameError(RingbufError, ValueError):
    """The bytes of a message are not a valid frame, or hold what this reader may not rebuild."""


class CorruptSegment(RingbufError, ValueError):
    """Shared memory that is not a ring, or whose header contradicts itself; it was left untouched."""


class VersionMismatch(RingbufError, RuntimeError):
    """A ring made by a ringbuf with another memory layout; both sides need the same version."""


class PeerTableFull(RingbufError, RuntimeError):
    """The ring has as many participants as its table holds; one must leave first."""


class WorkerDied(RingbufError, RuntimeError):
    """A worker process ended before its work was done.

    Raised once it is known that a batch is lost that comes next. Whatever is finished by then is delivered before it,
    also batches that come after the lost one.

    worker_id: which worker, from 0 on.
    pid: its process id.
    exitcode: as `multiprocessing.Process.exitcode`: negative for a signal, None where it is not known.
    indices: the sample indices that it had in hand.
    """

    def __init__(
        self,
        message: str = "",
        *,
        worker_id: int | None = None,
        pid: int | None = None,
        exitcode: int | None = None,
        indices: object = None,
    ):
        super().__init__(message)
        self.worker_id = worker_id
        self.pid = pid
        self.exitcode = exitcode
        self.indices = indices


class SessionLost(RingbufError, ConnectionError):
    """The server stopped, died, or does not know this client any more. What was received stays valid."""


class ClientDropped(SessionLost):
    """The server's lag policy gave this client up, so that the others could go on."""


class SourceFailed(RingbufError, RuntimeError):
    """The source of a server raised an exception; every client gets this, and the server stops.

    kind: the name of the exception's type.
    text: its message.
    traceback: where it came from, as the server's Python printed it.
    """

    def __init__(self, message: str = "", *, kind: str = "", text: str = "", traceback: str = ""):
        super().__init__(message)
        self.kind = kind
        self.text = text
        self.traceback = traceback
