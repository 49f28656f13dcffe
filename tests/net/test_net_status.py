"""How a server is, asked from outside and told in parts."""

import itertools
import json
import os
import threading

import pytest
from processes import eventually

import ringbuf
from ringbuf.net import inquiry, local, status
from ringbuf.net.protocol import BODY_BYTES, Kind, Message, encode

names = (f"status-{os.getpid()}-{number}" for number in itertools.count())


@pytest.fixture
def server():
    with ringbuf.Server([1.5, 2.5, 3.5], next(names), mode="broadcast", epochs=2) as server:
        yield server


def steady(picture):
    """Without what changes from one moment to the next."""
    clients = [{k: v for k, v in c.items() if k not in ("connected_s", "waited_s")} for c in picture["clients"]]
    rest = {k: v for k, v in picture.items() if k not in ("running_s", "source_s", "room_s", "doing_s", "doing")}
    return {**rest, "clients": clients}


def test_the_answer_is_what_stats_gives(server):
    with ringbuf.connect(server.name, label="me") as stream:
        assert list(stream) == [1.5, 2.5, 3.5]
        assert eventually(lambda: server.stats()["ready"] == 3)  # those of the next epoch
        answer = inquiry.status(server.name)
        assert steady(answer) == steady(server.stats())
    assert [client["label"] for client in answer["clients"]] == ["me"] and answer["clients"][0]["sent"] == 3
    assert answer["running_s"] > 0 and answer["length"] == 3 and answer["connected"] == 1


def test_an_answer_that_takes_several_messages_is_whole(server, monkeypatch):
    monkeypatch.setattr(status, "BODY_BYTES", 1500)
    streams = [ringbuf.connect(server.name, label=f"client {number}") for number in range(9)]
    try:
        answer = inquiry.status(server.name)
    finally:
        for stream in streams:
            stream.close()
    assert [client["label"] for client in answer["clients"]] == [f"client {number}" for number in range(9)]
    assert "more" not in answer


def worst_client(number):
    counters = dict.fromkeys(("sent", "acknowledged", "lag", "held", "bytes", "waits"), 1 << 50)
    times = dict.fromkeys(("waited_s", "connected_s"), 1 / 3 * 1e9)
    about = {
        "label": "\u00e9" * 40,
        "local": False,
        "pid": 1 << 22,
        "epoch": 1 << 40,
        "index": 1 << 40,
        "in_loop": False,
    }
    return {"client": number, **about, **counters, **times}


def test_1024_clients_of_the_longest_labels_come_in_parts_that_fit():
    picture = {"name": "x" * 80, "clients": [worst_client(number) for number in range(1, 1025)]}
    seen, after, more, parts = [], 0, True, 0
    while more:
        part = status.page(picture, after)
        assert len(json.dumps(part, separators=(",", ":"))) <= BODY_BYTES
        encode(Message(Kind.STATUS), part)
        seen += part["clients"]
        after, more, parts = seen[-1]["client"], part["more"], parts + 1
    assert seen == picture["clients"] and parts <= inquiry.MOST_PAGES


def test_a_name_that_nobody_has_is_told_with_those_that_run(server):
    with pytest.raises(FileNotFoundError, match=server.name):
        inquiry.status("nobody-has-this-name")


def listening(answer):
    """A server that gives this answer to the first who asks."""

    name = next(names)
    listener = local.listen(name)
    listener.setblocking(True)

    def serve():
        with listener, listener.accept()[0] as sock:
            sock.recv(1 << 16)
            if answer is not None:
                sock.send(answer)
            else:
                done.wait(30)

    done = threading.Event()
    thread = threading.Thread(target=serve)
    thread.start()
    return name, lambda: (done.set(), thread.join())


@pytest.mark.parametrize(
    "answer, words",
    [
        (encode(Message(Kind.STATUS), {"name": "x"}), "not understood"),
        (encode(Message(Kind.WELCOME)), "did not say how it is"),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(answer, words):
    name, end = listening(answer)
    try:
        with pytest.raises(ConnectionError, match=words):
            inquiry.status(name)
    finally:
        end()


def test_a_server_that_does_not_answer_is_not_waited_for():
    name, end = listening(None)
    try:
        with pytest.raises(ConnectionError, match=r"did not say within 0\.05 s"):
            inquiry.status(name, timeout=0.05)
    finally:
        end()


def test_in_split_the_position_is_what_all_have_done():
    with ringbuf.Server([0, 1, 2, 3, 4], next(names)) as server:
        with ringbuf.connect(server.name) as one, ringbuf.connect(server.name) as other:
            first, second = iter(one), iter(other)
            next(first), next(second), next(first)  # the first client is done with its first one
            assert eventually(lambda: (server.stats()["epoch"], server.stats()["index"]) == (0, 1))
            second.close()  # it is done with the second
            assert len(list(first)) == 2
            assert eventually(lambda: (server.stats()["epoch"], server.stats()["index"]) == (1, 0))


def test_in_broadcast_the_position_is_that_of_who_is_behind():
    with ringbuf.Server(list(range(6)), next(names), mode="broadcast", clients=2) as server:
        with (
            ringbuf.connect(server.name, label="ahead", ahead=1) as one,
            ringbuf.connect(server.name, label="behind", ahead=1) as other,
        ):
            first, second = iter(one), iter(other)
            for _ in range(4):
                next(first)
            next(second)
            assert eventually(lambda: [client["index"] for client in server.stats()["clients"]] == [4, 1])
            assert server.stats()["index"] == 1
            assert [client["lag"] for client in server.stats()["clients"]] == [1, 4]
            del first, second


def test_what_the_source_is_at_is_told_while_it_is():
    asked, go_on = threading.Event(), threading.Event()

    def source():
        asked.set()
        assert go_on.wait(30)
        yield 1

    with ringbuf.Server(source, next(names), ahead=1) as server:
        assert asked.wait(30)
        first = server.stats()
        assert first["doing"] == "source" and first["produced"] == 0
        assert eventually(lambda: server.stats()["source_s"] > first["source_s"])  # it counts before it ends
        go_on.set()
        assert eventually(lambda: server.stats()["doing"] == "room")
        before = server.stats()
        assert eventually(lambda: server.stats()["room_s"] > before["room_s"])
        assert server.stats()["source_s"] == before["source_s"]
