"""Small messages take a shorter way into a slot and out of it; what stands there, and what comes out, is the same."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ringbuf import BatchTooLarge, FrameError, RingBuffer, frame

SLOT_BYTES = 4096

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
DTYPES = ["<f4", ">f8", "<i8", "|u1", ">i2", "|b1", "<c16", "<U3", "|S2", "|V5", "<M8[s]", [("a", "i1"), ("b", "<i4")]]


def array_of(dtype, shape, bits: bytes) -> np.ndarray:
    nbytes = np.dtype(dtype).itemsize * int(np.prod(shape))
    return np.ndarray(shape, dtype, bytearray(bits * nbytes))


ARRAYS = st.builds(
    array_of, st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_side=3), st.binary(min_size=1, max_size=20)
).flatmap(lambda array: st.sampled_from([array, array.T, array[..., :0] if array.ndim else array]))
LEAVES = st.one_of(
    st.none(), st.booleans(), INT64, st.integers(), st.floats(), st.complex_numbers(), st.binary(max_size=9), st.text(max_size=9),
    st.just("\ud800"), st.just("\U0001f40d"), ARRAYS,
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(INT64, max_size=40),
        st.lists(st.booleans(), max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.dictionaries(st.integers(0, 3), inner, max_size=2),
    ),
    max_leaves=12,
)
SMALL = [
    b"", b"b" * 64, "", "text", "\u00e9\U0001f40d\0", "\ud800", 5, -1, 1.5, True, None,
    [1, 2, 3], (False, True), ["a", "b"], [b"a", b""], [1, True], {}, [], (), {"a": {"b": [None, 2.5]}},
    np.arange(16, dtype=np.float32), np.array(3), np.empty((0, 3)),
    {"image": np.arange(6, dtype=">i2").reshape(2, 3), "label": 3},
]  # fmt: skip


@pytest.fixture(scope="module")
def shared_ring():
    with RingBuffer(2, SLOT_BYTES) as ring:
        yield ring


@pytest.fixture
def ring():
    with RingBuffer(4, SLOT_BYTES) as ring:
        yield ring


@pytest.fixture
def long_ways(monkeypatch):
    """The calls of frame.plan() and frame.read() since then."""
    calls = []

    def counted(name, function):
        return lambda *args, **options: calls.append(name) or function(*args, **options)

    for name in ("plan", "read"):
        monkeypatch.setattr(frame, name, counted(name, getattr(frame, name)))
    return calls


def framed(tree) -> bytes:
    plan = frame.plan(tree)
    buffer = bytearray(plan.frame_bytes)
    plan.write(buffer)
    return bytes(buffer)


def put_raw(ring, content: bytes) -> None:
    claim = ring._core.claim(timeout=0)
    view = memoryview(claim)
    view[:] = bytes(len(view))
    view[: len(content)] = content
    claim.commit(len(content))


def without_gaps(content: bytes) -> bytes:
    """A frame with zeros between its arrays, where nobody writes."""
    tail, values_bytes, schema_bytes = struct.unpack_from("<3Q", content, 24)
    assert len(content) == tail + values_bytes + schema_bytes
    schema = frame.compiled(content[-schema_bytes:], False)
    kept = bytearray(64) + bytes(tail - 64) + content[tail:]
    kept[:64] = content[:64]
    for _, _, offset, nbytes in schema.fields:
        kept[offset : offset + nbytes] = content[offset : offset + nbytes]
    return bytes(kept)


def outcome(read, *args, **options):
    """What a reader makes of a frame, so that two readers can be compared."""
    try:
        return described(read(*args, **options))
    except FrameError as error:
        return str(error)


def described(tree):
    if isinstance(tree, np.ndarray):
        return (tree.dtype.str, tree.shape, tree.tobytes())
    if isinstance(tree, dict):
        return (type(tree), [(described(key), described(value)) for key, value in tree.items()])
    if isinstance(tree, (list, tuple)):
        return (type(tree), [described(value) for value in tree])
    return (type(tree), repr(tree))


# ---- the same bytes, the same tree


@pytest.mark.parametrize("tree", SMALL, ids=repr)
def test_a_small_message_takes_the_short_way_and_its_frame_is_the_same(ring, long_ways, tree):
    expected = framed(tree)
    long_ways.clear()
    ring.put(tree)
    assert without_gaps(bytes(ring._core.take(timeout=0))) == without_gaps(expected)
    ring.put(tree)
    ring.get()
    assert long_ways == []


@given(TREES)
def test_either_way_writes_the_same_frame_and_reads_the_same_tree(shared_ring, tree):
    expected = without_gaps(framed(tree))
    shared_ring.put(tree, timeout=0)
    assert without_gaps(bytes(shared_ring._core.take(timeout=0))) == expected
    put_raw(shared_ring, expected)
    assert outcome(shared_ring.get, timeout=0) == outcome(frame.read, expected)
    put_raw(shared_ring, expected)
    assert outcome(shared_ring.get_copy, timeout=0) == outcome(frame.read, expected)


@pytest.mark.parametrize(
    "tree",
    [
        1 << 63,
        [1 << 63, 1],
        {1: 1},
        np.arange(8)[::2],
        np.zeros(2, [("a", "i1"), ("b", "<i4")]),
        np.float32(1),
        list(range(100)),
        [[[[[[[[[1]]]]]]]]],
    ],
    ids=lambda tree: repr(tree)[:20],
)
def test_what_is_not_small_or_plain_is_left_to_the_long_way(ring, long_ways, tree):
    ring.put(tree)
    assert long_ways == ["plan"]
    assert described(ring.get()) == described(frame.read(framed(tree)))


def test_a_byte_string_may_fill_a_slot_and_not_one_byte_more(ring):
    most = SLOT_BYTES + frame.FRAME_ROOM - len(framed(b""))
    ring.put(b"x" * most)
    assert ring.get() == b"x" * most
    with pytest.raises(BatchTooLarge) as caught:
        ring.put(b"x" * (most + 1))
    assert caught.value.available_bytes == SLOT_BYTES
    assert ring.stats().free == ring.slots


def test_arrays_may_have_slot_bytes_and_not_one_more(ring):
    ring.put({"a": np.zeros(SLOT_BYTES, np.uint8)})
    with pytest.raises(BatchTooLarge):
        ring.put({"a": np.zeros(SLOT_BYTES, np.uint8), "b": np.zeros(1, np.uint8)})


@pytest.mark.parametrize("message", [b"bytes", "text"])
def test_a_byte_string_or_text_is_private_and_its_slot_is_free_at_once(ring, message):
    ring.put(message)
    got = ring.get()
    assert got == message and type(got) is type(message)
    assert ring._core.held == 0 and ring.stats().free == ring.slots


def test_an_array_is_a_view_that_keeps_its_slot(ring):
    ring.put({"a": np.arange(8), "n": 1})
    got = ring.get()
    assert ring.stats().reading == 1 and got["a"].flags.writeable
    kept = got["a"][2:3]
    del got
    assert ring.stats().reading == 1 and kept[0] == 2
    del kept
    assert ring.stats().free == ring.slots


# ---- frames that somebody else wrote


def test_a_frame_with_any_one_byte_changed_is_judged_as_the_long_way_judges_it(ring):
    for tree in (b"content", "text", 7, {"a": np.arange(3, dtype="<u2"), "b": [1, 2]}):
        honest = without_gaps(framed(tree))
        for at in range(len(honest)):
            for change in (1, 0x80, 0xFF):
                forged = bytearray(honest)
                forged[at] ^= change
                put_raw(ring, forged)
                assert outcome(ring.get, timeout=0) == outcome(frame.read, forged), (tree, at, change)
    assert ring.stats().free == ring.slots


@pytest.mark.parametrize("word", range(2, 6))
@pytest.mark.parametrize("number", [0, 1, 63, 64, 65, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 64, (1 << 64) - 1])
def test_no_size_in_a_header_is_believed(ring, word, number):
    for tree in (b"content", {"a": np.arange(3), "b": [1, 2]}):
        forged = bytearray(without_gaps(framed(tree)))
        struct.pack_into("<Q", forged, 8 * word, number)
        put_raw(ring, forged)
        assert outcome(ring.get, timeout=0) == outcome(frame.read, forged)


def test_sizes_that_only_add_up_beyond_64_bits_are_refused(ring):
    forged = bytearray(framed([1, 2]))
    values_bytes, schema_bytes = struct.unpack_from("<2Q", forged, 32)
    struct.pack_into("<2Q", forged, 32, values_bytes - 8 & (1 << 64) - 1, schema_bytes + 8)
    put_raw(ring, forged)
    struct.pack_into("<2Q", forged, 32, 1 << 63, (1 << 63) + values_bytes + schema_bytes & (1 << 64) - 1)
    put_raw(ring, forged)
    for _ in range(2):
        with pytest.raises(FrameError):
            ring.get(timeout=0)


@pytest.mark.parametrize("tree", [7, [1, 2], (True, False), ["a", "b"], {"a": [1.5, 2.5]}], ids=repr)
def test_a_frame_without_the_values_that_its_tree_asks_for_is_refused(ring, tree):
    honest = framed(tree)
    schema = honest[-struct.unpack_from("<Q", honest, 40)[0] :]
    put_raw(ring, honest[:16] + struct.pack("<6Q", 64 + len(schema), 64, 0, len(schema), 0, 0) + schema)
    with pytest.raises(FrameError, match="bytes of values"):
        ring.get(timeout=0)


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 71, 72, 79, 80])
def test_a_frame_cut_short_is_refused(ring, cut):
    put_raw(ring, framed(b"x")[:cut])
    with pytest.raises(FrameError):
        ring.get(timeout=0)
    assert ring.stats().free == ring.slots


def test_bytes_after_a_frame_are_passed_over(ring):
    put_raw(ring, framed(b"content") + b"more")
    assert ring.get(timeout=0) == b"content"


def test_text_that_is_no_utf8_is_an_error(ring):
    put_raw(ring, framed("ab").replace(b"ab", b"\xff\xff"))
    with pytest.raises(FrameError, match="utf-8"):
        ring.get(timeout=0)


def test_a_nest_of_empty_containers_is_refused_as_by_the_long_way(ring):
    nest = []
    for _ in range(4):
        nest = [nest] * 32
    with pytest.raises(ValueError, match="leaves"):
        ring.put(nest, timeout=0)
    assert ring.put([[], [{}], ()], timeout=0) is None
    assert ring.get(timeout=0) == [[], [{}], ()]
