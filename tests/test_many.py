"""put_many and get_many: several messages in one call, each in a slot of its own."""

import os
import signal
import threading

import numpy as np
import pytest
from processes import DEADLINE_S, eventually, process

import ringbuf
from ringbuf import BatchTooLarge, Closed, Empty, FrameError, Full, RingBuffer

MIXED = [b"bytes", "text", 3, {"a": [1, 2], "n": None}, ("x", np.float32(2)), 1 << 70]


@pytest.fixture
def ring():
    with RingBuffer(slots=4, slot_bytes=4096) as ring:
        yield ring


@pytest.fixture
def waiting():
    """waiting(ring): whether a thread or process comes to sleep on the ring."""
    return lambda ring: eventually(lambda: ring.stats().waits > 0)


class Caller(threading.Thread):
    """A call in another thread, and what became of it."""

    def __init__(self, function, *args, **options):
        super().__init__(daemon=True)
        self.call = lambda: function(*args, **options)
        self.start()

    def run(self):
        try:
            self.result = self.call()
        except BaseException as error:
            self.result = error

    def ended(self):
        self.join(DEADLINE_S)
        assert not self.is_alive()
        return self.result


# ---- one process


def test_many_are_taken_in_the_order_in_which_they_were_put():
    with RingBuffer(slots=8, slot_bytes=4096) as ring:
        assert ring.put_many(MIXED) == len(MIXED)
        assert len(ring) == len(MIXED)
        assert ring.get_many(100) == MIXED


def test_put_and_put_many_may_be_mixed_and_so_may_get_and_get_many(ring):
    ring.put(0)
    ring.put_many([1, 2])
    ring.put(3)
    assert [ring.get(), *ring.get_many(2), ring.get()] == [0, 1, 2, 3]


def test_messages_may_come_from_any_iterable(ring):
    assert ring.put_many(str(i) for i in range(3)) == 3
    assert ring.get_many(3) == ["0", "1", "2"]


def test_no_messages_are_none_and_nobody_waits(ring):
    ring.put_many([b""] * 4)
    assert ring.put_many([]) == 0


def test_get_many_takes_no_more_than_it_was_asked_for(ring):
    ring.put_many([1, 2, 3])
    assert ring.get_many(2) == [1, 2]
    assert ring.get_many(2) == [3]


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (None, TypeError)])
def test_a_number_that_is_none_is_refused_and_takes_nothing(ring, n, error):
    ring.put(1)
    with pytest.raises(error, match="n must be"):
        ring.get_many(n)
    assert len(ring) == 1


def test_arrays_of_many_keep_a_slot_each(ring):
    ring.put_many([np.arange(3), np.arange(4), b"private"])
    got = ring.get_many(3)
    assert ring.stats().reading == 2
    del got[0]
    assert ring.stats().reading == 1
    assert np.array_equal(got[0], np.arange(4))


def test_put_many_without_waiting_puts_what_fits_and_says_how_many(ring):
    assert ring.put_many(range(6), timeout=0) == 4
    assert ring.get_many(6) == [0, 1, 2, 3]


def test_put_many_says_full_if_not_even_the_first_got_in(ring):
    ring.put_many(range(4))
    for timeout in (0, 0.01):
        with pytest.raises(Full, match="4 slots"):
            ring.put_many([4, 5], timeout=timeout)
    assert ring.get_many(9) == [0, 1, 2, 3]


def test_the_time_of_put_many_is_that_of_the_whole_call(ring):
    assert ring.put_many(range(6), timeout=0.01) == 4


