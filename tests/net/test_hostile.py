"""Peers that speak wrongly, or mean harm: they lose their connection and are counted, and nobody else notices."""

import fcntl
import json
import os
import select
import socket
import struct
import threading

import numpy as np
import pytest
from actors import batches, number, unique_name
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import eventually, forked
from test_local_faults import close_all, hear, say

import ringbuf
from ringbuf import frame
from ringbuf.net import local, neighbours
from ringbuf.net.protocol import BODY_BYTES, HEADER_BYTES, Kind, Message, ProtocolError, clean, decode, encode, parse

HELLO = {"version": "1"}


# ---- bytes


@pytest.mark.parametrize("length", range(200))
def test_bytes_of_any_length_are_a_message_or_an_error(length):
    good = encode(Message(Kind.HELLO), HELLO)
    for data in (bytes(length), b"\xff" * length, good[:length], good + bytes(length), os.urandom(length)):
        try:
            _, body = decode(data)
            assert len(data) >= HEADER_BYTES and len(body) == len(data) - HEADER_BYTES
            parse(body, version=str)
        except ProtocolError:
            pass


@given(st.binary(max_size=300))
@settings(deadline=None, database=None)
def test_a_body_is_an_object_or_an_error(body):
    try:
        values = parse(memoryview(body), label=(str, type(None)))
    except ProtocolError:
        return
    assert set(values) <= {"label"}


@pytest.mark.parametrize("body", [b"[" * 50_000, b"1" * 5000, b"[]", b"null", b'"x"', b"\xff\xfe\x00", b'{"a":' * 9000])
def test_bodies_that_would_take_long_or_are_no_object_are_refused(body):
    with pytest.raises(ProtocolError):
        parse(memoryview(body))


def test_a_body_has_a_size():
    parse(memoryview(b" " * (BODY_BYTES - 2) + b"{}"))
    with pytest.raises(ProtocolError, match="at most"):
        parse(memoryview(b" " * (BODY_BYTES - 1) + b"{}"))
    with pytest.raises(ValueError, match="at most"):
        encode(Message(Kind.HELLO), {"x": "y" * BODY_BYTES})


@given(st.text(), st.integers(10, 100))
@settings(deadline=None, database=None)
def test_clean_texts_are_short_and_cannot_steer_a_terminal(text, most):
    shown = clean(text, most)
    assert len(shown.encode()) <= most
    assert all(char in "\n\t" or char.isprintable() for char in shown)


# ---- clients


@pytest.fixture
def served(serve, connect):
    """A server, and a healthy client of it in the midst of its loop; at the end it must have missed nothing."""
    server = serve(lambda: batches(400), epochs=1)
    healthy = connect(server)
    loop = iter(healthy)
    assert number(next(loop)) == 0
    yield server
    assert [number(batch) for batch in loop][-1] == 399
    assert server.wait(30)


@pytest.fixture
def knock(served):
    socks = []

    def connect(hello=True):
        sock = local.connect(served.name)
        socks.append(sock)
        if hello:
            say(sock, Kind.HELLO, body=HELLO)
            assert hear(sock)[0].kind == Kind.WELCOME
        return sock

    yield connect
    for sock in socks:
        sock.close()


def last_words(sock):
    """What comes until the end of a connection: the kinds, and the body of the last one."""
    kinds, said = [], {}
    while True:
        try:
            message, body, descriptors = hear(sock)
        except local.Gone:
            return kinds, said
        close_all(descriptors)
        kinds.append(message.kind)
        said = json.loads(bytes(body)) if len(body) else {}


def refused(server, sock):
    before = server.stats()["refused"]
    kinds, said = last_words(sock)
    assert kinds[-1] == Kind.REFUSED, kinds
    assert eventually(lambda: server.stats()["refused"] >= max(1, before))
    return said["text"]


