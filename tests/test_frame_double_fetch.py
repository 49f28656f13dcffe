"""Frames that a hostile process rewrites while they are read: a batch or a FrameError, never a crash, and nobody's code runs."""

import mmap
import os
import pickle
import struct
import time
import uuid

import numpy as np
import pytest
from processes import process

import ringbuf
from ringbuf import frame
from ringbuf.errors import FrameError

SIZE = 4096


class Canary:
    """Unpickling it leaves a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def forged(tree: bytes, values: bytes, rows: bytes = b"[]", arrays: bytes = b"") -> bytes:
    schema, tail = b"[" + tree + b"," + rows + b"]", 64 + len(arrays)
    total = tail + len(values) + len(schema)
    return struct.pack("<8s7Q", b"rb-frame", 1, total, tail, len(values), len(schema), 0, 0) + arrays + values + schema


def honest(batch) -> bytes:
    plan = frame.plan(batch)
    buffer = bytearray(plan.frame_bytes)
    plan.write(buffer)
    return bytes(buffer)


def variants(path) -> list[bytes]:
    """Frames that are each all right, or known to be refused, and that make no sense when mixed."""
    canary = pickle.dumps(Canary(path))
    sized = struct.pack("<Q", len(canary)) + canary
    return [
        honest({"image": np.arange(64, dtype=np.uint8), "label": np.arange(9)}),
        honest({"image": np.arange(64, dtype="<i2").reshape(8, 8), "label": "a text of some length"}),
        honest(b"b" * 300),
        honest("t" * 300),
        honest(["a" * 40, b"b" * 300, 2**200, np.float32(1), [1, 2, 3]]),
        honest([np.zeros(4, [("a", "i1"), ("b", "<i4", (2,))])] * 5),
        forged(b'"y"  ', sized),  # as long as the next one: only a few bytes tell whether it is a pickle
        forged(b'["p",0]'[:7], sized),
        forged(b'["list","y","p"]', sized * 2),
        forged(b'["p",1]', sized, b'[["|u1",[64],64]]', bytes(64)),
        bytes(200),
    ]


def scribble(memory, offsets, frames):
    """Write without a pause: whole frames, words of their headers, and anything anywhere."""
    random = np.random.default_rng(1)
    view = memoryview(memory)
    words = np.frombuffer(memory, "<u8")
    nasty = np.array([0, 1, 8, 63, 64, 65, 200, 2**31, 2**32, 2**63, 2**64 - 1], "<u8")
    while True:
        dice = random.integers(0, 1 << 30, 64).tolist()
        for n in dice:
            at = offsets[n % len(offsets)]
            if n % 7 < 3:
                chosen = frames[n // 7 % len(frames)]
                view[at : at + len(chosen)] = chosen
            elif n % 7 < 5:
                words[at // 8 + n // 7 % 8] = nasty[n // 64 % len(nasty)]
            else:
                view[at + n // 7 % 700] = n // 5000 % 256


def walk_through(value):
    if isinstance(value, np.ndarray):
        value.tobytes()
    elif isinstance(value, dict):
        walk_through(list(value.items()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            walk_through(item)


def test_bytes_that_change_while_they_are_read_give_a_batch_or_a_frame_error(tmp_path, thorough, figures):
    memory = mmap.mmap(-1, SIZE)
    canary = tmp_path / "ran"
    batches = refused = 0
    with process(scribble, memory, [0], variants(canary)):
        until = time.monotonic() + (20 if thorough else 1)
        while time.monotonic() < until or not (batches and refused):
            try:
                walk_through(frame.read(memory, copy=bool(refused & 1)))
                batches += 1
            except FrameError:
                refused += 1
    assert not canary.exists()
    figures(batches=batches, refused=refused)


def scribble_over_slots(name, frames):
    with open(f"/dev/shm/ringbuf.{name}", "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    stride = struct.unpack_from("<Q", memory, 56)[0]
    payload_at = struct.unpack_from("<Q", memory, 80)[0]
    slots = struct.unpack_from("<I", memory, 36)[0]
    scribble(memory, [payload_at + i * stride for i in range(slots)], frames)


@pytest.mark.parametrize("message", [np.arange(100), b"b" * 300, {"image": "t" * 40, "label": 3}], ids=type)
@pytest.mark.parametrize("take", ["get", "get_copy"])
def test_no_pickle_of_a_hostile_peer_runs_in_a_named_ring(take, message, tmp_path, thorough, figures):
    canary = tmp_path / "ran"
    batches = refused = 0
    with ringbuf.RingBuffer(4, 8192, name=f"test.{uuid.uuid4().hex}") as ring:
        with process(scribble_over_slots, ring.name, variants(canary)):
            until = time.monotonic() + (10 if thorough else 1)
            while time.monotonic() < until or not (batches and refused):
                try:
                    ring.put(message, timeout=0)
                    walk_through(getattr(ring, take)(timeout=0))
                    batches += 1
                except FrameError:
                    refused += 1
        stats = ring.stats()
        assert (stats.free, stats.consumed) == (4, batches + refused)  # a frame that is refused gives its slot back
    assert not canary.exists()
    figures(batches=batches, refused=refused)


def test_the_canary_sings(tmp_path):
    batch = frame.read(variants(tmp_path / "ran")[7], pickle=True)
    assert batch is None and (tmp_path / "ran").exists()
