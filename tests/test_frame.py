"""What comes out of a frame is what went in: every dtype, shape, container and value."""

import collections
import dataclasses
import gc
import math
import mmap
import struct
import sys
import threading
import time
import tracemalloc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ringbuf import frame
from ringbuf.errors import BatchTooLarge, FrameError

ml_dtypes = pytest.importorskip("ml_dtypes", reason="its dtypes are part of what is tested")

Point = collections.namedtuple("Point", "x y")
Nothing = collections.namedtuple("Nothing", "")
Renamed = collections.namedtuple("Renamed", "a class", rename=True)


class Pair(Point):
    def total(self):
        return self.x + self.y


@dataclasses.dataclass
class Sample:
    image: object
    label: object = 0
    hidden: object = dataclasses.field(default=7, init=False)

    def __post_init__(self):
        self.label += 1000  # would show if reading called it


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: object
    b: object = ()


class Outer:
    @dataclasses.dataclass
    class Inner:
        value: object


def written(batch, **options):
    """The bytes of a frame in writable memory that numpy does not align by itself."""
    plan = frame.plan(batch, **options)
    buffer = np.full(plan.frame_bytes + 64, 0xA5, np.uint8)
    used = plan.write(buffer)
    assert used == plan.frame_bytes
    return buffer[:used]


def round_trip(batch, **options):
    return frame.read(written(batch), **options)


def raw_bytes(array) -> bytes:
    """All bytes in C order; numpy's own copies may skip the padding of structured dtypes."""
    return array.view(f"V{array.itemsize}").tobytes() if array.dtype.names else array.tobytes()