@pytest.mark.parametrize("kind", [*range(12), *range(30, 45), 127, 255])
def test_a_first_word_that_is_not_hello_is_refused(served, knock, kind):
    sock = knock(hello=False)
    say(sock, kind)
    kinds, said = last_words(sock)
    if kind == Kind.STATUS:
        assert kinds == [Kind.STATUS] and said["name"] == served.name
    else:
        assert kinds == [Kind.REFUSED] and said["text"]
        assert eventually(lambda: served.stats()["refused"] == 1)
    assert len(served.stats()["clients"]) == 1


@pytest.mark.parametrize("length", [1, 3, 8, 63, 64, 65, 100, 4096, 65536, 65537, 120_000])
@pytest.mark.parametrize("hello", [False, True])
def test_garbage_of_any_length_is_refused(served, knock, length, hello):
    sock = knock(hello)
    sock.send(b"\xa5" * length)
    assert refused(served, sock)


WRONG = {
    "HELLO twice": [(Kind.HELLO, {"body": HELLO})],
    "BEGIN twice": [(Kind.BEGIN, {}), (Kind.BEGIN, {})],
    "NEXT of what was not sent": [(Kind.BEGIN, {}), (Kind.NEXT, {"seq": 1 << 40, "extra": (1 << 40) + 1})],
    "NEXT beyond all bounds": [(Kind.NEXT, {"seq": (1 << 64) - 1})],
    "a limit that is far ahead": [(Kind.BEGIN, {"extra": 65})],
    "the largest limit": [(Kind.BEGIN, {"extra": (1 << 64) - 1})],
    "a limit before what is done": [(Kind.BEGIN, {"extra": 1}), ("hear", Kind.BATCH), (Kind.NEXT, {"seq": 1, "extra": 0})],
    "FREE of what was not sent": [(Kind.FREE, {"seq": 1})],
    "FREE of nothing": [(Kind.FREE, {"seq": 0})],
    "LEAVE of what was not sent": [(Kind.BEGIN, {}), (Kind.LEAVE, {"seq": 7})],
    "what a server says": [(Kind.WELCOME, {})],
    "STATUS after HELLO": [(Kind.STATUS, {})],
    "a kind that there is not": [(99, {})],
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
def test_wrong_words_end_a_session(served, knock, words):
    sock = knock()
    for kind, fields in words:
        if kind == "hear":
            while True:
                message, _, descriptors = hear(sock)
                close_all(descriptors)
                if message.kind == fields:
                    break
        else:
            say(sock, kind, **fields)
    assert refused(served, sock)
    assert eventually(lambda: len(served.stats()["clients"]) == 1)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("state", ["greeted", "in a loop", "left", "parted"])
def test_any_word_in_any_state_leaves_the_server_alive(served, knock, kind, state):
    sock = knock()
    if state != "greeted":
        say(sock, Kind.BEGIN, extra=2)
    if state == "left":
        say(sock, Kind.LEAVE, seq=0)
    if state == "parted":
        say(sock, Kind.BYE, seq=2)
    try:
        say(sock, kind, seq=1, extra=3)
        say(sock, kind, seq=0, extra=0, body={"text": "x"})
    except (BrokenPipeError, ConnectionResetError):
        pass
    sock.close()
    assert eventually(lambda: len(served.stats()["clients"]) == 1)


@pytest.mark.parametrize(
    "hello",
    [
        {},
        {"version": 5},
        {"version": "1", "label": 5},
        {"version": "1", "join": "then"},
        {"version": "1", "at": [1]},
        {"version": "1", "at": [1, -1]},
        {"version": "1", "at": ["a", "b"]},
        {"version": "1", "at": [True, 0]},
        {"version": "1", "at": [0, 1 << 41]},
        {"version": "1", "at": [0, 1.5]},
        {"version": "1", "at": [0, 0], "done": [[]]},
        {"version": "1", "at": [0, 0], "done": list(range(4097))},
        {"version": "1", "at": [9, 0]},
    ],
    ids=str,
)
def test_wrong_hellos_are_refused(served, knock, hello):
    sock = knock(hello=False)
    say(sock, Kind.HELLO, body=hello)
    assert refused(served, sock)


def test_a_place_at_the_end_of_all_numbers_costs_nothing(serve):
    server = serve(lambda: batches(10))
    with local.connect(server.name) as sock:
        say(sock, Kind.HELLO, body={**HELLO, "at": [0, (1 << 40) - 1], "done": [5]})
        message, _, _ = hear(sock)
        assert message.kind == Kind.WELCOME


def test_a_label_cannot_steer_a_terminal(served, knock):
    sock = knock(hello=False)
    say(sock, Kind.HELLO, body={**HELLO, "label": "\x1b[2J" + "x" * 10_000})
    hear(sock)
    (label,) = (client["label"] for client in served.stats()["clients"] if "x" in client["label"])
    assert "\x1b" not in label and len(label) <= 80


def test_descriptors_that_come_along_are_closed(served, knock):
    def pass_on(sock, count):
        reading, writing = os.pipe()
        try:
            message = encode(Message(Kind.FREE, seq=9))
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", writing) * count)]
            sock.sendmsg([message], rights)
        finally:
            os.close(writing)
        return reading

    for hello in (False, True):
        for count in (1, 5):
            sock = knock(hello)
            reading = pass_on(sock, count)
            assert refused(served, sock)
            assert select.select([reading], [], [], 30)[0] and os.read(reading, 1) == b""  # nobody has the other end
            os.close(reading)


def test_a_thousand_connections(served):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        socks = []
        for _ in range(100):
            socks.append(local.connect(served.name))
        for sock in socks:
            sock.close()
    assert eventually(lambda: len(os.listdir("/proc/self/fd")) <= before + 1)
    assert served.stats()["refused"] > 0, "more strangers than are listened to at once"
    assert len(served.stats()["clients"]) == 1


def test_a_server_without_descriptors_goes_on(actor, connect):
    """It can take in nobody then; those who are there notice nothing, and others come in later."""
    server = actor(client=False)
    name = unique_name()
    server.run(f"server = ringbuf.Server(lambda epoch: batches(50, epoch), {name!r}, mode='broadcast', ahead=2).start()")
    healthy = connect(name)
    loop = iter(healthy)
    next(loop)
    server.run("""if True:
        import resource
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 3, limits[1]))
    """)
    socks = [local.connect(name) for _ in range(30)]
    assert [number(batch) for batch in loop] == list(range(1, 50))
    for sock in socks:
        sock.close()
    server.run("resource.setrlimit(resource.RLIMIT_NOFILE, limits)")
    late = connect(name)
    assert late.mode == "broadcast"
    assert number(next(iter(healthy))) == 1000
    server.run("server.stop()")


def test_who_says_nothing_is_refused_in_time(monkeypatch, served, knock):
    monkeypatch.setattr(neighbours, "HELLO_S", 0.05)
    assert "no HELLO" in refused(served, knock(hello=False))


def test_more_clients_than_are_taken_are_refused(serve, connect):
    server = serve(lambda: batches(5), max_clients=2)
    kept = [connect(server), connect(server)]
    with pytest.raises(ringbuf.SessionLost, match="has 2 clients, which is as many as it takes"):
        connect(server)
    kept.pop().close()
    assert eventually(lambda: len(server.stats()["clients"]) == 1)
    connect(server)


def test_who_keeps_batches_after_its_end_counts_as_a_client(serve, connect):
    server = serve(lambda epoch: batches(5, epoch), max_clients=1)
    stream = connect(server)
    batch = next(iter(stream))
    stream.close()
    assert eventually(lambda: not server.stats()["clients"])
    with pytest.raises(ringbuf.SessionLost, match="1 clients"):
        connect(server)
    assert number(batch) == 0


def test_a_flood_of_words_stops_nobody(served, knock):
    flooding = threading.Event()
    over = threading.Event()
    sock = knock()
    word = encode(Message(Kind.NEXT))

    def flood():
        while not over.is_set():
            try:
                sock.send(word)
            except OSError:
                break
            flooding.set()

    thread = threading.Thread(target=flood)
    thread.start()
    assert flooding.wait(30)
    other = ringbuf.connect(served.name)
    loop = iter(other)
    for _ in range(100):
        next(loop)
    other.close()
    over.set()
    sock.shutdown(socket.SHUT_RDWR)
    thread.join(30)
    assert not thread.is_alive()


def test_another_user_is_refused(served):
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")

    def somebody_else():
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(f"\0ringbuf/0/{served.name}")
        assert select.select([sock], [], [], 30)[0]
        assert sock.recv(100) == b""
        sock.close()
        with pytest.raises(FileNotFoundError):  # each user has names of its own
            ringbuf.connect(served.name, timeout=0)

    assert forked(somebody_else) == 0
    assert eventually(lambda: served.stats()["refused"] == 1)


def test_the_name_of_another_user_is_not_trusted(serve, monkeypatch):
    server = serve(batches(3))
    monkeypatch.setattr(local, "peer_of", lambda sock: (1, os.geteuid() + 1, 0))
    with pytest.raises(PermissionError, match="was taken by user"):
        ringbuf.connect(server.name, timeout=0)


def test_another_version_is_told_apart(served, knock):
    sock = knock(hello=False)
    data = bytearray(encode(Message(Kind.HELLO), HELLO))
    data[4] = 2
    sock.send(data)
    assert "version 2 of the protocol" in refused(served, sock)


# ---- servers


WELCOME = {"mode": "split", "epochs": None, "name": "x", "version": "1"}


class Impostor:
    """A server that says whatever it is told to, once a client has said HELLO."""

    def __init__(self):
        self.name = unique_name()
        self._listener = local.listen(self.name)
        self._listener.setblocking(True)
        self._listener.settimeout(30)

    def serve(self, *words, welcome=True):
        """words: functions of the connection."""
        self._thread = threading.Thread(target=self._serve, args=(words, welcome))
        self._thread.start()

    def _serve(self, words, welcome):
        sock, _ = self._listener.accept()
        with sock:
            close_all(hear(sock)[2])
            if welcome:
                say(sock, Kind.WELCOME, body=WELCOME)
            for word in words:
                word(sock)
            try:
                while True:
                    close_all(hear(sock)[2])
            except (local.Gone, ProtocolError):
                pass

    def close(self):
        self._thread.join(30)
        self._listener.close()


@pytest.fixture
def impostor():
    one = Impostor()
    yield one
    one.close()


def word(kind, body=None, **fields):
    return lambda sock: say(sock, kind, body=body, **fields)


def raw(data):
    return lambda sock: sock.send(data)


def segment(make, nbytes, number=1, flags=0):
    """A SEGMENT with the descriptor that make() gives."""

    def send(sock):
        descriptor = make()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))]
        sock.sendmsg([encode(Message(Kind.SEGMENT, segment=number, nbytes=nbytes, flags=flags))], rights)
        os.close(descriptor)

    return send


