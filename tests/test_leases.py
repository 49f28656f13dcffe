"""Leases: what a consumer keeps stays right, and its slot is free exactly when the last view is gone."""

import gc
import os
import threading

import numpy as np
import pytest
from processes import script

import ringbuf
from ringbuf import Closed, RingBuffer

SLOTS = 8


def torch_view(array):
    torch = pytest.importorskip("torch", reason="views as torch tensors need torch")
    return torch.from_numpy(array)


VIEWS = {
    "itself": lambda array: array,
    "slice": lambda array: array[2:5],
    "one element": lambda array: array[3:4, 1],
    "deeply sliced": lambda array: array[1:][1:][::2].T[1:, None][..., 0][:1],
    "transposed": lambda array: array.T,
    "reversed": lambda array: array[::-1, ::-1],
    "other dtype": lambda array: array.view(np.uint8),
    "memoryview": lambda array: memoryview(array)[1:],
    "strided": lambda array: np.lib.stride_tricks.as_strided(array, (2, 2), (8, 16)),
    "ravel": lambda array: array.ravel(),
    "subclass": lambda array: array.view(np.recarray),
    "iterator": lambda array: iter(array),
    "torch": torch_view,
    "torch slice": lambda array: torch_view(array)[1:, 0],
}


@pytest.fixture
def ring():
    with RingBuffer(slots=SLOTS, slot_bytes=4096) as ring:
        yield ring


def message(i):
    return {"x": np.full((6, 4), i, np.int64), "nested": [np.arange(i, i + 4)]}


def values(view):
    return np.asarray(list(view) if hasattr(view, "__next__") else view)


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_a_slot_is_free_exactly_when_the_last_view_is_gone(ring, make):
    ring.put(message(7))
    batch = ring.get()
    view = make(batch["x"])
    del batch
    gc.collect()
    assert ring.stats().reading == 1
    del view
    gc.collect()
    assert (ring.stats().reading, ring.stats().free) == (0, SLOTS)


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_a_kept_view_is_right_after_many_more_messages(ring, make):
    kept, wanted = [], []
    for i in range(SLOTS - 1):
        ring.put(message(i))
        kept.append(make(ring.get()["x"]))
        wanted.append(values(make(message(i)["x"])).copy())
    for i in range(1000, 1000 + 5 * SLOTS):
        ring.put(message(i), timeout=0)
        assert ring.get(timeout=0)["x"][0, 0] == i
    for view, right in zip(kept, wanted, strict=True):
        assert np.array_equal(values(view), right)


def test_one_nested_array_keeps_the_whole_message(ring):
    ring.put(message(3))
    (nested,) = ring.get()["nested"]
    assert ring.stats().reading == 1
    assert nested.tolist() == [3, 4, 5, 6]


def test_a_message_without_arrays_holds_no_slot(ring):
    ring.put({"a": [1, "text"], "b": b"bytes" * 100})
    held = ring.get()
    assert ring.stats().free == SLOTS
    assert held["b"] == b"bytes" * 100


def test_a_view_in_a_reference_cycle_goes_with_the_collector(ring):
    ring.put(message(1))
    cycle = [ring.get()]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert ring.stats().free == SLOTS


def test_a_view_may_die_in_another_thread(ring):
    ring.put(message(1))
    box = [ring.get()]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert ring.stats().free == SLOTS


def read_one_and_leave(close):
    ring = RingBuffer(slots=2, slot_bytes=4096)
    ring.put(message(5))
    array = ring.get()["x"]
    if close == "close":
        ring.close()
    elif close == "with":
        with ring:
            pass
    return array


@pytest.mark.parametrize("close", ["close", "with", "dropped"])
def test_an_array_outlives_its_ring(close):
    array = read_one_and_leave(close)
    gc.collect()
    assert (array == 5).all()
    array[:] = 6
    ring = array
    assert ring.sum() == 6 * 24


def test_a_closed_ring_stays_closed_while_views_of_it_live(ring):
    ring.put(message(1))
    held = ring.get()
    ring.close()
    with pytest.raises(Closed):
        ring.get(timeout=0)
    assert (held["x"] == 1).all()


def test_a_closed_broadcast_reader_that_keeps_a_view_holds_nobody_up():
    name = f"test-leases-{os.getpid()}"
    with RingBuffer(slots=2, slot_bytes=4096, mode="broadcast", name=name) as ring:
        reader = ringbuf.attach(name)
        ring.put(message(1))
        held = reader.get()
        reader.close()
        for i in range(10):
            ring.put(message(i), timeout=0)
        assert (held["x"] == 1).all()
        del held
        assert (ring.stats().free, ring.stats().participants) == (2, 1)


def test_the_memory_goes_with_the_last_view():
    ring = RingBuffer(slots=2, slot_bytes=1 << 20)
    inode = str(os.fstat(ring._core.fileno()).st_ino)

    def mapped():
        with open("/proc/self/maps") as maps:
            return any(inode in line.split() for line in maps)

    ring.put(message(1))
    part = ring.get()["x"][1:2]
    ring.close()
    del ring
    gc.collect()
    assert mapped()
    del part
    assert not mapped()


def test_a_consumer_that_raises_gives_the_slot_back(ring):
    for _ in range(2 * SLOTS):
        ring.put(message(1), timeout=0)
        with pytest.raises(ZeroDivisionError):
            use_and_fail(ring)
    assert ring.stats().free == SLOTS


def use_and_fail(ring):
    batch = ring.get(timeout=0)
    return batch["x"][0] + 1 // 0


def test_a_writer_that_keeps_its_array_does_not_keep_the_slot(ring):
    kept = []
    for i in range(3 * SLOTS):
        with ring.reserve(timeout=0) as slot:
            slot.value = slot.empty(4, np.int64)
            slot.value[:] = i
            kept.append(slot.value)
        assert ring.get(timeout=0).tolist() == [i] * 4
    assert ring.stats().free == SLOTS


EXIT_WITH_VIEWS = """
import sys, threading
import numpy as np
from ringbuf import RingBuffer

ring = RingBuffer(slots=4, slot_bytes=4096, name=sys.argv[1] or None)
for i in range(3):
    ring.put({"x": np.full(100, i)})
held = ring.get()
module_level = held["x"][1:]
cycle = [ring.get()]; cycle.append(cycle)
sys.held_for_ever = ring.get()
open_slot = ring.reserve(); open_slot.__enter__()
threading.Thread(target=ring.get, daemon=True).start()
print("done")
"""


@pytest.mark.parametrize("name", ["", f"test-leases-{os.getpid()}"], ids=["anonymous", "named"])
def test_a_process_that_ends_with_views_and_waits_open_ends_quietly(name):
    ended = script(EXIT_WITH_VIEWS, name)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
    if name and os.path.exists(f"/dev/shm/ringbuf.{name}"):
        os.unlink(f"/dev/shm/ringbuf.{name}")


def test_a_named_ring_that_was_not_closed_goes_with_its_process():
    name = f"test-leases-left-{os.getpid()}"
    code = f"from ringbuf import RingBuffer; ring = RingBuffer(slots=1, slot_bytes=1, name={name!r}); print('done')"
    ended = script(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
    assert not os.path.exists(f"/dev/shm/ringbuf.{name}")
