"""Who speaks wrongly is dropped and counted, takes no memory, and keeps nobody from being served."""

import contextlib
import os
import pickle
import random
import socket
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import zmq
from processes import eventually

import ringbuf
from ringbuf.net.hub import MOST_STRANGERS
from ringbuf.net.link import envelope
from ringbuf.net.protocol import BODY_BYTES, Kind, Message, encode

HELLO = envelope(0, 0) + encode(Message(Kind.HELLO), {"version": "1", "label": "foe"})
BEGIN = envelope(1, 0) + encode(Message(Kind.BEGIN, extra=2))
MOST_GROWTH_BYTES = 128 << 20
SOURCE = "import numpy as np\nsource = lambda: (np.full(20_000, index) for index in range(1000))"


class Foe:
    """A connection that can say anything."""

    def __init__(self, address):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.reconnect_ivl = -1
        self.socket.sndhwm = 0
        self._monitor = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self.socket.connect(address)

    def say(self, *parts):
        self.socket.send_multipart(parts)

    def heard(self):
        return self.socket.recv() if self.socket.poll(10_000) else None

    def answered_or_dropped(self):
        return bool(zmq.select([self.socket, self._monitor], [], [], 10)[0])

    def dropped(self):
        return self._monitor.poll(10_000) != 0

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.socket.disable_monitor()
        self.context.destroy(linger=0)


class Raw:
    """A TCP connection that speaks ZMTP by hand, after the greeting if that is wanted."""

    GREETING = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
    READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"

    def __init__(self, address, greet=True):
        self.sock = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        self.sock.settimeout(20)
        if greet:
            self.sock.sendall(self.GREETING + self.READY)
            answer = b""
            while b"READY" not in answer and (more := self.sock.recv(4096)):  # what came earlier would be no frame yet
                answer += more

    def send(self, data):
        """Whether it was taken."""
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def ended(self):
        with contextlib.suppress(ConnectionResetError):
            while self.sock.recv(1 << 16):
                pass
        return True

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.sock.close()


class Healthy:
    """A client that takes batch after batch in a thread."""

    def __init__(self, address):
        self.count = 0
        self._over = False
        self._stream = ringbuf.connect(address, timeout=30)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._over:
            for batch in self._stream:
                assert (batch == batch[0]).all()
                self.count += 1
                if self._over:
                    break

    def goes_on(self, batches=20):
        since = self.count
        return eventually(lambda: self.count >= since + batches)

    def close(self):
        self._over = True
        self._thread.join(30)
        self._stream.close()


@pytest.fixture
def server(serve):
    return serve(lambda: (np.full(20_000, index) for index in range(1000)))


@pytest.fixture
def healthy(server):
    client = Healthy(server.address)
    yield client
    client.close()


def refused(server, count):
    return eventually(lambda: server.stats()["refused"] >= count)


WRONG = {
    "nothing": [b""],
    "a byte": [b"x"],
    "no parts but empty ones": [b"", b""],
    "an envelope alone": [envelope(0, 0)],
    "half an envelope": [envelope(0, 0)[:9]],
    "no header": [envelope(0, 0) + b"rbuf"],
    "another protocol": [b"GET / HTTP/1.1\r\n\r\n" + bytes(90)],
    "two parts": [HELLO, b""],
    "the delimiter of a REQ": [b"", HELLO],
    "many parts": [HELLO] * 1000,
    "no HELLO first": [envelope(0, 0) + encode(Message(Kind.NEXT, seq=0, extra=2))],
    "a server's word": [envelope(0, 0) + encode(Message(Kind.WELCOME))],
    "no JSON": [envelope(0, 0) + encode(Message(Kind.HELLO)) + b"{"],
    "deep JSON": [envelope(0, 0) + encode(Message(Kind.HELLO)) + b"[" * 50_000],
    "a list": [envelope(0, 0) + encode(Message(Kind.HELLO)) + b"[]"],
    "a body too long": [envelope(0, 0) + encode(Message(Kind.HELLO)) + b" " * (BODY_BYTES + 1)],
    "a pickle": [pickle.dumps(Exception)],
    "a pickle as a body": [envelope(0, 0) + encode(Message(Kind.HELLO)) + pickle.dumps({"version": "1"})],
    "a token of nobody": [envelope(0, 0) + encode(Message(Kind.RESUME), {"token": "0" * 32})],
    "no token": [envelope(0, 0) + encode(Message(Kind.RESUME), {"token": 7})],
    "far too much": [bytes(2 << 20)],
}


