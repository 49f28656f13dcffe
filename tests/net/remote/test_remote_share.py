"""Several trainers of one machine and one download."""

import errno
import os
import signal
import threading

import numpy as np
import pytest
from processes import eventually

import ringbuf
from ringbuf.net.share import Share


def source():
    return (np.full(100_000, index) for index in range(30))


def numbers(stream):
    got = []
    for batch in stream:
        assert (batch == batch[0]).all()
        got.append(int(batch[0]))
    return got


def together(streams, epochs=1):
    """What each gets, all at the same time."""
    got = [[] for _ in streams]
    threads = [
        threading.Thread(target=lambda s=stream, g=mine: [g.append(numbers(s)) for _ in range(epochs)])
        for stream, mine in zip(streams, got)
    ]
    [thread.start() for thread in threads]
    [thread.join(40) for thread in threads]
    return got


@pytest.fixture
def name():
    return f"test.{os.getpid()}"


def gone(name):
    """Whether the shared relay has ended, as it does a while after its last trainer."""
    return eventually(lambda: f"ringbuf-share/{os.geteuid()}/{name}" not in open_sockets())


def open_sockets():
    with open("/proc/net/unix", errors="replace") as lines:
        return lines.read()


def test_where_no_descriptor_is_left_others_come_later():
    """Who is there goes on: that nobody can be let in is no error of the relay, and it looks again."""

    class Full:
        tries = 0

        def accept(self):
            self.tries += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    share = Share.__new__(Share)
    share._listener, share._newcomers, share._deaf_until = Full(), [], 0.0
    share._accept()
    share._accept()
    assert share._listener.tries == 1 and share._newcomers == []
    assert eventually(lambda: share._accept() or share._listener.tries == 2)


def test_a_broadcast_comes_over_the_network_once(serve, connect, proxy, name):
    server = serve(source, mode="broadcast", epochs=2, clients=1)
    between = proxy(server.address)
    streams = [connect(between.address, share=name) for _ in range(3)]
    assert [stream.local for stream in streams] == [False] * 3
    assert together(streams, epochs=2) == [[list(range(30))] * 2] * 3
    assert between.connections == 1 and server.stats()["served"] == 1
    assert 60 * 800_000 < len(between.seen) < 70 * 800_000
    [stream.close() for stream in streams]
    assert gone(name)


def test_trainers_of_a_shared_broadcast_look_at_the_same_memory(serve, connect, name):
    server = serve(source, mode="broadcast")
    first, second = (next(iter(connect(server.address, share=name))) for _ in range(2))
    assert not first.flags.writeable and not second.flags.writeable
    first, second = (array.__array_interface__["data"][0] for array in (first, second))
    inodes = [inode_at(address) for address in (first, second)]
    assert inodes[0] == inodes[1]


def inode_at(address):
    with open("/proc/self/maps") as lines:
        for line in lines:
            span, _, _, _, inode, *_ = line.split()
            start, end = (int(part, 16) for part in span.split("-"))
            if start <= address < end:
                return int(inode)
    raise AssertionError("not mapped")


def test_in_split_each_trainer_has_a_session_of_its_own(serve, connect, name):
    server = serve(source, epochs=2)
    streams = [connect(server.address, share=name) for _ in range(3)]
    assert eventually(lambda: len(server.stats()["clients"]) == 3)
    got = together(streams, epochs=2)
    for epoch in range(2):
        assert sorted(index for mine in got for index in mine[epoch]) == list(range(30))


def test_a_trainer_that_dies_takes_nothing_with_it(serve, connect, name, program):
    text = """
import sys, ringbuf
stream = ringbuf.connect(sys.argv[1], share=sys.argv[2])
loop = iter(stream)
next(loop)
print("has one", flush=True)
sys.stdin.readline()
"""
    server = serve(source, epochs=1)
    dying = program(text, server.address, name)
    assert dying.line() == "has one"
    stream = connect(server.address, share=name)
    dying.kill(signal.SIGKILL)
    assert sorted(numbers(stream)) == list(range(30))


def test_the_first_trainer_may_go_before_the_others(serve, connect, name):
    server = serve(source, mode="broadcast", epochs=1)
    first = ringbuf.connect(server.address, share=name)
    second = connect(server.address, share=name)
    loop = iter(second)
    got = [int(next(loop)[0])]
    first.close()
    got += [int(batch[0]) for batch in loop]
    assert got == list(range(30))


def test_errors_of_the_source_reach_all(serve, connect, name):
    there = threading.Event()

    def failing():
        yield np.zeros(3)
        there.wait(30)
        raise LookupError("no such image: 7.png")

    server = serve(failing, mode="broadcast")
    streams = [connect(server.address, share=name) for _ in range(2)]
    loops = [iter(stream) for stream in streams]
    [next(loop) for loop in loops]
    there.set()
    for loop in loops:
        with pytest.raises(ringbuf.SourceFailed, match=r"7\.png"):
            next(loop)
    with pytest.raises(LookupError):
        server.wait(30)


def test_length_and_fields(serve, connect, name):
    stream = connect(serve([np.zeros((2, 3))] * 7, mode="broadcast").address, share=name)
    assert len(stream) == 7 and stream.fields == ringbuf.Field(np.dtype(float), (2, 3))


def test_a_name_stands_for_one_address(serve, connect, name):
    one, other = serve(source), serve(source)
    connect(one.address, share=name)
    with pytest.raises(ValueError, match=f"is a download from {one.address}, not from {other.address}"):
        ringbuf.connect(other.address, share=name, timeout=10)


def test_an_unreachable_server_is_told_to_whoever_waits(name):
    with pytest.raises(ConnectionError, match="could not be reached"):
        ringbuf.connect("tcp://127.0.0.1:1", share=name, timeout=1)
    assert gone(name)


def test_who_shares_a_broadcast_misses_nothing_that_it_asked_for(serve, connect, name):
    """The first trainer's place is asked for; another one may begin there or later, and is refused before."""
    server = serve(source, mode="broadcast", epochs=1, clients=1)
    places = {index: {"epoch": 0, "index": index, "done": []} for index in (3, 4, 9)}
    first = connect(server.address, share=name, state=places[4])
    with pytest.raises(ringbuf.SessionLost, match="refused"):
        connect(server.address, share=name, state=places[3])
    later = connect(server.address, share=name, state=places[9])
    assert together([first, later]) == [[list(range(4, 30))], [list(range(9, 30))]]
