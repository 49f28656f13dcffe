"""What comes from a server is not trusted either: sizes are looked at first, and nothing is read that is not due."""

import contextlib
import os
import pickle
import threading

import lz4.block
import numpy as np
import pytest
import zmq
from backports import zstd

import ringbuf
from ringbuf import frame
from ringbuf.net.codec import CODECS
from ringbuf.net.link import ENVELOPE_BYTES, envelope
from ringbuf.net.protocol import PIECE_BYTES, VERSION, Kind, Message, decode, encode


def frame_of(batch):
    plan = frame.plan(batch)
    data = bytearray(plan.frame_bytes)
    plan.write(data)
    return bytes(data)


GOOD = frame_of(np.arange(1000))


class FalseServer:
    """Welcomes a client, and answers its first BEGIN with `script`: messages as (Message, body or bytes), or raw bytes."""

    def __init__(self, script, welcome=None, version=VERSION):
        self._script, self._version = script, version
        self._welcome = welcome or {"mode": "split", "epochs": None, "name": "", "token": "0" * 32, "grace": 0.0}
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = 0
        self._router.bind("tcp://127.0.0.1:0")
        self.address = self._router.last_endpoint.rstrip(b"\0").decode()
        self._number = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._over.is_set():
            if not self._router.poll(20):
                continue
            client, data = self._router.recv_multipart()
            if len(data) <= ENVELOPE_BYTES:
                continue
            kind = decode(memoryview(data)[ENVELOPE_BYTES:])[0].kind
            if kind == Kind.HELLO:
                self._send(client, encode(Message(Kind.WELCOME), self._welcome))
            elif kind == Kind.BEGIN:
                for step in self._script:
                    if isinstance(step, bytes):
                        self._router.send_multipart([client, step])
                    else:
                        self._send(client, encode(step))

    def _send(self, client, message):
        self._number += 1
        data = bytearray(message)
        data[4] = self._version
        self._router.send_multipart([client, envelope(self._number, 0) + bytes(data)])

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._over.set()
        self._thread.join()
        self._context.destroy(linger=0)


def batch(nbytes, codec=0, seq=1):
    return Message(Kind.BATCH, seq=seq, nbytes=nbytes, flags=codec)


LZ4, ZSTD = CODECS["lz4"], CODECS["zstd"]
BOMB = 1 << 30
packed = {LZ4: lambda data: lz4.block.compress(data, store_size=False), ZSTD: zstd.compress}


def test_the_false_server_can_be_right():
    """Or what follows would show nothing."""
    for codec in (0, LZ4, ZSTD):
        script = [batch(len(GOOD), codec), packed[codec](GOOD) if codec else GOOD, Message(Kind.END, index=1)]
        with FalseServer(script) as server, ringbuf.connect(server.address) as stream:
            assert [got.tolist() for got in stream] == [list(range(1000))]


HOSTILE = {
    "a huge batch": [batch(1 << 62)],
    "a batch of more than there is memory": [batch(1 << 45)],
    "a batch of nothing": [batch(0)],
    "an unknown codec": [batch(len(GOOD), 77), GOOD],
    "a piece too short": [batch(len(GOOD)), GOOD[:-1]],
    "a piece too long": [batch(len(GOOD)), GOOD + b"x"],
    "an lz4 bomb": [batch(len(GOOD), LZ4), packed[LZ4](bytes(PIECE_BYTES * 8))],
    "a zstd bomb": [batch(2 * PIECE_BYTES, ZSTD), packed[ZSTD](bytes(BOMB))],
    "lz4 of too little": [batch(len(GOOD), LZ4), packed[LZ4](GOOD[:100])],
    "zstd of too little": [batch(len(GOOD), ZSTD), packed[ZSTD](GOOD[:100])],
    "lz4 cut short": [batch(len(GOOD), LZ4), packed[LZ4](GOOD)[:-5]],
    "zstd cut short": [batch(len(GOOD), ZSTD), packed[ZSTD](GOOD)[:-5]],
    "lz4 with more behind it": [batch(len(GOOD), LZ4), packed[LZ4](GOOD) + b"more"],
    "zstd with more behind it": [batch(len(GOOD), ZSTD), packed[ZSTD](GOOD) + b"more"],
    "zstd with another behind it": [batch(len(GOOD), ZSTD), packed[ZSTD](GOOD) + packed[ZSTD](b"")],
    "random bytes as lz4": [batch(len(GOOD), LZ4), os.urandom(500)],
    "random bytes as zstd": [batch(len(GOOD), ZSTD), os.urandom(500)],
    "batches that were not asked for": [step for seq in range(1, 40) for step in (batch(len(GOOD), seq=seq), GOOD)],
    "no frame": [batch(500), bytes(500)],
    "a frame that is larger than it is": [batch(200), GOOD[:200]],
    "a pickle in a frame": [batch(len(canary := frame_of([1]).replace(b'"i"', b'"p"'))), canary],
    "a pickle": [pickle.dumps(7)],
    "a wrong number": [batch(len(GOOD), seq=5), GOOD],
    "an unknown word": [Message(77)],
    "a client's word": [Message(Kind.BEGIN)],
    "memory": [Message(Kind.SEGMENT, segment=1, nbytes=4096)],
    "no envelope": [b"x"],
    "a message not due": [envelope(9, 0) + encode(Message(Kind.END))],
    "an exception without a text": [Message(Kind.FAILED)],
}


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE)
def test_a_client_gives_a_hostile_server_up(script):
    with FalseServer(script) as server, ringbuf.connect(server.address, timeout=20) as stream:
        relay = stream._dial._relay
        with pytest.raises((ringbuf.SessionLost, ringbuf.FrameError)) as caught:
            kept = list(stream)
            raise AssertionError(kept)
        assert "Traceback" not in str(caught.value)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{relay}/status") as status:
            peak = next((int(line.split()[1]) for line in status if line.startswith("VmHWM")), 0)
            assert peak < 300 << 10  # KiB


@pytest.mark.parametrize(
    "script", [HOSTILE[name] for name in HOSTILE if "lz4" in name or "zstd" in name or "piece" in name]
)
def test_the_text_says_what_was_wrong(script):
    with FalseServer(script) as server, ringbuf.connect(server.address, timeout=20) as stream:
        with pytest.raises(ringbuf.SessionLost, match=r"not understood: a piece"):
            list(stream)


@pytest.mark.parametrize("nbytes", [0, 63, 1 << 40, 1 << 62, (1 << 64) - 1])
def test_a_size_is_looked_at_before_there_is_memory_for_it(nbytes):
    with FalseServer([batch(nbytes)]) as server, ringbuf.connect(server.address, timeout=20) as stream:
        with pytest.raises(ringbuf.SessionLost, match=f"a batch of {nbytes} bytes was announced, and there are"):
            list(stream)


def test_another_version_is_named():
    with (
        FalseServer([], version=9) as server,
        pytest.raises(ringbuf.VersionMismatch, match="version 9 of the protocol"),
    ):
        ringbuf.connect(server.address, timeout=10)


@pytest.mark.parametrize(
    "welcome", [{}, {"mode": 3, "token": "", "grace": 1}, {"mode": "split"}, {"token": "x", "grace": "y"}]
)
def test_a_welcome_that_is_none(welcome):
    with FalseServer([], welcome={"nothing": 0, **welcome}) as server:
        with pytest.raises(ConnectionError):
            ringbuf.connect(server.address, timeout=10)