@pytest.mark.parametrize("parts", WRONG.values(), ids=WRONG)
def test_a_wrong_first_word(server, parts):
    with Foe(server.address) as foe:
        foe.say(*parts)
        assert foe.dropped() and refused(server, 1)
    assert server.stats()["clients"] == []


LATER = {
    "HELLO again": HELLO,
    "a message that was not due": envelope(7, 0) + encode(Message(Kind.BEGIN, extra=2)),
    "one that did not come was received": envelope(1, 99) + encode(Message(Kind.BEGIN, extra=2)),
    "too many asked for": envelope(1, 0) + encode(Message(Kind.BEGIN, extra=1000)),
    "a huge limit": envelope(1, 0) + encode(Message(Kind.BEGIN, extra=(1 << 64) - 1)),
    "done with what was not sent": envelope(1, 0) + encode(Message(Kind.NEXT, seq=5, extra=6)),
    "free what was not sent": envelope(1, 0) + encode(Message(Kind.FREE, seq=5)),
    "an unknown kind": envelope(1, 0) + encode(Message(99)),
    "another version": envelope(1, 0) + b"rbuf\xff" + bytes(59),
    "no number": envelope(0, 0) + encode(Message(Kind.BEGIN, extra=2)),
    "a byte": b"x",
    "a pickle": pickle.dumps(7),
}


@pytest.mark.parametrize("data", LATER.values(), ids=LATER)
def test_a_wrong_word_later(server, data):
    with Foe(server.address) as foe:
        foe.say(HELLO)
        assert foe.heard()
        foe.say(data)
        assert foe.dropped() and refused(server, 1)
    assert eventually(lambda: server.stats()["clients"] == [])


def test_another_version_of_the_protocol_is_told(server):
    with Foe(server.address) as foe:
        wrong = bytearray(HELLO)
        wrong[20] = 9
        foe.say(bytes(wrong))
        assert b"version 9" in foe.heard()


def test_every_length_and_every_byte_of_a_hello_changed(server, healthy):
    """Cut after each byte, and each byte another one: either a client like any other, or dropped and counted."""
    tries = [HELLO[:length] for length in range(len(HELLO))]
    for at in range(len(HELLO)):
        changed = bytearray(HELLO)
        changed[at] ^= random.Random(at).randrange(1, 256)
        tries.append(bytes(changed))
    before = server.stats()
    for data in tries:
        with Foe(server.address) as foe:
            foe.say(data)
            assert foe.answered_or_dropped()

    def seen():
        now = server.stats()
        return now["refused"] - before["refused"] + now["served"] - before["served"]

    assert eventually(lambda: seen() >= len(tries))
    assert healthy.goes_on()


def test_random_bytes(server, healthy):
    chance = random.Random(7)
    for _ in range(100):
        with Foe(server.address) as foe:
            foe.say(
                *(
                    chance.randbytes(chance.choice([0, 1, 15, 16, 79, 80, 81, 500, 60_000]))
                    for _ in range(chance.randint(1, 3))
                )
            )
    assert refused(server, 90)
    assert healthy.goes_on()


def test_a_client_that_asks_again_and_again_is_dropped(server, healthy):
    with Foe(server.address) as foe:
        foe.say(HELLO)
        assert foe.heard()
        for number in range(1, 3000):
            foe.say(envelope(number, 0) + encode(Message(Kind.NEXT, seq=0, extra=2)))
        assert foe.dropped() and refused(server, 1)
    assert healthy.goes_on()


def test_a_client_that_reads_nothing_is_sent_no_more_than_it_asked_for(server, healthy):
    with Foe(server.address) as foe:
        foe.say(HELLO)
        foe.say(envelope(1, 0) + encode(Message(Kind.BEGIN, extra=3)))
        assert eventually(lambda: any(client["sent"] == 3 for client in server.stats()["clients"]))
        assert healthy.goes_on()
        assert [c["sent"] for c in server.stats()["clients"] if c["label"] == "foe"] == [3]


def test_the_greeting_of_these_tests_is_a_right_one(server):
    """Or what follows would show nothing."""
    with Raw(server.address) as raw:
        raw.send(b"\x00" + bytes([255]) + HELLO.ljust(255) if len(HELLO) < 256 else b"")
        assert eventually(lambda: server.stats()["served"] == 1)


def test_a_relay_is_watched_for_pickles(server, connect, no_pickles_in_relays):
    next(iter(connect(server.address)))
    assert no_pickles_in_relays.exists()