def same(a, b) -> bool:
    """Equal in type, structure and every bit; a float may be any NaN but must be the same one."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return repr(a.dtype) == repr(b.dtype) and a.shape == b.shape and raw_bytes(a) == raw_bytes(b)
    if isinstance(a, np.generic) and not isinstance(a, np.character):
        return same(np.asarray(a), np.asarray(b))
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    return a == b


ALIGNED = np.dtype([("flag", "i1"), ("value", "f8"), ("name", "S3")], align=True)

DTYPES = [
    *"?bBhHiIlLqQefdgFDG",
    ">f4", ">i2", ">u8", ">c16", ">f2", "<f8",
    "S5", "S0", "U3", ">U3", "U0", "V7", "V0",
    "M8[ns]", "M8[D]", "M8[25us]", "m8[s]", "m8[3M]", "M8", "m8", ">M8[us]",
    ALIGNED,
    np.dtype([("inner", ALIGNED, (2, 2)), ("tail", ">i2")]),
    np.dtype([(("a long title", "a"), "i4"), ("b", "M8[us]")]),
    np.dtype({"names": ["late", "early"], "formats": ["<i4", ">f2"], "offsets": [8, 2], "itemsize": 32}),
    np.dtype({"names": ["all", "low"], "formats": ["<i4", "<i2"], "offsets": [0, 0], "itemsize": 4}),
    np.dtype([]),
    np.dtype([("empty", "V0"), ("none", "f4", (0, 3))]),
    "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int4", "uint2", "float4_e2m1fn",
]  # fmt: skip

SHAPES = [(), (1,), (5,), (0,), (0, 4), (2, 0, 3), (1, 1, 1), (3, 4), (2, 3, 4), (0, 3, 2**40)]


def bits(dtype, shape) -> np.ndarray:
    """An array with every byte set to something, NaT, denormals and odd bools included."""
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    if dtype.kind == "U":
        return np.array(["a\u00e9\U0001f600"[: 1 + i % 3] for i in range(count)], object).astype(dtype).reshape(shape)
    raw = np.random.default_rng(7).integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    return np.ndarray(shape, dtype, raw.tobytes())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(np.dtype(d)))
def test_an_array_keeps_dtype_shape_and_bits(dtype, shape):
    array = bits(dtype, shape)
    again = round_trip({"x": array})["x"]
    assert again.dtype == array.dtype
    assert again.dtype.isalignedstruct == array.dtype.isalignedstruct
    assert same(again, array)
    assert again.flags.c_contiguous and again.flags.writeable


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.asfortranarray(np.arange(24).reshape(2, 3, 4)),
        np.arange(12).reshape(3, 4)[:, ::2],
        np.arange(12)[::-1],
        np.arange(12).reshape(3, 4).T,
        np.arange(24).reshape(2, 3, 4).swapaxes(0, 2),
        np.zeros(5, [("x", "f8"), ("y", "i2")])["y"],
        np.zeros(5, ALIGNED)[::-2],
        np.arange(1)[::-1],
        np.broadcast_to(np.float32(3), (4, 5)),
        np.broadcast_to(np.arange(3), (2, 3)),
        bits("bfloat16", (4, 6))[::2, ::-3],
        bits("?", (4, 6))[::-1, ::2],
        np.array([0x7FA00001, 0xFFA00002, 1, 2], np.uint32).view(np.float32)[::-1],  # signalling NaNs
        np.lib.stride_tricks.sliding_window_view(np.arange(6), 3),
    ],
    ids=lambda a: f"{a.dtype}-{a.strides}",
)
def test_any_memory_order_arrives_c_contiguous_with_equal_values(array, copy):
    again = round_trip(array, copy=copy)
    assert same(again, array)
    assert again.flags.c_contiguous and min(again.strides, default=0) >= 0


@pytest.mark.parametrize(
    "array",
    [
        np.rec.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")]),
        np.arange(4).reshape(2, 2).view(np.matrix),
        type("Custom", (np.ndarray,), {})((3,), np.int16, b"123456"),
    ],
    ids=lambda a: type(a).__name__,
)
def test_an_array_subclass_arrives_as_a_plain_array(array):
    again = round_trip(array)
    assert type(again) is np.ndarray
    assert again.shape == array.shape and again.tobytes() == array.tobytes()
    assert again.dtype == np.dtype(array.dtype.descr if array.dtype.names else array.dtype)


def test_a_memmap_arrives_as_a_plain_array(tmp_path):
    np.arange(12, dtype=np.int32).tofile(tmp_path / "file")
    rows = np.memmap(tmp_path / "file", np.int32, mode="r", shape=(3, 4))
    assert same(round_trip(rows[1]), np.array([4, 5, 6, 7], np.int32))


@pytest.mark.parametrize(
    "scalar",
    [
        np.float16(1.5), np.float32(-0.0), np.longdouble("0.1"), np.complex64(1 - 2j), np.bool_(True), np.int8(-1),
        np.uint64(2**64 - 1), np.longlong(5), np.ulonglong(6), np.intc(3), np.datetime64("NaT"),
        np.datetime64("2001-02-03", "D"), np.datetime64(3, "25us"), np.timedelta64(-1, "ns"), np.str_("a\0"), np.str_(""),
        np.str_("\ud800"), np.bytes_(b"b\0"), np.bytes_(b""), np.void(b"\1\2\3"), np.ones((), ALIGNED)[()],
        ml_dtypes.bfloat16(1.5), ml_dtypes.int4(-3),
    ],
    ids=lambda s: type(s).__name__,
)  # fmt: skip
def test_a_numpy_scalar_comes_back_as_the_same_scalar_type(scalar):
    again = round_trip([scalar, 0])[0]
    assert same(again, scalar)
    assert not isinstance(again, np.ndarray)


def test_a_structured_scalar_does_not_alias_the_slot():
    buffer = written([np.ones((), ALIGNED)[()]])
    (again,) = frame.read(buffer)
    before = bytes(buffer)
    again["flag"] = 5
    assert again["flag"] == 5 and bytes(buffer) == before


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**64, 2**1000, -(2**999),
        0.0, -0.0, math.inf, 5e-324, struct.unpack("<d", bytes.fromhex("0100000000 00f47f"))[0], 1 - 0j, complex("nanj"),
        "", "a\0b", "\u00e9\U0001f600", "\ud800", "\ud83d\ude00", "x" * (1 << 20), b"", b"\0a\0", bytes(range(256)),
        [], (), {}, [[]], ((),), [None, None], [True, 1, 1.0], [True, False], (1, 2, 3), [2**63, 1], [-(2**63) - 1, 0],
        (1.5, -0.0), ["a", "", "\ud800"], [b"", b"\0"], (b"a",), ("only",), [1, None], ["a", b"a"], [1j, 2j],
        {"b": 1, "a": 2}, {1: "int", "1": "str", None: 0, b"1": 0, 2.5: 0, (1, ("a", None)): 0, -(2**70): 0, (): 0},
        {True: "bool"}, {1.0: "float"}, {-0.0: 0}, {(True, 1.0): 0}, {(1, 1): 0}, {"\ud800": 1, "": 2},
        {"\ud83d\ude00": 1, "\U0001f600": 2}, {("\ud83d\ude00",): 1},
        collections.OrderedDict(z=1, a=[2]), collections.OrderedDict(),
        Point(1, [2.5]), Point(Point(1, 2), (Point(3, 4),)), Nothing(), Renamed(1, 2), Pair(1, 2),
        Sample(np.arange(3), 5), Frozen(Sample(1), Frozen(None)), Outer.Inner([1]),
    ],
    ids=lambda v: repr(v)[:40],
)  # fmt: skip
def test_a_python_value_comes_back_with_its_type(value):
    assert same(round_trip(value), value)
    assert same(round_trip({"inside": [value, None]})["inside"][0], value)


def test_equal_keys_of_different_types_are_not_mistaken_for_one_another():
    for batch in ({1: 0}, {True: 0}, {1.0: 0}, {(1,): 0}, {(True,): 0}, {0.0: 0}, {-0.0: 0}, {False: 0}):
        assert same(round_trip(batch), batch)  # each plan and each schema meets those kept of the others


def test_dtypes_that_compare_equal_are_not_mistaken_for_one_another():
    packed = np.dtype([("a", "i4")])
    aligned = np.dtype([("a", "i4")], align=True)
    for dtype in (packed, aligned, packed):
        assert round_trip(np.zeros(2, dtype)).dtype.isalignedstruct == dtype.isalignedstruct


def test_one_array_in_two_places_arrives_in_both():
    array = np.arange(5)
    again = round_trip({"a": array, "b": [array, array[1:]]})
    assert same(again, {"a": array, "b": [array, array[1:]]})


def test_a_namedtuple_that_this_process_lacks_is_made_anew():
    Local = collections.namedtuple("Local", "x y")
    first, second = round_trip(Local(1, "a")), round_trip(Local(2, "b"))
    assert type(first).__name__ == "Local" and first._fields == ("x", "y") and first == (1, "a")
    assert type(first) is type(second)


def test_a_namedtuple_with_other_fields_here_is_made_anew(monkeypatch):
    buffer = written(Point(1, 2))
    monkeypatch.setitem(globals(), "Point", collections.namedtuple("Point", "x z"))
    again = frame.read(buffer)
    assert again._fields == ("x", "y") and type(again) is not Point


def test_a_namedtuple_whose_module_cannot_be_imported_is_made_anew(monkeypatch):
    kind = collections.namedtuple("Gone", "x y", module="no_such_module")
    again = round_trip([kind(1, 2)], imports=True)[0]
    assert type(again).__name__ == "Gone" and again._asdict() == {"x": 1, "y": 2}


def test_a_class_that_is_defined_anew_is_used_from_then_on(monkeypatch):
    buffer = written([Point(1, 2), Frozen(1)])
    frame.read(buffer)
    new_point = collections.namedtuple("Point", "x y")
    new_frozen = dataclasses.make_dataclass("Frozen", ["a", "b"])
    monkeypatch.setitem(globals(), "Point", new_point)
    monkeypatch.setitem(globals(), "Frozen", new_frozen)
    assert [type(leaf) for leaf in frame.read(buffer)] == [new_point, new_frozen]


@pytest.mark.parametrize("change", ["gone", "not a class", "not a dataclass", "other fields"])
def test_a_dataclass_that_cannot_be_found_is_a_frame_error_naming_it(monkeypatch, change):
    buffer = written({"s": Sample(1)})
    if change == "gone":
        monkeypatch.delitem(globals(), "Sample")
    else:
        other = {"not a class": print, "not a dataclass": Outer, "other fields": Frozen}[change]
        monkeypatch.setitem(globals(), "Sample", other)
    with pytest.raises(FrameError, match=rf"{__name__}\.Sample"):
        frame.read(buffer)


def test_arrays_lie_at_multiples_of_64_and_header_values_and_tail_around_them():
    batch = {"a": np.ones(3, np.uint8), "n": 5, "b": np.ones((2, 2)), "s": "text"}
    buffer = written(batch)
    again = frame.read(buffer)
    starts = [again[k].__array_interface__["data"][0] - buffer.__array_interface__["data"][0] for k in "ab"]
    assert starts == [64, 128]
    words = struct.unpack_from("<8s7Q", buffer)
    tail = words[3]
    assert words == (b"rb-frame", 1, len(buffer), tail, 20, len(buffer) - tail - 20, 0, 0)
    assert bytes(buffer[tail : tail + 20]) == struct.pack("<qQ4s", 5, 4, b"text")
    assert bytes(buffer[tail + 20 :]) == (
        b'[["dict",["a","n","b","s"],"a","i","a","s"],[["|u1",[3],64],["<f8",[2,2],128]]]'
    )


def test_views_share_the_buffer_and_keep_it_alive():
    class Exporter(mmap.mmap):
        pass

    exporter = Exporter(-1, 4096)
    frame.plan({"x": np.arange(4), "y": 1}).write(exporter)
    alive = weakref.ref(exporter)
    part = frame.read(exporter)["x"][1:]
    exporter[64 + 8] = 77
    assert part[0] == 77
    del exporter
    gc.collect()
    assert alive() is not None
    del part
    gc.collect()
    assert alive() is None


def test_a_copy_is_writable_and_keeps_nothing_of_the_buffer():
    exporter = written({"x": np.arange(4), "s": "text"})
    exporter.flags.writeable = False
    alive = weakref.ref(exporter)
    again = frame.read(exporter, copy=True)
    del exporter
    gc.collect()
    assert alive() is None
    again["x"] += 1
    assert same(again, {"x": np.arange(1, 5), "s": "text"})


def test_arrays_of_a_read_only_buffer_cannot_be_made_writable():
    (array,) = frame.read(bytes(written([np.arange(4)])))
    assert not array.flags.writeable
    with pytest.raises(ValueError):
        array.flags.writeable = True


def test_padding_of_a_structured_array_is_the_senders_not_what_the_slot_held():
    array = np.zeros(3, ALIGNED)
    assert round_trip(array).tobytes() == bytes(array.nbytes)


def test_sizes_are_logical_and_known_before_anything_is_written():
    plan = frame.plan({"x": np.broadcast_to(1.0, (2**20, 2**20)), "y": np.zeros(3, np.int32)})
    assert plan.data_bytes == 2**43 + 12
    assert plan.frame_bytes > 2**43
    with pytest.raises(BatchTooLarge, match=str(2**43 + 12)) as caught:
        plan.check(2**30)
    assert (caught.value.needed_bytes, caught.value.available_bytes) == (2**43 + 12, 2**30)


def test_large_trees_are_not_kept():
    batches = [{f"{n}": [1, None] * 10_000} for n in range(10)]
    frame.plan(batches[0])
    tracemalloc.start()
    try:
        for batch in batches:
            frame.plan(batch)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 500_000


def test_offsets_beyond_four_gibibytes_are_exact():
    big = np.broadcast_to(np.uint8(1), (2**32 + 1,))
    plan = frame.plan([big, np.arange(3)])
    assert plan.data_bytes == 2**32 + 25
    assert plan.frame_bytes > 64 + 2**32 + 64 + 24


def test_check_accepts_a_slot_of_exactly_the_data_and_refuses_one_byte_less():
    plan = frame.plan({f"field{i}": np.zeros(100 + i, np.uint8) for i in range(30)})
    plan.check(plan.data_bytes)
    with pytest.raises(BatchTooLarge) as caught:
        plan.check(plan.data_bytes - 1)
    frame.plan(np.zeros(caught.value.needed_bytes, np.uint8)).check(caught.value.needed_bytes)


def test_a_tail_beyond_its_room_counts_against_the_slot():
    plan = frame.plan({"text": "x" * 10_000})
    assert plan.data_bytes == 0
    with pytest.raises(BatchTooLarge) as caught:
        plan.check(1000)
    needed = caught.value.needed_bytes
    plan.check(needed)
    with pytest.raises(BatchTooLarge):
        plan.check(needed - 1)


def test_a_buffer_that_is_too_small_is_left_untouched():
    plan = frame.plan(np.arange(10))
    buffer = np.zeros(plan.frame_bytes - 1, np.uint8)
    with pytest.raises(BatchTooLarge):
        plan.write(buffer)
    assert not buffer.any()


@pytest.mark.parametrize("side", ["write", "finish", "read"])
def test_other_threads_run_during_a_large_copy(side):
    batch = {"x": np.ones(1 << 25, np.uint8)}
    plan = frame.plan(batch)
    buffer = np.zeros(plan.frame_bytes, np.uint8)
    plan.write(buffer)
    act = {
        "write": lambda: plan.write(buffer),
        "finish": lambda: frame.Writer(buffer).finish(batch),
        "read": lambda: frame.read(buffer, copy=True),
    }[side]
    turns, stop = [0], threading.Event()

    def take_turns():
        while not stop.is_set():
            turns[0] += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # so that the thread below runs only while this one has let go of the GIL
    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        seen = before = turns[0]
        while seen == before and time.monotonic() < deadline:
            before = turns[0]
            act()
            seen = turns[0]
        assert seen > before
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        thread.join()


keys = st.recursive(
    st.text(st.characters(exclude_categories=[]))
    | st.integers()
    | st.booleans()
    | st.none()
    | st.floats()
    | st.binary(),
    lambda k: st.tuples(k, k),
    max_leaves=4,
)
plain = st.sampled_from([d for d in DTYPES if np.dtype(d).names is None and np.dtype(d).kind not in "US"])
arrays = st.builds(
    bits, plain | st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)
)
values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.binary()
    | st.text(st.characters(exclude_categories=[])) | arrays
)  # fmt: skip
batches = st.recursive(
    values | st.lists(st.integers()) | st.lists(st.text()),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(keys, inner)
        | st.dictionaries(keys, inner).map(collections.OrderedDict)
        | st.builds(Point, inner, inner)
        | st.builds(Frozen, inner, inner)
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(batches, st.booleans())
def test_any_batch_round_trips(batch, copy):
    assert same(round_trip(batch, copy=copy), batch)
