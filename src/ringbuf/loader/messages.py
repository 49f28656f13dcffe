"""What travels between the main process and its workers: both sides of two rings.

    task ring   main → workers    tag: number of the task     target: id of the worker, or ANY
    data ring   workers → main    tag: number of the task     target: what the message is, one of the five below

A task is answered by one BATCH, NOTED, FAILED or END message under its own number; GROW, as often as it comes, stands
in front of the answer: "I need larger slots; look for my answer in a larger ring".

The channel (channel.py) carries, from main: "tasks", "annex" and "ring" with their descriptors, "page", "log" and "shared" with
those of the loader's page, of the logbook and of the offer to make a first batch together, if there are any, "refused" when there
is no larger ring, "stop".
From a worker: "failure" with the memory of an oversized failure, "last words".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ringbuf._core import ANY, Claim, Lease

__all__ = ["BATCH", "END", "FAILED", "GROW", "NOTED", "Wish", "fill"]

BATCH = ANY  # a frame
FAILED = 1  # a pickled Failure; empty when it is under way on the channel
GROW = 2  # the bytes needed, and who needs them
END = 3  # a report on samples that were passed over, or nothing: the worker's iterable has no further batch
NOTED = 4  # a frame of ((batch,) or None, such a report)

_WISH = struct.Struct("<QQ")


class Wish(NamedTuple):
    """What a GROW message says."""

    needed_bytes: int
    worker_id: int

    def encode(self) -> bytes:
        return _WISH.pack(*self)

    @classmethod
    def decode(cls, lease: Lease) -> Wish:
        return cls(*_WISH.unpack_from(memoryview(lease)))


def fill(claim: Claim, payload: bytes) -> None:
    """Publish `payload` in a claimed slot."""
    memoryview(claim)[: len(payload)] = payload
    claim.commit(len(payload))
