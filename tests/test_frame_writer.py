"""Building a frame in place: arrays first, then the batch that holds them."""

import collections
import gc
import mmap
import weakref

import numpy as np
import pytest

from ringbuf import frame
from ringbuf.errors import BatchTooLarge

Point = collections.namedtuple("Point", "x y")


@pytest.fixture
def buffer():
    buffer = mmap.mmap(-1, 1 << 16)
    buffer[:] = b"\xa5" * len(buffer)
    return buffer


def address(array):
    return array.__array_interface__["data"][0]


def offset_in(buffer, array):
    return address(array) - address(np.frombuffer(buffer, np.uint8))


def test_arrays_from_the_writer_arrive_without_a_copy(buffer):
    writer = frame.Writer(buffer)
    image = writer.empty((2, 3), np.uint8)
    label = writer.empty(4, ">i8")
    image[:] = 7
    label[:] = range(4)
    used = writer.finish({"image": image, "label": label, "name": "x"})
    batch = frame.read(memoryview(buffer)[:used])
    assert address(batch["image"]) == address(image) and address(batch["label"]) == address(label)
    assert batch["image"].tolist() == [[7] * 3] * 2 and batch["label"].tolist() == [0, 1, 2, 3]
    assert batch["label"].dtype == ">i8" and batch["name"] == "x"


def test_an_array_from_the_writer_is_aligned_contiguous_and_inside(buffer):
    writer = frame.Writer(buffer)
    for shape, dtype in [((3,), "u1"), ((), "f8"), ((5, 0), "i4"), (7, "S3"), ((2, 2), [("a", "i1"), ("b", "f8")])]:
        array = writer.empty(shape, dtype)
        assert array.dtype == np.dtype(dtype)
        assert array.shape == (shape if isinstance(shape, tuple) else (shape,))
        assert offset_in(buffer, array) % 64 == 0 and offset_in(buffer, array) >= 64
        assert array.flags.c_contiguous and array.flags.writeable


def test_arrays_from_the_writer_do_not_overlap(buffer):
    writer = frame.Writer(buffer)
    arrays = [writer.empty(n, np.uint8) for n in (1, 64, 65, 0, 3)]
    for i, array in enumerate(arrays):
        array[:] = i
    assert [array.tolist() for array in arrays] == [[i] * n for i, n in enumerate((1, 64, 65, 0, 3))]


def test_an_array_keeps_the_exporter_alive():
    class Exporter(mmap.mmap):
        pass

    exporter = Exporter(-1, 4096)
    alive = weakref.ref(exporter)
    array = frame.Writer(exporter).empty(4, np.uint8)
    del exporter
    gc.collect()
    assert alive() is not None
    del array
    gc.collect()
    assert alive() is None


def test_arrays_from_elsewhere_are_copied_in(buffer):
    writer = frame.Writer(buffer)
    inside = writer.empty(3, np.int32)
    inside[:] = 1
    outside = np.arange(6.0).reshape(2, 3)[:, ::-1]
    used = writer.finish(Point(inside, [outside, 5]))
    batch = frame.read(memoryview(buffer)[:used])
    assert type(batch) is Point
    assert batch.x.tolist() == [1, 1, 1]
    assert batch.y[0].tolist() == outside.tolist() and batch.y[1] == 5


def test_contiguous_parts_of_an_inside_array_are_not_copied(buffer):
    writer = frame.Writer(buffer, data_limit=48)
    rows = writer.empty((6, 2), np.int32)
    rows[:] = np.arange(12).reshape(6, 2)
    used = writer.finish([rows[:4], rows[2], rows.reshape(-1), rows])
    batch = frame.read(memoryview(buffer)[:used])
    assert [part.tolist() for part in batch] == [part.tolist() for part in (rows[:4], rows[2], rows.reshape(-1), rows)]
    assert all(address(rows) <= address(part) < address(rows) + 48 for part in batch)


def test_overlapping_arrays_are_copied_apart_from_the_slot(buffer):
    writer = frame.Writer(buffer)
    rows = writer.empty((6, 2), np.int32)
    rows[:] = 3
    used = writer.finish([rows] * 50)
    batch = frame.read(memoryview(buffer)[:used], copy=True)
    rows[:] = 4
    assert len(batch) == 50 and all(part.tolist() == [[3, 3]] * 6 for part in batch)


def test_other_views_of_an_inside_array_are_copied(buffer):
    writer = frame.Writer(buffer)
    rows = writer.empty((6, 4), np.uint8)
    rows[:] = np.arange(24).reshape(6, 4)
    unaligned = rows.reshape(-1)[1:9].view(np.int32)
    used = writer.finish([rows.T, rows[::2], rows[:, 1:], unaligned])
    batch = frame.read(memoryview(buffer)[:used])
    for part, want in zip(batch, [rows.T, rows[::2], rows[:, 1:], unaligned]):
        assert part.tolist() == want.tolist() and part.flags.c_contiguous and part.flags.aligned


def test_an_array_next_to_the_writers_own_is_not_taken_for_one_of_them(buffer):
    writer = frame.Writer(buffer)
    writer.empty(64, np.uint8)
    foreign = np.frombuffer(buffer, np.uint8, 64, 256)  # in the buffer, but nothing that empty() gave out
    used = writer.finish([foreign, np.zeros(200, np.uint8)])
    first, second = frame.read(memoryview(buffer)[:used])
    assert offset_in(buffer, first) == 128
    assert first.tolist() == [0xA5] * 64 and not second.any()