def memory(content=b"", size=1 << 16, seal=True):
    def make():
        descriptor = os.memfd_create("impostor", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size)
        os.pwrite(descriptor, content, 0)
        if seal:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return descriptor

    return make


def file_of(tmp_path):
    def make():
        path = tmp_path / "file"
        path.write_bytes(bytes(1 << 16))
        return os.open(path, os.O_RDWR)

    return make


GOOD = segment(memory(), 1 << 16)
TRAPS = {
    "nothing but an end": [lambda sock: sock.shutdown(socket.SHUT_RDWR)],
    "garbage": [raw(b"x" * 100)],
    "a short message": [raw(b"rbuf")],
    "another version": [raw(encode(Message(Kind.END))[:4] + b"\x07" + encode(Message(Kind.END))[5:])],
    "too long a message": [raw(encode(Message(Kind.SCHEMA)) + b" " * 70_000)],
    "memory without a descriptor": [word(Kind.SEGMENT, segment=1, nbytes=4096)],
    "memory that can shrink": [segment(memory(seal=False), 1 << 16)],
    "memory that is smaller than it is said to be": [segment(memory(), (1 << 16) + 1)],
    "memory that it let go of": [GOOD, word(Kind.SEGMENT, segment=1), word(Kind.BATCH, seq=1, segment=1, nbytes=100)],
    "memory larger than all": [segment(memory(), (1 << 64) - 1)],
    "a device for memory": [segment(lambda: os.open("/dev/null", os.O_RDWR), 4096)],
    "a batch in no memory": [word(Kind.BATCH, seq=1, segment=1, nbytes=100)],
    "a batch in other memory": [GOOD, word(Kind.BATCH, seq=1, segment=2, nbytes=100)],
    "a batch outside": [GOOD, word(Kind.BATCH, seq=1, segment=1, offset=1 << 16, nbytes=1)],
    "a batch that ends outside": [GOOD, word(Kind.BATCH, seq=1, segment=1, offset=4096, nbytes=(1 << 16) - 4095)],
    "a batch beyond all numbers": [GOOD, word(Kind.BATCH, seq=1, segment=1, offset=(1 << 64) - 1, nbytes=2)],
    "a batch of all numbers": [GOOD, word(Kind.BATCH, seq=1, segment=1, offset=64, nbytes=(1 << 64) - 1)],
    "a batch of another number": [GOOD, word(Kind.BATCH, seq=2, segment=1, nbytes=4096)],
    "a batch without a number": [GOOD, word(Kind.BATCH, seq=0, segment=1, nbytes=4096)],
    "WELCOME twice": [word(Kind.WELCOME, body=WELCOME)],
    "what a client says": [word(Kind.NEXT)],
    "a kind that there is not": [word(200)],
    "FAILED without a text": [word(Kind.FAILED, body={"kind": 5})],
    "REFUSED with a number": [word(Kind.REFUSED, body={"text": 5})],
    "a schema that is a list": [word(Kind.SCHEMA, body={"length": 1, "schema": []})],
    "a body that is no JSON": [raw(encode(Message(Kind.SCHEMA)) + b"{")],
}