def test_get_many_says_empty_when_the_time_has_passed(ring):
    for timeout in (0, 0.01):
        with pytest.raises(Empty):
            ring.get_many(3, timeout=timeout)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_is_no_time_is_a_value_error(ring, timeout):
    with pytest.raises(ValueError, match="timeout"):
        ring.put_many([1], timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        ring.get_many(1, timeout=timeout)


@pytest.mark.parametrize(
    ("bad", "error"), [(object(), TypeError), ({"a": [object()]}, TypeError), (np.zeros(4097, np.uint8), BatchTooLarge)]
)
def test_one_message_that_cannot_travel_keeps_all_of_them_back(ring, bad, error):
    with pytest.raises(error):
        ring.put_many([b"good", {"a": 1}, bad])
    assert len(ring) == 0 and ring.stats().free == 4


def test_an_iterable_that_raises_keeps_all_of_them_back(ring):
    def messages():
        yield b"good"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ring.put_many(messages())
    assert len(ring) == 0 and ring.stats().free == 4


def test_many_go_by_tag_and_target(ring):
    ring.put_many(["a", "b"], tag=1)
    ring.put_many(["c"], tag=2, target=7)
    assert ring.get_many(9, tag=2, target=7) == ["c"]
    with pytest.raises(Empty):
        ring.get_many(9, tag=2, timeout=0)
    assert ring.get_many(9, tag=1, target=3) == ["a", "b"]
    with pytest.raises(ValueError, match="tag"):
        ring.put_many(["d"], tag=-1)


def test_bytes_that_are_no_frame_are_an_error_and_every_slot_comes_back(ring):
    ring.put_many([b"first", np.arange(3)])
    claim = ring._core.claim()
    memoryview(claim)[:64] = bytes(64)
    claim.commit(64)
    with pytest.raises(FrameError):
        ring.get_many(9)
    assert ring.stats().free == 4


# ---- the end


def test_after_the_end_many_are_refused_and_what_is_there_is_drained(ring):
    ring.put_many([1, 2])
    ring.finish()
    with pytest.raises(Closed, match="finish"):
        ring.put_many([3])
    assert ring.get_many(9) == [1, 2]
    with pytest.raises(Closed):
        ring.get_many(9)


@pytest.mark.parametrize("end", [RingBuffer.finish, RingBuffer.close])
def test_an_end_in_the_middle_of_put_many_leaves_those_that_were_in(waiting, end):
    with RingBuffer(slots=2, slot_bytes=64) as ring, ringbuf.RingBuffer._attached(_twin(ring)) as reader:
        call = Caller(ring.put_many, [b"0", "1", {"a": 2}, b"3"])
        assert waiting(reader)
        end(ring)
        assert call.ended() == 2
        assert reader.get_many(9) == [b"0", "1"]


def _twin(ring):
    from ringbuf._core import Ring

    return Ring.attach_fd(ring._core.fileno())


@pytest.mark.parametrize("method", ["put_many", "get_many"])
def test_close_ends_the_wait_for_the_first(waiting, method):
    with RingBuffer(slots=1, slot_bytes=64) as ring, ringbuf.RingBuffer._attached(_twin(ring)) as other:
        if method == "put_many":
            ring.put(0)
            call = Caller(ring.put_many, [1])
        else:
            call = Caller(ring.get_many, 1)
        assert waiting(other)
        ring.close()
        assert isinstance(call.ended(), Closed)


@pytest.mark.parametrize("method", ["put_many", "get_many"])
def test_a_closed_ring_refuses_many(method):
    ring = RingBuffer(slots=1, slot_bytes=64)
    ring.close()
    with pytest.raises(Closed):
        ring.put_many([b"1"]) if method == "put_many" else ring.get_many(1)


# ---- modes


def test_an_overwriting_ring_keeps_the_latest_of_many():
    with RingBuffer(slots=2, slot_bytes=64, full="overwrite") as ring:
        assert ring.put_many([b"0", b"1", b"2", b"3"]) == 4
        assert ring.get_many(9) == [b"2", b"3"]
        assert ring.stats().dropped == 2


def test_every_reader_of_a_broadcast_gets_many():
    name = f"test-many-{os.getpid()}"
    with RingBuffer(slots=4, slot_bytes=64, mode="broadcast", name=name) as ring:
        with ringbuf.attach(name) as first, ringbuf.attach(name) as second:
            assert ring.put_many([b"a", "b", np.arange(2)]) == 3
            for reader in (first, second):
                got = reader.get_many(9)
                assert got[:2] == [b"a", "b"]
                assert not got[2].flags.writeable
                del got
            assert ring.stats().free == 4


def test_an_attached_handle_that_writes_many_is_no_reader():
    name = f"test-many-{os.getpid()}"
    with RingBuffer(slots=2, slot_bytes=64, mode="broadcast", name=name) as ring, ringbuf.attach(name) as writer:
        ring.subscribe()
        with pytest.raises(ValueError, match="tag"):
            writer.put_many([b"refused"], tag=-1)
        assert ring.stats().readers == 2  # it was not for the sake of a call that is refused
        assert writer.put_many([b"a"]) == 1
        assert ring.stats().readers == 1
        assert ring.get_many(9) == [b"a"]


# ---- threads and processes


def test_threads_share_a_ring(ring):
    messages = [[f"{who} {i}" for i in range(500)] for who in range(3)]
    got, lock = [], threading.Lock()

    def take():
        while True:
            try:
                some = ring.get_many(3)
            except Closed:
                return
            with lock:
                got.extend(some)

    readers = [Caller(take) for _ in range(2)]
    assert [writer.ended() for writer in [Caller(ring.put_many, some) for some in messages]] == [500] * 3
    ring.finish()
    assert [reader.ended() for reader in readers] == [None, None]
    assert sorted(got) == sorted(message for some in messages for message in some)


def put_numbers(ring, many):
    assert ring.put_many([i.to_bytes(4, "little") for i in range(many)]) == many
    ring.finish()


def test_a_child_puts_many_and_its_parent_gets_them_in_order(ring):
    with process(put_numbers, ring, 5000):
        got = []
        while True:
            try:
                got += ring.get_many(7, timeout=DEADLINE_S)
            except Closed:
                break
    assert got == [i.to_bytes(4, "little") for i in range(5000)]


def test_many_that_wait_are_woken_by_the_other_side(ring, waiting):
    call = Caller(ring.get_many, 4)
    assert waiting(ring)
    ring.put_many([b"a", b"b"])
    got = call.ended()
    assert got in ([b"a"], [b"a", b"b"])  # it may be quick enough to miss the second
    ring.put_many([b"x"] * (4 - len(ring)))
    call = Caller(ring.put_many, [b"late"])
    while b"late" not in ring.get_many(9, timeout=DEADLINE_S):
        pass
    assert call.ended() == 1


@pytest.mark.parametrize("message", [b"m" * 900, np.arange(100)], ids=["bytes", "array"])
def test_a_kill_in_the_middle_costs_at_most_the_message_in_hand(ring, message):
    def put_for_ever(ring):
        while True:
            ring.put_many([message] * 100)

    for _ in range(5):
        with process(put_for_ever, ring) as child:
            for _ in range(20):
                for got in ring.get_many(4, timeout=DEADLINE_S):
                    assert np.array_equal(got, message) if isinstance(message, np.ndarray) else got == message
                    del got
            os.kill(child.pid, signal.SIGKILL)
            child.join(DEADLINE_S)
        ring.recover()
        lost = ring.stats().lost
        while len(ring):
            ring.get_many(4, timeout=0)
        assert ring.stats().free == 4
    assert lost <= 5
    assert ring.put_many([message]) == 1


def put_for_ever(ring):
    while True:
        ring.put_many([b"message"] * 64)


def test_no_more_is_taken_than_was_there_however_quick_the_producer(waiting):
    with RingBuffer(slots=16, slot_bytes=64) as ring, process(put_for_ever, ring):
        for _ in range(20):
            assert 1 <= len(ring.get_many(1 << 40, timeout=30)) <= 17
