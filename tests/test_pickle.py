"""A ring travels to child processes of every start method, and through queues to those that run already."""

import contextlib
import copy
import multiprocessing
import os
import pickle

import numpy as np
import pytest
from processes import DEADLINE_S, METHODS, eventually, process, script, succeeds

import ringbuf
from ringbuf import Closed, Full, RingBuffer

SENT = [{"x": np.arange(i, i + 5), "i": i} for i in range(10)]


def produce(ring):
    for message in SENT:
        ring.put(message, timeout=DEADLINE_S)
    ring.finish()


def consume(ring, results):
    results.send([(message["i"], message["x"].tolist()) for message in ring])


def read_broadcast(ring, ready, results):
    ready.send(True)
    results.send([message["i"] for message in ring])


def receive_ring(pipe):
    ring = pipe.recv()
    ring.put("arrived", timeout=DEADLINE_S)


def say_what_it_is(ring, results):
    results.send((ring.slots, ring.slot_bytes, ring.mode, ring.name, ring._imports))


@pytest.fixture(params=[None, "named"])
def name(request):
    return request.param and f"test-pickle-{os.getpid()}"


@pytest.mark.parametrize("method", METHODS)
def test_a_child_produces_into_its_parents_ring(method, name):
    with RingBuffer(slots=3, slot_bytes=1000, name=name) as ring, process(produce, ring, method=method) as child:
        got = [(message["i"], message["x"].tolist()) for message in ring]
        assert got == [(i, list(range(i, i + 5))) for i in range(10)]
        assert succeeds(child)


@pytest.mark.parametrize("method", METHODS)
def test_a_child_consumes_from_its_parents_ring(method):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with RingBuffer(slots=3, slot_bytes=1000) as ring, process(consume, ring, sender, method=method) as child:
        produce(ring)
        assert receiver.poll(DEADLINE_S)
        assert receiver.recv() == [(i, list(range(i, i + 5))) for i in range(10)]
        assert succeeds(child)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_an_unpickled_broadcast_ring_is_a_reader_at_once(method):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with (
        RingBuffer(slots=3, slot_bytes=1000, mode="broadcast") as ring,
        process(read_broadcast, ring, sender, sender, method=method) as child,
    ):
        assert receiver.poll(DEADLINE_S) and receiver.recv()
        produce(ring)
        assert receiver.poll(DEADLINE_S)
        assert receiver.recv() == list(range(10))
        assert succeeds(child)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_gets_an_equal_handle(method):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with (
        RingBuffer(slots=3, slot_bytes=1234) as ring,
        process(say_what_it_is, ring, sender, method=method),
    ):
        assert receiver.poll(DEADLINE_S)
        assert receiver.recv() == (3, 1234, "queue", None, True)


def test_a_named_ring_never_lets_frames_import(name):
    with RingBuffer(slots=1, slot_bytes=10, name=name) as ring:
        again = pickle.loads(pickle.dumps(ring)) if name else ring
        assert again._imports == (name is None)
        again.close()


def test_a_ring_can_be_sent_to_a_child_that_runs_already():
    ours, theirs = multiprocessing.Pipe()
    with RingBuffer(slots=1, slot_bytes=1000) as ring, process(receive_ring, theirs, method="spawn") as child:
        ours.send(ring)
        assert ring.get(timeout=DEADLINE_S) == "arrived"
        assert succeeds(child)


def test_a_copy_is_a_second_handle_on_the_same_ring(name):
    with RingBuffer(slots=1, slot_bytes=1000, name=name) as ring, copy.copy(ring) as other:
        other.put("hello")
        assert ring.get(timeout=0) == "hello"
        ring.close()
        with pytest.raises(Full):
            other.put(1)
            other.put(2, timeout=0)


def test_a_closed_ring_cannot_be_sent():
    ring = RingBuffer(slots=1, slot_bytes=10)
    ring.close()
    with pytest.raises(Closed, match="closed ring cannot be sent"):
        pickle.dumps(ring)


def nothing(ring):
    pass


def test_starting_children_leaves_no_descriptors_behind():
    with RingBuffer(slots=1, slot_bytes=10) as ring:
        counts = []
        for _ in range(4):
            with process(nothing, ring, method="spawn") as child:
                assert succeeds(child)
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[-1] == counts[0]
        assert ring.stats().participants == 1


def rings_open():
    """Descriptors of this process that lead to an anonymous ring."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself, and any that another thread closes
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sum(link.startswith("/memfd:ringbuf") for link in links)


def test_an_unpickled_handle_gives_its_descriptors_back_when_it_is_closed():
    with RingBuffer(slots=1, slot_bytes=10) as ring:
        before = rings_open()
        for _ in range(5):
            copy.copy(ring).close()
        assert eventually(lambda: rings_open() == before)  # multiprocessing hands over in a thread of its own
        assert ring.stats().participants == 1


STRANGER = """
import sys, ringbuf
with ringbuf.attach(sys.argv[1]) as ring:
    batch = ring.get()
    print(batch["x"].sum())
"""


def test_an_unrelated_process_attaches_reads_and_leaves_the_ring_as_it_was():
    name = f"test-stranger-{os.getpid()}"
    with RingBuffer(slots=2, slot_bytes=1000, name=name) as ring:
        for _ in range(2):
            ring.put({"x": np.arange(5)})
            ended = script(STRANGER, name)
            assert (ended.returncode, ended.stdout, ended.stderr) == (0, "10\n", "")
        with ringbuf.attach(name, timeout=0):
            assert ring.stats().free == 2