@pytest.mark.parametrize("words", TRAPS.values(), ids=TRAPS)
def test_a_client_ends_its_session_with_a_server_that_lies(impostor, words):
    descriptors = set(os.listdir("/proc/self/fd"))
    impostor.serve(*words)
    stream = ringbuf.connect(impostor.name)
    with pytest.raises(ringbuf.SessionLost):
        next(iter(stream))
    with pytest.raises(ringbuf.SessionLost):
        iter(stream)
    impostor._thread.join(30)
    assert not set(os.listdir("/proc/self/fd")) - descriptors


def test_a_plain_file_is_not_taken_for_memory(impostor, tmp_path):
    impostor.serve(segment(file_of(tmp_path), 1 << 16))
    with pytest.raises(ringbuf.SessionLost, match="could shrink"):
        next(iter(ringbuf.connect(impostor.name)))


FIRST_WORDS = {
    "a first word that is none": ([raw(b"hello")], ringbuf.RingbufError),
    "not WELCOME": ([word(Kind.END)], ringbuf.RingbufError),
    "another mode": ([word(Kind.WELCOME, body={**WELCOME, "mode": "some"})], ringbuf.RingbufError),
    "no mode": ([word(Kind.WELCOME, body={})], ringbuf.RingbufError),
    "another version": ([raw(b"rbuf\x02" + bytes(59))], ringbuf.VersionMismatch),
    "refused for its version": ([word(Kind.REFUSED, body={"text": "no", "version": True})], ringbuf.VersionMismatch),
    "refused": ([word(Kind.REFUSED, body={"text": "the protocol of the house"})], ringbuf.SessionLost),
}