def test_an_array_that_reaches_beyond_the_writers_own_is_copied(buffer):
    writer = frame.Writer(buffer)
    writer.empty(64, np.uint8)[:] = 1
    beyond = np.frombuffer(buffer, np.uint8, 100, 64)
    want = beyond.tolist()
    (again,) = frame.read(memoryview(buffer)[: writer.finish([beyond])])
    assert offset_in(buffer, again) == 128 and again.tolist() == want


def test_an_array_in_another_slot_is_copied(buffer):
    slots = [memoryview(buffer)[start : start + 4096] for start in (0, 4096, 8192)]
    writers = [frame.Writer(slot) for slot in slots]
    before, own, after = (writer.empty(4, np.uint8) for writer in writers)
    before[:], own[:], after[:] = 1, 2, 3
    used = writers[1].finish([before, own, after])
    again = frame.read(slots[1][:used], copy=False)
    before[:], after[:] = 8, 9
    assert [part.tolist() for part in again] == [[1] * 4, [2] * 4, [3] * 4]
    assert address(again[1]) == address(own)


def test_an_empty_view_at_an_odd_address_can_be_read(buffer):
    writer = frame.Writer(buffer)
    rows = writer.empty(16, np.uint8)
    used = writer.finish([rows[start:start].view(np.int64) for start in range(17)])
    assert [part.shape for part in frame.read(memoryview(buffer)[:used])] == [(0,)] * 17


def test_a_refused_array_takes_no_room(buffer):
    writer = frame.Writer(buffer, data_limit=100)
    for shape, error in [((0, 2**63), ValueError), ((1,) * 65, ValueError), ((200,), BatchTooLarge)]:
        with pytest.raises(error):
            writer.empty(shape, np.uint8)
    assert offset_in(buffer, writer.empty(100, np.uint8)) == 64


def test_the_same_batch_gives_the_same_frame_as_a_plan(buffer):
    batch = {"a": np.arange(5), "b": [np.ones((2, 2)), "text", None]}
    used = frame.Writer(buffer).finish(batch)
    plan = frame.plan(batch)
    other = bytearray(b"\xa5" * plan.frame_bytes)
    assert plan.write(other) == used
    assert bytes(other) == buffer[:used]


def test_more_data_than_the_limit_is_too_large(buffer):
    writer = frame.Writer(buffer, data_limit=1000)
    writer.empty(600, np.uint8)
    with pytest.raises(BatchTooLarge) as caught:
        writer.empty(401, np.uint8)
    assert (caught.value.needed_bytes, caught.value.available_bytes) == (1001, 1000)
    writer.empty(400, np.uint8)


def test_an_array_beyond_the_buffer_is_too_large_whatever_its_shape(buffer):
    writer = frame.Writer(buffer)
    for shape in [1 << 16, (2**40, 2**40), (2**62, 8)]:
        with pytest.raises(BatchTooLarge) as caught:
            writer.empty(shape, np.uint8)
        assert caught.value.needed_bytes > caught.value.available_bytes


def test_arrays_from_elsewhere_count_against_the_limit(buffer):
    writer = frame.Writer(buffer, data_limit=1000)
    inside = writer.empty(900, np.uint8)
    with pytest.raises(BatchTooLarge) as caught:
        writer.finish([inside, np.zeros(101, np.uint8)])
    assert (caught.value.needed_bytes, caught.value.available_bytes) == (1001, 1000)
    writer.finish([inside, np.zeros(100, np.uint8)])


@pytest.mark.parametrize("data_limit", [None, 1000])
def test_a_batch_that_does_not_fit_leaves_the_buffer_untouched(buffer, data_limit):
    writer = frame.Writer(buffer, data_limit=data_limit)
    writer.empty(900, np.uint8)
    before = buffer[:]
    with pytest.raises(BatchTooLarge) as caught:
        writer.finish({"x": np.zeros(101, np.uint8), "y": np.broadcast_to(np.uint8(0), (1 << 17,))})
    assert caught.value.needed_bytes > caught.value.available_bytes
    with pytest.raises(TypeError, match=r"batch\['y'\]"):
        writer.finish({"x": np.zeros(3, np.uint8), "y": {1, 2}})
    assert buffer[:] == before


def test_a_tail_that_does_not_fit_leaves_the_buffer_untouched(buffer):
    writer = frame.Writer(buffer)
    writer.empty(60_000, np.uint8)
    before = buffer[:]
    with pytest.raises(BatchTooLarge):
        writer.finish("x" * 6000)
    assert buffer[:] == before
    assert frame.read(memoryview(buffer)[: writer.finish("x" * 100)]) == "x" * 100


@pytest.mark.parametrize(
    ("shape", "dtype", "error"),
    [
        (3, object, TypeError),
        (3, [("a", "O")], TypeError),
        (-1, "u1", ValueError),
        (("a",), "u1", TypeError),
        (2.0, "u1", TypeError),
    ],
)
def test_a_shape_or_dtype_that_cannot_be_is_refused(buffer, shape, dtype, error):
    with pytest.raises(error):
        frame.Writer(buffer).empty(shape, dtype)
