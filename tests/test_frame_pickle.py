"""Leaves without a form of their own, between a loader and its own workers."""

import collections
import dataclasses
import enum
import gc
import mmap
import pickle
import threading
import weakref

import numpy as np
import pytest

from ringbuf import frame
from ringbuf.errors import FrameError


class Colour(enum.IntEnum):
    RED = 1


class Anything:
    def __init__(self, array):
        self.array = array


@dataclasses.dataclass
class Counted:
    items: list

    def __post_init__(self):
        self.count = len(self.items)


class Stubborn:
    def __reduce__(self):
        raise KeyError("not me")


class Endless:
    def __reduce__(self):
        return list, (Endless(),)


class Lends:
    def __reduce_ex__(self, protocol):
        return bytes, (pickle.PickleBuffer(memoryview(b"abcdef")[::2]),)


def written(batch, **options):
    plan = frame.plan(batch, **options)
    buffer = np.full(plan.frame_bytes, 0xA5, np.uint8)
    plan.write(buffer)
    return buffer


def test_any_leaf_travels_when_both_sides_allow_it():
    batch = {
        "set": {1, 2},
        "colour": Colour.RED,
        "counts": collections.defaultdict(list, a=[1]),
        "range": range(3),
        "objects": np.array([1, "a"], object),
        "masked": np.ma.masked_array([1, 2], [0, 1]),
        "keys": {np.int64(1): "a"},
        "counted": Counted([1, 2]),
        "plain": (np.arange(3), 5),
    }
    again = frame.read(written(batch, pickle=True), pickle=True)
    assert list(again) == list(batch)
    assert again["set"] == {1, 2} and again["colour"] is Colour.RED and again["range"] == range(3)
    assert type(again["counts"]) is collections.defaultdict and again["counts"]["new"] == []
    assert again["objects"].tolist() == [1, "a"]
    assert again["masked"].tolist() == [1, None]
    assert again["counted"] == Counted([1, 2]) and again["counted"].count == 2
    assert [type(key) for key in again["keys"]] == [np.int64]
    assert again["plain"][0].tolist() == [0, 1, 2] and again["plain"][1] == 5


def test_arrays_inside_a_pickled_leaf_lie_in_the_buffer_like_any_other():
    exporter = written([Anything(np.arange(1000)), Anything(np.ones((3, 4), order="F"))], pickle=True)
    first, second = frame.read(exporter, pickle=True)
    assert np.shares_memory(first.array, exporter) and np.shares_memory(second.array, exporter)
    assert first.array.tolist() == list(range(1000)) and second.array.tolist() == [[1.0] * 4] * 3
    first.array += 1
    private, _ = frame.read(exporter, pickle=True, copy=True)
    assert private.array[0] == 1 and not np.shares_memory(private.array, exporter)


def test_an_array_inside_a_pickled_leaf_keeps_the_exporter_alive():
    class Exporter(mmap.mmap):
        pass

    exporter = Exporter(-1, 8192)
    frame.plan([Anything(np.arange(10)), Anything(np.zeros((0, 3)))], pickle=True).write(exporter)
    alive = weakref.ref(exporter)
    first, empty = frame.read(exporter, pickle=True)
    part = first.array[2:]
    del exporter, first
    gc.collect()
    assert alive() is not None and part.tolist() == list(range(2, 10)) and empty.array.shape == (0, 3)
    del part, empty
    gc.collect()
    assert alive() is None


def test_arrays_that_pickle_cannot_lend_are_copied_into_the_stream():
    (again,) = frame.read(written([Anything(np.arange(10)[::3])], pickle=True), pickle=True)
    assert again.array.tolist() == [0, 3, 6, 9]


def test_a_pickle_is_not_read_unless_allowed():
    buffer = written([Colour.RED], pickle=True)
    with pytest.raises(FrameError, match="pickle"):
        frame.read(buffer)
    with pytest.raises(FrameError, match="pickle"):
        frame.read(buffer, imports=True, copy=True)


def test_what_has_a_form_of_its_own_is_not_pickled():
    batch = {"a": np.arange(3), "b": [1, "x", None]}
    assert bytes(written(batch, pickle=True)) == bytes(written(batch))


def nested(depth):
    batch = [5]
    for _ in range(depth):
        batch = [batch]
    return batch


UNWIELDY = {
    "many arrays": [np.full(1, number) for number in range(60_000)],
    "a long key": {"k" * (1 << 20): np.arange(3)},
    "deep": nested(70),
    "many leaves": [[number, str(number)] for number in range(90_000)],
}


@pytest.mark.parametrize("batch", UNWIELDY.values(), ids=UNWIELDY)
def test_a_batch_too_large_to_be_described_travels_as_one_pickle_or_not_at_all(batch):
    with pytest.raises(ValueError, match=r"deep|leaves|describing"):
        frame.plan(batch)
    exporter = written(batch, pickle=True)
    assert pickle.dumps(frame.read(exporter, pickle=True)) == pickle.dumps(batch)
    buffer = bytearray(len(exporter) + 4096)
    writer = frame.Writer(buffer, pickle=True)
    writer.empty(3, "i4")
    used = writer.finish(batch)
    assert pickle.dumps(frame.read(memoryview(buffer)[:used], pickle=True)) == pickle.dumps(batch)
    with pytest.raises(FrameError, match="pickle"):
        frame.read(exporter)


def test_a_leaf_that_cannot_be_pickled_is_named_in_a_batch_too_large_to_be_described():
    with pytest.raises(TypeError, match=r"batch\[60000\] cannot be sent: function cannot be pickled"):
        frame.plan([*UNWIELDY["many arrays"], lambda: 0], pickle=True)


@pytest.mark.parametrize(
    ("leaf", "name"),
    [
        (lambda: 0, "function"),
        (threading.Lock(), "lock"),
        ((i for i in ()), "generator"),
        (Stubborn(), "Stubborn cannot be pickled .KeyError: 'not me'"),
        (Endless(), "RecursionError"),
        (Lends(), "non-contiguous"),
    ],
    ids=["function", "lock", "generator", "stubborn", "endless", "buffer that is not contiguous"],
)
def test_a_leaf_that_cannot_be_pickled_is_a_type_error_with_path_and_type(leaf, name):
    with pytest.raises(TypeError, match=r"batch\['meta'\]\[0\] cannot be sent: .*" + name) as caught:
        frame.plan({"meta": [leaf]}, pickle=True)
    assert caught.value.__cause__ is not None


def test_a_pickle_that_cannot_be_loaded_is_a_frame_error(monkeypatch):
    buffer = written([Colour.RED], pickle=True)
    monkeypatch.delitem(globals(), "Colour")
    with pytest.raises(FrameError, match="Colour"):
        frame.read(buffer, pickle=True)


def test_a_writer_takes_pickled_leaves_too():
    buffer = bytearray(1 << 14)
    writer = frame.Writer(buffer, pickle=True)
    array = writer.empty(3, "i4")
    array[:] = 1
    used = writer.finish([array, {1, 2}])
    again = frame.read(memoryview(buffer)[:used], pickle=True)
    assert again[0].tolist() == [1, 1, 1] and again[1] == {1, 2}