@pytest.mark.parametrize(("words", "error"), FIRST_WORDS.values(), ids=FIRST_WORDS)
def test_a_client_does_not_begin_with_a_server_that_lies(impostor, words, error):
    impostor.serve(*words, welcome=False)
    with pytest.raises(error):
        ringbuf.connect(impostor.name, timeout=5)


def test_a_server_that_says_nothing_is_given_up_in_time(impostor):
    impostor.serve(welcome=False)
    with pytest.raises(ConnectionError, match="is there, but a word of welcome did not come in time"):
        ringbuf.connect(impostor.name, timeout=0.2)


def test_frames_that_are_none_are_errors(impostor):
    """The session goes on: what it was is for the caller to decide."""
    impostor.serve(segment(memory(os.urandom(1000)), 1 << 16), word(Kind.BATCH, seq=1, segment=1, nbytes=1000))
    with ringbuf.connect(impostor.name) as stream:
        loop = iter(stream)
        for _ in range(2):  # it is not taken for done
            with pytest.raises(ringbuf.FrameError):
                next(loop)


# ---- pickles


class Canary:
    """Whoever unpickles it ends this process."""

    def __reduce__(self):
        return os._exit, (66,)


def test_a_frame_with_a_pickle_is_not_read(impostor):
    for batch in (Canary(), [Canary()], {"a": (1, Canary())}, {"a": np.ones(3), "b": [{"c": Canary()}]}):
        plan = frame.plan(batch, pickle=True)
        content = bytearray(plan.frame_bytes)
        plan.write(content)
        one = Impostor()
        one.serve(segment(memory(bytes(content)), 1 << 16), word(Kind.BATCH, seq=1, segment=1, nbytes=len(content)))
        with ringbuf.connect(one.name) as stream, pytest.raises(ringbuf.FrameError, match="pickled"):
            next(iter(stream))
        one.close()
    impostor.serve(welcome=False)
    with pytest.raises(ConnectionError):
        ringbuf.connect(impostor.name, timeout=0.1)


