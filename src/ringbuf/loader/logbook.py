"""Where each worker's random streams stood, for the worker that takes its place when it dies.

A worker notes the state of `random`, numpy's global stream and torch's at three moments: when a batch is made, before it is
published as the answer to a task; when rows for another one's batch are made, before they are handed over; and when an epoch
begins. Of the former two together it keeps two notes, and writes the older one over.
Whoever redoes a task goes on from the newest note that is not the lost task's own, and these are the cases:

    killed while it made the batch            the newest note is of the task before
    ... while it wrote its note               that note is void; the other one is of the task before
    ... before it published the batch         the newest note is of the lost task, the other one of the task before
    ... afterwards                            the task is not lost; the newest note is its own, or of a later one

A note is void from before its first byte changes until after its last byte did, which the number in its head says. The
memory is a file without a name, written and read by system calls: a process that is killed has written what it has written.
"""

from __future__ import annotations

import importlib
import os
import pickle
import struct
import weakref
from collections.abc import Collection
from typing import NamedTuple

from ringbuf.loader.post import Post
from ringbuf.loader.seeding import Streams

__all__ = ["EPOCH", "NOWHERE", "Log", "Logbook", "restore_streams", "save_streams"]

NOTE_BYTES = 32 << 10  # three streams take 12 KiB
NOTES = 3
EPOCH = 2  # the third note of a worker; the other two are of tasks
NOWHERE = -1  # there is no note to go on from: begin with the seeds
NO_TASK = (1 << 64) - 1  # instead of a task's number: noted when worker_init_fn was through, and of help

_HEAD = struct.Struct("<QQQ")


class Note(NamedTuple):
    """The head of one."""

    sequence: int
    """0: void; larger: newer."""
    number: int
    """Of the task, or of the epoch."""
    nbytes: int


class Logbook:
    """The main process's side."""

    def __init__(self, workers: int):
        self._memory = os.memfd_create("ringbuf-log", os.MFD_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._memory)
        self.close.atexit = False
        os.posix_fallocate(self._memory, 0, workers * NOTES * NOTE_BYTES)

    def fileno(self) -> int:
        return self._memory

    def source(self, worker_id: int, lost: Collection[int]) -> int:
        """The note from which to go on where these tasks are lost."""
        notes = {place: _read_head(self._memory, worker_id, place) for place in range(EPOCH)}
        sound = [place for place, note in notes.items() if note.sequence and note.number not in lost]
        return max(sound, key=lambda place: notes[place].sequence, default=NOWHERE)

    def has_begun(self, worker_id: int, epoch: int) -> bool:
        """Whether the note of this epoch's beginning is there."""
        note = _read_head(self._memory, worker_id, EPOCH)
        return note.sequence != 0 and note.number == epoch


class Log:
    """A worker's side; without memory it does nothing."""

    def __init__(self, post: Post, worker_id: int):
        (_, self._source, self._skipped), descriptors = post.wait_for(lambda message: message[0] == "log")
        self._memory = descriptors[0] if descriptors else None
        self._worker_id = worker_id
        self._place, self._sequence = 0, 1  # of the next note
        self._number = NO_TASK

    def resume(self) -> None:
        """Begin where the one before us stood, or with a note of what we begin with."""
        if self._memory is None:
            return
        heads = [_read_head(self._memory, self._worker_id, place) for place in range(NOTES)]
        self._sequence = max(head.sequence for head in heads) + 1
        if self._source == NOWHERE:
            self._turn(NO_TASK)
            return
        at = _offset(self._worker_id, self._source) + _HEAD.size
        restore_streams(os.pread(self._memory, heads[self._source].nbytes, at))
        # What we go on from is the last thing to be written over.
        self._place = 1 - self._source if self._source != EPOCH else int(heads[1].sequence < heads[0].sequence)

    def begin_epoch(self, epoch: int) -> int:
        """Note that an epoch begins. Returns how many of its batches to make for nothing, because they were answered."""
        if self._memory is None:
            return 0
        skipped, self._skipped = self._skipped, 0
        note = _read_head(self._memory, self._worker_id, EPOCH)
        if note.sequence == 0 or note.number != epoch:  # else it is our predecessor's, and as good as ours
            self._write(EPOCH, epoch)
        return skipped

    def note(self, number: int) -> None:
        """The batch of this task is made, or will not be made; its answer is not out yet."""
        if self._memory is None or number == self._number:
            return
        self._number = number
        self._turn(number)

    def note_help(self) -> None:
        """Samples for a batch of somebody else's are made."""
        if self._memory is not None:
            self._turn(NO_TASK)

    def _turn(self, number: int) -> None:
        """Write over the older of the two notes."""
        self._write(self._place, number)
        self._place = 1 - self._place

    def _write(self, place: int, number: int) -> None:
        streams = save_streams()
        at = _offset(self._worker_id, place)
        if _HEAD.size + len(streams) > NOTE_BYTES:
            raise RuntimeError(f"the states of the random streams take {len(streams)} bytes, of {NOTE_BYTES}")
        os.pwrite(self._memory, _HEAD.pack(0, 0, 0), at)
        os.pwrite(self._memory, streams, at + _HEAD.size)
        os.pwrite(self._memory, _HEAD.pack(self._sequence, number, len(streams)), at)
        self._sequence += 1


def _offset(worker_id: int, place: int) -> int:
    return (worker_id * NOTES + place) * NOTE_BYTES


def _read_head(memory: int, worker_id: int, place: int) -> Note:
    return Note(*_HEAD.unpack(os.pread(memory, _HEAD.size, _offset(worker_id, place))))


def save_streams() -> bytes:
    """The states of the global random streams of this process."""
    streams = Streams.now()
    if streams.torch is not None:  # as bytes: a tensor takes many times as long
        streams = streams._replace(torch=streams.torch.numpy().tobytes())
    return pickle.dumps(tuple(streams), 5)


def restore_streams(data: bytes) -> None:
    """Put the streams where they stood when `data` was saved."""
    streams = Streams(*pickle.loads(data))
    if streams.torch is not None:
        torch = importlib.import_module("torch")  # imported where they were saved; never on our own account
        streams = streams._replace(torch=torch.frombuffer(bytearray(streams.torch), dtype=torch.uint8))
    streams.restore()
