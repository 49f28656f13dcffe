"""RingBuffer: what one process, and the threads in it, can do with a ring."""

import contextlib
import dataclasses
import os
import queue
import threading

import numpy as np
import pytest
from processes import DEADLINE_S, eventually

import ringbuf
from ringbuf import BatchTooLarge, Closed, Empty, FrameError, Full, PeerTableFull, RingBuffer


@pytest.fixture
def ring():
    with RingBuffer(slots=4, slot_bytes=4096) as ring:
        yield ring


@pytest.fixture
def name(request):
    name = f"test-buffer-{os.getpid()}"
    yield name
    assert not [entry for entry in os.listdir("/dev/shm") if name in entry], "the last one out removes the name"


def in_thread(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.start()
    return thread


def join(*threads):
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


# ---- put and get


def test_a_tree_arrives_as_it_was_put(ring):
    tree = {
        "image": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        "meta": [("a", 1), None, {"deep": np.array(True)}],
    }
    ring.put(tree)
    got = ring.get()
    assert np.array_equal(got["image"], tree["image"])
    assert got["image"].dtype == np.float32
    assert got["meta"][:2] == [("a", 1), None]
    assert got["meta"][2]["deep"].shape == () and got["meta"][2]["deep"]


def test_messages_come_in_the_order_of_their_puts(ring):
    for i in range(3):
        ring.put(i)
    assert [ring.get() for _ in range(3)] == [0, 1, 2]


def test_put_copies_so_the_callers_array_may_change(ring):
    array = np.zeros(10)
    ring.put(array)
    array[:] = 1
    assert (ring.get() == 0).all()


def test_what_get_returns_is_a_writable_view_of_the_slot(ring):
    ring.put(np.zeros(10))
    array = ring.get()
    array += 1
    assert array.sum() == 10
    assert ring.stats().reading == 1
    del array
    assert ring.stats().free == ring.slots


def test_get_copy_frees_the_slot_at_once(ring):
    ring.put([np.arange(10)])
    (array,) = ring.get_copy()
    assert ring.stats().free == ring.slots
    for i in range(ring.slots):
        ring.put(np.full(10, i))
    assert array.tolist() == list(range(10))


def test_a_message_can_be_asked_for_by_tag(ring):
    for tag in (5, 6, 7):
        ring.put(tag, tag=tag)
    assert ring.get(tag=6) == 6
    with pytest.raises(Empty):
        ring.get(tag=6, timeout=0)
    assert [ring.get(timeout=0), ring.get_copy(tag=7)] == [5, 7]


def test_a_message_can_be_addressed(ring):
    ring.put("for one", target=1)
    ring.put("for two", target=2)
    ring.put("for anyone")
    assert [ring.get(target=2), ring.get(target=2)] == ["for two", "for anyone"]
    assert ring.get() == "for one", "plain get takes any message"


def test_what_cannot_travel_is_a_type_error_with_its_path_and_nothing_is_published(ring):
    bad = {"fine": np.ones(3), "meta": [np.array([object()])]}
    with pytest.raises(TypeError, match=r"\['meta'\]\[0\]"):
        ring.put(bad)
    with pytest.raises(TypeError, match=r"\['meta'\]\[0\]"), ring.reserve() as slot:
        slot.value = bad
    stats = ring.stats()
    assert (stats.published, stats.free, len(ring)) == (0, ring.slots, 0)


def test_a_batch_may_have_slot_bytes_and_not_one_more(ring):
    ring.put(np.zeros(4096, np.uint8))
    assert ring.get().nbytes == 4096
    with pytest.raises(BatchTooLarge, match=r"4097.*4096") as caught:
        ring.put(np.zeros(4097, np.uint8))
    assert (caught.value.needed_bytes, caught.value.available_bytes) == (4097, 4096)


def test_a_batch_that_is_too_large_is_refused_before_waiting_for_a_slot(ring):
    for _ in range(ring.slots):
        ring.put(0)
    with pytest.raises(BatchTooLarge):
        ring.put(np.zeros(5000, np.uint8), timeout=None)


def test_bytes_that_are_no_frame_are_an_error_and_free_their_slot(ring):
    with ring._core.claim() as claim:
        claim.commit(100)
    with pytest.raises(FrameError):
        ring.get()
    ring.put("next")
    assert ring.get(timeout=0) == "next"
    assert ring.stats().free == ring.slots


@pytest.mark.parametrize("hugepages", [None, True, False])
def test_huge_pages_are_a_matter_of_speed_alone(hugepages):
    with RingBuffer(slots=2, slot_bytes=3 << 20, hugepages=hugepages) as ring:
        for i in range(5):
            ring.put(np.full(3 << 20, i, np.uint8))
            assert (ring.get() == i).all()


# ---- reserve


def test_reserve_publishes_arrays_where_they_were_made(ring):
    with ring.reserve(tag=3) as slot:
        image = slot.empty((4, 5), np.uint16)
        image[:] = 9
        where = image.ctypes.data
        slot.value = {"image": image, "label": np.arange(4)}
    got = ring.get(tag=3)
    assert got["image"].ctypes.data == where
    assert (got["image"] == 9).all() and got["image"].shape == (4, 5)
    assert got["label"].tolist() == [0, 1, 2, 3]


def test_an_array_in_a_published_slot_cannot_be_written_by_its_producer_any_more(ring):
    with ring.reserve() as slot:
        slot.value = image = slot.empty(3, int)
        image[:] = 1
    with pytest.raises(ValueError, match="read-only"):
        image[0] = 2
    got = ring.get()
    got[0] = 5
    assert got.tolist() == [5, 1, 1], "the consumer's view is writable all the same"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_block_that_raises_publishes_nothing_and_frees_its_slot(ring, error):
    for _ in range(2 * ring.slots):
        with pytest.raises(error), ring.reserve(timeout=0) as slot:
            slot.value = slot.empty(3, int)
            raise error
    assert (ring.stats().free, ring.stats().published) == (ring.slots, 0)


def test_a_block_that_sets_no_value_is_an_error_and_frees_its_slot(ring):
    for _ in range(2 * ring.slots):
        with pytest.raises(ValueError, match=r"slot\.value"), ring.reserve(timeout=0) as slot:
            slot.empty(3, int)
    assert (ring.stats().free, ring.stats().published) == (ring.slots, 0)


def test_none_is_a_value_like_any_other(ring):
    with ring.reserve() as slot:
        slot.value = None
    assert ring.get(timeout=0) is None
    assert ring.stats().consumed == 1


def test_arrays_that_do_not_fit_are_refused_and_free_their_slot(ring):
    with pytest.raises(BatchTooLarge, match="4096"), ring.reserve() as slot:
        slot.empty(5000, np.uint8)
    with pytest.raises(BatchTooLarge, match="4096"), ring.reserve() as slot:
        slot.value = np.zeros(5000, np.uint8)
    assert ring.stats().free == ring.slots


def test_a_slot_cannot_be_used_outside_its_block(ring):
    slot = ring.reserve()
    with pytest.raises(RuntimeError, match=r"with ring.reserve"):
        slot.empty(3, int)
    with slot:
        slot.value = 1
    with pytest.raises(RuntimeError, match=r"with ring.reserve"):
        slot.empty(3, int)


def test_a_slot_that_is_used_again_starts_without_a_value(ring):
    slot = ring.reserve()
    with slot:
        slot.value = 1
    with pytest.raises(ValueError, match=r"slot\.value"), slot:
        pass
    assert ring.stats().published == 1


def test_two_slots_may_be_open_at_once_and_are_ordered_by_their_ends(ring):
    with ring.reserve() as first:
        with ring.reserve() as second:
            second.value = "second"
        first.value = "first"
    assert [ring.get(), ring.get()] == ["second", "first"]


# ---- waiting


def test_a_full_ring_and_an_empty_one_say_so(ring):
    with pytest.raises(Empty) as empty:
        ring.get(timeout=0)
    for i in range(ring.slots):
        ring.put(i, timeout=0)
    with pytest.raises(Full) as full:
        ring.put(9, timeout=0.01)
    with pytest.raises(Full), ring.reserve(timeout=0):
        pass
    assert isinstance(empty.value, (queue.Empty, TimeoutError)) and isinstance(full.value, TimeoutError)
    assert isinstance(full.value, queue.Full)
    assert [ring.get() for _ in range(ring.slots)] == list(range(ring.slots)), "usable after a timeout"


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_is_no_time_is_a_value_error(ring, timeout):
    for wait in (ring.get, ring.get_copy, lambda timeout: ring.put(0, timeout=timeout), enter_reserve(ring)):
        with pytest.raises(ValueError, match="timeout"):
            wait(timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        ringbuf.attach("nobody", timeout=timeout)


def enter_reserve(ring):
    def wait(timeout):
        with ring.reserve(timeout=timeout):
            pass

    return wait


def test_a_put_waits_for_a_slot_and_a_get_for_a_message():
    ring = RingBuffer(slots=1, slot_bytes=100)
    got = []
    consumer = in_thread(lambda: got.extend(ring))
    for i in range(200):
        ring.put(i, timeout=DEADLINE_S)
    ring.finish()
    join(consumer)
    assert got == list(range(200))


def test_threads_share_a_ring(ring):
    got = [[], []]
    producers = [in_thread(lambda p=p: [ring.put((p, i)) for i in range(300)]) for p in range(2)]
    consumers = [in_thread(lambda c=c: got[c].extend(ring)) for c in range(2)]
    join(*producers)
    ring.finish()
    join(*consumers)
    assert sorted(got[0] + got[1]) == [(p, i) for p in range(2) for i in range(300)]
    for mine in got:
        for p in range(2):
            assert (order := [i for q, i in mine if q == p]) == sorted(order)


# ---- finish and close


def test_iteration_ends_when_the_ring_is_finished_and_drained(ring):
    for i in range(3):
        ring.put(i)
    ring.finish()
    with pytest.raises(Closed):
        ring.put(3)
    assert list(ring) == [0, 1, 2]
    assert list(ring) == []
    with pytest.raises(Closed):
        ring.get()


def test_iteration_holds_no_message_but_the_callers(ring):
    for _ in range(2):
        ring.put(np.zeros(3))
    messages = iter(ring)
    held = next(messages)
    assert ring.stats().reading == 1
    del held
    assert ring.stats().reading == 0


def test_a_slot_claimed_before_finish_may_still_be_published(ring):
    with ring.reserve() as slot:
        ring.finish()
        slot.value = "last"
    assert list(ring) == ["last"]


def test_a_closed_ring_refuses_everything(ring):
    ring.put(1)
    ring.close()
    ring.close()
    reserved = ring.reserve()
    calls = [
        ring.get,
        ring.get_copy,
        lambda: ring.put(0),
        reserved.__enter__,
        ring.finish,
        ring.stats,
        ring.recover,
        ring.lost,
        lambda: ring.lost_tags,
        lambda: len(ring),
        lambda: next(iter(ring)),
    ]
    for call in calls:
        with pytest.raises(Closed):
            call()
    assert ring.closed
    assert "closed" in repr(ring)


def test_a_with_block_closes_the_ring():
    with RingBuffer(slots=1, slot_bytes=1) as ring:
        assert not ring.closed
    assert ring.closed


@pytest.mark.parametrize("wait", ["get", "put", "reserve", "iterate"])
def test_close_ends_the_wait_of_another_thread(ring, wait):
    if wait in ("put", "reserve"):
        for _ in range(ring.slots):
            ring.put(0)
    waits = {
        "get": ring.get,
        "put": lambda: ring.put(0),
        "reserve": ring.reserve().__enter__,
        "iterate": lambda: list(ring),
    }
    ended = []

    def waiter():
        try:
            waits[wait]()
        except Closed as reason:
            ended.append(reason)

    thread = in_thread(waiter)
    assert eventually(lambda: ring.stats().waits > 0)
    ring.close()
    join(thread)
    assert len(ended) == 1


# ---- overwrite and broadcast


def test_an_overwriting_ring_gives_up_the_oldest_and_counts_it():
    ring = RingBuffer(slots=3, slot_bytes=100, full="overwrite")
    for i in range(8):
        ring.put(i, timeout=0)
    assert ring.stats().dropped == 5
    assert [ring.get(timeout=0) for _ in range(3)] == [5, 6, 7]


def test_an_overwriting_ring_spares_what_is_held():
    ring = RingBuffer(slots=3, slot_bytes=100, full="overwrite")
    ring.put(np.full(5, -1))
    held = ring.get()
    for i in range(50):
        ring.put(np.full(5, i), timeout=0)
    assert (held == -1).all()
    assert [ring.get(timeout=0)[0] for _ in range(2)] == [48, 49]


@pytest.fixture
def broadcast(name):
    with RingBuffer(slots=4, slot_bytes=1000, name=name, mode="broadcast") as ring:
        yield ring


def test_a_broadcast_reaches_every_reader_and_the_slot_waits_for_all(broadcast, name):
    readers = [ringbuf.attach(name) for _ in range(3)]
    for i in range(4):
        broadcast.put(np.full(3, i))
    with pytest.raises(Full):
        broadcast.put(0, timeout=0)
    for reader in readers:
        assert [reader.get(timeout=0)[0] for _ in range(4)] == [0, 1, 2, 3]
    assert broadcast.stats().free == 4
    assert broadcast.stats().consumed == 12
    for reader in readers:
        reader.close()


def test_a_broadcast_reader_gets_what_comes_after_it_joined(broadcast, name):
    broadcast.put("before")
    with ringbuf.attach(name) as reader:
        broadcast.put("after")
        assert reader.get(timeout=0) == "after"
        with pytest.raises(Empty):
            reader.get(timeout=0)
    assert broadcast.stats().dropped == 1


def test_an_attached_writer_is_no_reader(broadcast, name):
    with ringbuf.attach(name) as writer:
        assert broadcast.stats().readers == 1
        writer.put("x", timeout=0)
        assert broadcast.stats().readers == 0
    with ringbuf.attach(name) as writer, writer.reserve(timeout=0) as slot:
        slot.value = 1
        assert broadcast.stats().readers == 0


def test_an_attached_reader_that_also_writes_stays_a_reader(broadcast, name):
    with ringbuf.attach(name) as both:
        broadcast.put("in")
        assert both.get(timeout=0) == "in"
        both.put("out")
        assert both.get(timeout=0) == "out"
    with ringbuf.attach(name) as both:
        both.subscribe()
        both.put("out")
        assert both.get(timeout=0) == "out"


def test_the_creator_reads_once_it_asks(broadcast):
    broadcast.put("to nobody")
    with pytest.raises(Empty):
        broadcast.get(timeout=0)
    broadcast.put("to me")
    assert broadcast.get(timeout=0) == "to me"
    broadcast.unsubscribe()
    broadcast.put("to nobody")
    broadcast.subscribe()
    assert len(broadcast) == 0


def test_a_reader_that_leaves_gives_its_messages_up(broadcast, name):
    reader = ringbuf.attach(name)
    for i in range(4):
        broadcast.put(i)
    reader.close()
    assert broadcast.stats().free == 4
    broadcast.put("again", timeout=0)


def test_broadcast_arrays_are_read_only_for_good(broadcast):
    broadcast.subscribe()
    broadcast.put([np.arange(5)])
    (array,) = broadcast.get()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True
    broadcast.put([np.arange(5)])
    (private,) = broadcast.get_copy()
    private[0] = 1


def test_a_seventeenth_reader_is_refused_when_it_reads_and_may_still_write(broadcast, name):
    readers = [ringbuf.attach(name) for _ in range(16)]
    late = ringbuf.attach(name)
    with pytest.raises(PeerTableFull):
        late.get(timeout=0)
    late.put("hello")
    assert {reader.get(timeout=0) for reader in readers} == {"hello"}
    readers.pop().close()
    late.put("again")
    assert late.closed is False
    for handle in [*readers, late]:
        handle.close()


# ---- names


def test_a_named_ring_can_be_attached_and_goes_with_its_last_handle(name):
    ring = RingBuffer(slots=2, slot_bytes=1000, name=name)
    other = ringbuf.attach(name, timeout=0)
    assert (other.name, other.slots, other.slot_bytes, other.mode) == (name, 2, 1000, "queue")
    ring.put("hello")
    ring.close()
    assert other.get(timeout=0) == "hello", "the name and its messages stay while one is attached"
    third = ringbuf.attach(name, timeout=0)
    other.close()
    third.close()
    with pytest.raises(FileNotFoundError):
        ringbuf.attach(name, timeout=0)


def test_attach_waits_for_the_name(name):
    rings = []
    creator = threading.Timer(0.2, lambda: rings.append(RingBuffer(slots=1, slot_bytes=1, name=name)))
    creator.start()
    with ringbuf.attach(name, timeout=DEADLINE_S) as ring:
        assert ring.slots == 1
    creator.join()
    rings.pop().close()


def test_attach_gives_up_when_the_time_has_passed():
    with pytest.raises(FileNotFoundError, match="nobody-made-this"):
        ringbuf.attach("nobody-made-this", timeout=0.05)


def test_a_name_in_use_is_refused_and_its_ring_unharmed(name):
    with RingBuffer(slots=1, slot_bytes=100, name=name) as ring:
        with pytest.raises(FileExistsError, match=r"attach.*another name"):
            RingBuffer(slots=1, slot_bytes=100, name=name)
        ring.put(1)
        assert ring.get() == 1


@pytest.mark.parametrize("umask", [0, 0o022, 0o277])
def test_only_the_owner_can_open_a_named_ring_whatever_the_umask(name, umask):
    before = os.umask(umask)
    try:
        ring = RingBuffer(slots=1, slot_bytes=1, name=name)
    finally:
        os.umask(before)
    with ring:
        (entry,) = [entry for entry in os.scandir("/dev/shm") if name in entry.name]
        assert entry.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("bad", ["", "a/b", ".x", "x" * 201, "a\0b", "ü", "a b"])
def test_a_bad_name_is_a_value_error(bad):
    with pytest.raises(ValueError, match="name must be"):
        RingBuffer(slots=1, slot_bytes=1, name=bad)
    with pytest.raises(ValueError, match="name must be"):
        ringbuf.attach(bad, timeout=0)


BAD_OPTIONS = [
    {"slots": 0},
    {"slots": 65537},
    {"slot_bytes": 0},
    {"slot_bytes": -1},
    {"slot_bytes": 2**62},
    {"slot_bytes": 2**63},
    {"mode": "x"},
    {"full": "x"},
    {"mode": "broadcast", "full": "overwrite"},
    {"hugepages": 2},
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=repr)
def test_a_bad_option_is_a_value_error(options):
    with pytest.raises(ValueError):
        RingBuffer(**options)


# ---- looking at it


def test_a_ring_says_what_it_is(ring):
    assert (ring.slots, ring.slot_bytes, ring.name, ring.mode) == (4, 4096, None, "queue")
    assert repr(ring) == "<RingBuffer anonymous queue 4 x 4096 bytes>"
    assert ring.lost_tags == [] == ring.lost()
    assert ring.recover() == 0


def test_len_counts_what_waits_and_an_empty_ring_is_true(ring):
    assert len(ring) == 0
    assert ring
    ring.put(1)
    ring.put(2)
    assert len(ring) == 2
    ring.get()
    assert len(ring) == 1


def test_stats_add_up(ring):
    for i in range(3):
        ring.put(np.full(3, i))
    held = ring.get()
    with ring.reserve() as slot:
        stats = ring.stats()
        slot.value = 0
    assert (stats.published, stats.consumed) == (3, 0)
    assert (stats.writing, stats.ready, stats.reading, stats.free) == (1, 2, 1, 0)
    assert (stats.lost, stats.dropped, stats.participants, stats.finished) == (0, 0, 1, False)
    del held
    ring.finish()
    assert ring.stats().consumed == 1
    assert ring.stats().finished
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.lost = 1


@pytest.mark.parametrize("fails", [False, True])
def test_arrays_of_a_slot_cannot_be_written_to_once_it_is_given_away(ring, fails):
    with contextlib.suppress(LookupError), ring.reserve() as slot:
        array = slot.empty(3, np.uint8)
        slot.value = array
        if fails:
            raise LookupError
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_a_refused_put_leaves_a_reader_what_it_did_not_read(name):
    with RingBuffer(slots=2, slot_bytes=100, name=name, mode="broadcast") as ring, ringbuf.attach(name) as reader:
        ring.put("unread")
        for wrong in ({"timeout": -1}, {"tag": -1}, {"target": -1}):
            with pytest.raises(ValueError):
                reader.put("no", **wrong)
            with pytest.raises(ValueError), reader.reserve(**wrong):
                pass
        assert reader.get(timeout=0) == "unread"


def test_a_slot_is_opened_once(ring):
    slot = ring.reserve()
    with slot:
        with pytest.raises(RuntimeError, match="open already"):
            slot.__enter__()
        slot.value = "intact"
    assert ring.get(timeout=0) == "intact"


@pytest.mark.parametrize(
    "use", [RingBuffer.get, RingBuffer.get_copy, lambda ring: ring.put(1), lambda ring: ring.put_many([1])]
)
def test_a_subclass_that_forgets_to_make_the_ring_is_told(use):
    class Forgetful(RingBuffer):
        def __init__(self):
            pass

    with pytest.raises(RuntimeError, match=r"__init__\(\)"):
        use(Forgetful())