@pytest.mark.parametrize(
    ("batch", "path"),
    [
        ("canary()", "batch"),
        ("[1, canary()]", "batch[1]"),
        ("{'a': np.ones(3), 'b': (1, [canary()])}", "batch['b'][1][0]"),
        ("{'o': np.array([canary()], dtype=object)}", "batch['o']"),
        ("Point(1, canary())", "batch.y"),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_server_serves_no_pickle(actor, connect, batch, path, workers):
    """Its own loader's workers may send some to it; those go no further."""
    name = unique_name()
    server = actor(client=False)
    server.run(f"""if True:
        import collections, os
        Point = collections.namedtuple("Point", "x y")
        class canary:
            def __reduce__(self):
                return os._exit, (66,)
        made = lambda samples=None: {batch}
        source = [made()] if not {workers} else ringbuf.RingLoader(range(10), 2, num_workers=2, collate_fn=made)
    """)
    server.run(f"server = ringbuf.Server(source, {name!r}).start()")
    try:
        stream = connect(name, timeout=2)
    except (FileNotFoundError, ringbuf.SessionLost):
        pass  # it has failed and ended already
    else:
        with pytest.raises(ringbuf.SourceFailed) as caught:
            list(stream)
        assert caught.value.kind == "TypeError" and path + " " in caught.value.text
    server.begin("server.wait(30)")
    with pytest.raises(Exception, match="TypeError") as caught:
        server.finish()
    assert path + " " in str(caught.value)


def test_no_module_of_the_wire_knows_pickle():
    folder = os.path.dirname(neighbours.__file__)
    for name in os.listdir(folder):
        if name.endswith((".py", ".pyx")):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text = file.read()
            assert "import pickle" not in text and "eval(" not in text and "exec(" not in text, name
