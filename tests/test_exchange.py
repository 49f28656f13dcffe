"""Many processes on one ring: none lost, none twice, order kept per producer."""

import contextlib
import struct
import time
from multiprocessing import Pipe

import numpy as np
import pytest
from processes import DEADLINE_S, METHODS, process, succeeds

from ringbuf import Closed, RingBuffer

PRODUCERS, CONSUMERS = 4, 2
LONG_S = 150.0  # for a million messages on a machine that is busy with other things; five seconds when it is not
RECORD = struct.Struct("<QQQ")  # producer, sequence number, checksum of the two


def checksum(producer, number):
    return (producer * 0x9E3779B97F4A7C15 ^ number * 0xC2B2AE3D27D4EB4F) & (2**64 - 1)


def send_records(ring, producer, count):
    core = ring._core
    for number in range(count):
        claim = core.claim(tag=producer)
        RECORD.pack_into(claim, 0, producer, number, checksum(producer, number))
        claim.commit(RECORD.size)


def receive_records(ring, results, each):
    """Check every message on arrival; report which were seen, as one bit per message, and how many."""
    core = ring._core
    seen = np.zeros((PRODUCERS, each), bool)
    last = [-1] * PRODUCERS
    total = 0
    while True:
        try:
            lease = core.take()
        except Closed:
            break
        producer, number, sum_ = RECORD.unpack_from(lease)
        assert lease.nbytes == RECORD.size and lease.tag == producer
        assert sum_ == checksum(producer, number), "torn message"
        assert number > last[producer], "out of order"
        assert not seen[producer, number], "twice"
        last[producer] = number
        seen[producer, number] = True
        total += 1
    results.send((total, np.packbits(seen)))


def put_trees(ring, producer, count):
    for number in range(count):
        ring.put({"who": producer, "x": np.full(8, number), "sum": checksum(producer, number)})


def get_trees(ring, results, each):
    seen = np.zeros((PRODUCERS, each), bool)
    last = [-1] * PRODUCERS
    total = 0
    for message in ring:
        producer, number = message["who"], int(message["x"][0])
        assert (message["x"] == number).all() and message["sum"] == checksum(producer, number)
        assert number > last[producer] and not seen[producer, number]
        last[producer] = number
        seen[producer, number] = True
        total += 1
    results.send((total, np.packbits(seen)))


def exchange(send, receive, each, method="fork"):
    pipes = [Pipe(duplex=False) for _ in range(CONSUMERS)]
    with RingBuffer(slots=64, slot_bytes=512) as ring:
        producers = [process(send, ring, p, each, method=method) for p in range(PRODUCERS)]
        consumers = [process(receive, ring, sender, each, method=method) for _, sender in pipes]
        with contextlib.ExitStack() as running:
            consuming = [running.enter_context(child) for child in consumers]
            producing = [running.enter_context(child) for child in producers]
            assert all(succeeds(child, within_s=LONG_S) for child in producing)
            ring.finish()
            results = []
            for receiver, _ in pipes:
                assert receiver.poll(DEADLINE_S)
                results.append(receiver.recv())
            assert all(succeeds(child) for child in consuming), "and hand back what they hold"
        stats = ring.stats()
    totals = [total for total, _ in results]
    seen = [np.unpackbits(bits)[: PRODUCERS * each] for _, bits in results]
    assert sum(totals) == PRODUCERS * each, "none lost, none twice"
    assert (seen[0] + seen[1] == 1).all(), "each exactly once"
    assert (stats.published, stats.consumed) == (PRODUCERS * each,) * 2
    assert (stats.free, stats.lost, stats.dropped) == (64, 0, 0)


@pytest.mark.timeout(LONG_S + DEADLINE_S)
def test_a_million_messages_from_four_producers_to_two_consumers():
    exchange(send_records, receive_records, each=250_000)


@pytest.mark.parametrize("method", METHODS)
def test_trees_from_four_producers_to_two_consumers(method):
    exchange(put_trees, get_trees, each=5_000, method=method)


def broadcast_reader(ring, ready, results, count):
    ring.subscribe()
    ready.send(True)
    results.send([int(message[0]) for message in ring])


def test_every_broadcast_reader_gets_every_message_in_order():
    count = 3000
    ready, say_ready = Pipe(duplex=False)
    pipes = [Pipe(duplex=False) for _ in range(3)]
    with RingBuffer(slots=8, slot_bytes=512, mode="broadcast") as ring:
        readers = [process(broadcast_reader, ring, say_ready, sender, count) for _, sender in pipes]
        with contextlib.ExitStack() as running:
            reading = [running.enter_context(child) for child in readers]
            for _ in readers:
                assert ready.poll(DEADLINE_S) and ready.recv()
            for i in range(count):
                ring.put(np.full(4, i), timeout=DEADLINE_S)
            ring.finish()
            for receiver, _ in pipes:
                assert receiver.poll(DEADLINE_S)
                assert receiver.recv() == list(range(count))
            assert all(succeeds(child) for child in reading)
        assert ring.stats().consumed == 3 * count


def overwrite_for_ever(ring):
    i = 0
    while True:
        ring.put(np.full(50, i), timeout=0)
        i += 1


def test_an_overwritten_stream_is_never_torn_and_never_goes_back():
    with RingBuffer(slots=4, slot_bytes=512, full="overwrite") as ring, process(overwrite_for_ever, ring):
        last = -1
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            frame = ring.get(timeout=DEADLINE_S)
            assert (frame == frame[0]).all(), "torn"
            assert frame[0] > last, "back in time"
            last = frame[0]
        assert ring.stats().dropped > 0