# ---- against the memory of a server, in a process of its own so that it can be measured


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def apart(server_program):
    """(address, most): a server with a healthy client; most() is by how many bytes it has grown, at most."""
    child, address = server_program(SOURCE)
    client = Healthy(address)
    assert client.goes_on(100)
    before, peak, over = resident_bytes(child.pid), [0], threading.Event()

    def watch():
        while not over.wait(0.02):
            peak[0] = max(peak[0], resident_bytes(child.pid) - before)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield address, lambda: peak[0], client
    over.set()
    thread.join()
    client.close()


def test_an_oversize_frame_is_refused_unread(apart):
    address, most, healthy = apart
    for size in (1 << 20, 1 << 40, (1 << 63) - 1):
        with Raw(address) as raw:
            assert raw.send(b"\x02" + struct.pack(">Q", size))
            for _ in range(64):
                if not raw.send(bytes(1 << 20)):
                    break
            assert raw.ended()
    assert healthy.goes_on() and most() < 64 << 20


def test_a_million_tiny_frames(apart):
    address, most, healthy = apart
    for frame in (b"\x00\x00", b"\x00\x01x"):
        with Raw(address) as raw:
            raw.send(frame * 1_000_000)
            assert raw.ended()
    assert healthy.goes_on() and most() < 64 << 20


@pytest.mark.parametrize(
    "part", [b"\x01\x01x", b"\x03" + struct.pack(">Q", 60_000) + bytes(60_000)], ids=["tiny", "large"]
)
def test_a_message_of_endless_parts(apart, part):
    address, most, healthy = apart
    with Raw(address) as raw:
        block = part * ((1 << 20) // len(part))
        sent = 0
        while raw.send(block) and sent < 4096:
            sent += 1
        assert sent < 4096, "4 GiB were taken"
        assert raw.ended()
    assert healthy.goes_on() and most() < MOST_GROWTH_BYTES


def test_slow_loris_and_half_open_connections(apart):
    address, most, healthy = apart
    raws = [Raw(address, greet=False) for _ in range(20)]
    slow = threading.Event()

    def drip():
        for byte in Raw.GREETING * 100:
            if slow.wait(0.05) or not raws[0].send(bytes([byte])):
                return

    thread = threading.Thread(target=drip)
    thread.start()
    assert all(raw.ended() for raw in raws)
    slow.set()
    thread.join()
    [raw.sock.close() for raw in raws]
    assert healthy.goes_on() and most() < 64 << 20


def test_who_connects_and_says_nothing_is_dropped(server, healthy):
    """Also one that answers heartbeats, which ZeroMQ itself would keep for ever."""
    with Foe(server.address) as foe:
        assert foe.dropped() and refused(server, 1)
    assert healthy.goes_on()


def test_no_more_than_so_many_strangers(serve, monkeypatch):
    """They may be silent for a long time, and are as many as may be; one more is cut at once."""
    monkeypatch.setattr("ringbuf.net.remote.HELLO_S", 300.0)
    server = serve(lambda: (np.full(20_000, index) for index in range(1000)))
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(Raw(server.address, greet=False)) for _ in range(MOST_STRANGERS)]
        assert eventually(lambda: len(server._hub.frontends[1].doorway) == MOST_STRANGERS)
        assert stack.enter_context(Raw(server.address, greet=False)).ended() and refused(server, 1)
        assert server.stats()["refused"] == 1
        for raw in silent:
            raw.sock.setblocking(False)
            with pytest.raises(BlockingIOError):  # it is open still
                while raw.sock.recv(1 << 10):
                    pass


def test_five_hundred_connections(apart):
    address, most, healthy = apart
    raws = [Raw(address, greet=False) for _ in range(500)]
    for raw in raws:
        raw.send(Raw.GREETING + Raw.READY)  # unless it was cut by then
    assert all(raw.ended() for raw in raws)
    [raw.sock.close() for raw in raws]
    assert healthy.goes_on() and most() < 128 << 20
    with ringbuf.connect(address, timeout=30) as stream:
        next(iter(stream))


def test_a_healthy_client_keeps_its_rate_under_attack(apart, figures):
    """Windows with and without an attack in turn; only progress is asserted, a busy machine decides the rest."""
    address, _, healthy = apart
    over = threading.Event()

    def attack():
        while not over.is_set():
            with contextlib.suppress(OSError), Raw(address) as raw:
                raw.send(b"\x00\x01x" * 10_000)
                over.wait(0.01)

    counts = {False: 0, True: 0}
    for attacked in [False, True] * 3:
        over.clear()
        thread = threading.Thread(target=attack)
        if attacked:
            thread.start()
        since = healthy.count
        time.sleep(0.5)
        counts[attacked] += healthy.count - since
        over.set()
        if attacked:
            thread.join()
    figures(quiet=counts[False], attacked=counts[True])
    assert counts[True] > 0
