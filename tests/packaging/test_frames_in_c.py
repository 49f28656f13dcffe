"""ringbuf_frame.h and frame.py write the same bytes and read each other's, whatever arrays and trees they hold."""

import collections
import ctypes
import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import ringbuf
from ringbuf import frame

DIMENSIONS = 16


class Array(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char * 16),
        ("ndim", ctypes.c_uint32),
        ("shape", ctypes.c_uint64 * DIMENSIONS),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
    ]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("frames") / "frames.so"
    flags = ["-shared", "-fPIC", "-O1", f"-I{ringbuf.get_include()}"]
    source = Path(__file__).with_name("frames.c")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, *flags, source, ringbuf.get_library(), "-pthread", "-o", path], check=True)
    return ctypes.CDLL(str(path))


names = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'), max_size=12)
dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64, 128)),
    hnp.complex_number_dtypes(endianness="?", sizes=(64, 128, 256)),
    hnp.byte_string_dtypes(min_len=1),
)
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
arrays = st.builds(lambda dtype, shape: np.full(shape, 1).astype(dtype), dtypes, shapes)


def laid_out(library, batch):
    """The bytes of the frame that the C library makes of a dict of arrays."""
    table = (Array * len(batch))()
    for row, (name, array) in zip(table, batch.items()):
        row.name, row.dtype, row.ndim = name.encode(), array.dtype.str.encode(), array.ndim
        row.shape[: array.ndim] = array.shape
    needed = ctypes.c_uint64()
    assert library.lay_out(None, ctypes.c_uint64(0), table, len(batch), ctypes.byref(needed)) == -errno.EMSGSIZE
    buffer = ctypes.create_string_buffer(needed.value)
    assert library.lay_out(buffer, needed, table, len(batch), ctypes.byref(needed)) == 0
    for row, array in zip(table, batch.values()):
        assert row.bytes == array.nbytes
        ctypes.memmove(row.data, array.tobytes(), array.nbytes)
    return bytearray(buffer.raw)


def found(library, buffer, path):
    """The array that C finds there, or its errno."""
    memory = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    out = Array()
    rc = library.find(memory, ctypes.c_uint64(len(buffer)), path.encode(), ctypes.byref(out))
    if rc:
        return errno.errorcode[-rc]
    offset = out.data - ctypes.addressof(memory)
    return np.ndarray(tuple(out.shape[: out.ndim]), out.dtype.decode(), bytes(buffer[offset : offset + out.bytes]))


def python_frame(batch):
    plan = frame.plan(batch)
    buffer = bytearray(plan.frame_bytes)
    plan.write(buffer)
    return buffer


def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def step(key):
    return "/" + key.replace("~", "~0").replace("/", "~1")


@given(batch=st.dictionaries(names, arrays, max_size=5))
@settings(deadline=None)
def test_what_c_lays_out_is_what_python_writes_to_the_byte(library, batch):
    buffer = laid_out(library, batch)
    assert buffer == python_frame(batch)
    for (name, array), (want_name, want) in zip(frame.read(buffer).items(), batch.items(), strict=True):
        assert name == want_name and same(array, want)


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Pair:
    a: object
    b: object


others = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.just(np.float32(2)),
    st.just(np.zeros(2, [("f", "<i4")])),
    st.just(np.zeros(2, "<U3")),
    st.just([1, 2, 3]),
    st.just(np.zeros((1,) * (DIMENSIONS + 1))),
)
keys = st.one_of(st.text(max_size=3), st.sampled_from(["a/b", "~", "~1", "x", "0", "é"]))
trees = st.recursive(
    arrays | others,
    lambda nodes: st.one_of(
        st.lists(nodes, max_size=3),
        st.lists(nodes, max_size=3).map(tuple),
        st.dictionaries(keys, nodes, max_size=3),
        st.dictionaries(st.integers() | keys, nodes, max_size=2),
        st.dictionaries(keys, nodes, max_size=3).map(collections.OrderedDict),
        st.builds(Point, nodes, nodes),
        st.builds(Pair, nodes, nodes),
    ),
    max_leaves=10,
)


def places(node, path=""):
    """(path, node) of all that a path can lead to."""
    yield path, node
    if isinstance(node, dict):
        steps = [(key, value) for key, value in node.items() if isinstance(key, str)]
    elif dataclasses.is_dataclass(node):
        steps = list(vars(node).items())
    elif hasattr(node, "_fields"):
        steps = list(node._asdict().items())
    elif isinstance(node, (list, tuple)):
        runs = len(node) > 1 and len(set(map(type, node))) == 1 and type(node[0]) in (bool, int, float, str, bytes)
        steps = [] if runs else [(str(index), value) for index, value in enumerate(node)]
    else:
        return
    for key, value in steps:
        if not any(c < " " or c in '"\\\0' for c in key):  # such keys are escaped, and lead nowhere
            yield from places(value, path + step(key))


def expressible(node):
    return isinstance(node, np.ndarray) and node.dtype.kind in "biufcSV" and not node.dtype.names and node.ndim <= DIMENSIONS


@given(batch=trees)
@settings(deadline=None, max_examples=300)
def test_c_finds_each_array_of_what_python_writes_and_nothing_else(library, batch):
    buffer = python_frame(batch)
    for path, node in places(batch):
        got = found(library, buffer, path)
        if expressible(node):
            assert not isinstance(got, str) and same(got, node), path
        else:
            assert got == "ENOTSUP", path
        assert found(library, buffer, path + "/no such key") == "ENOENT"


def test_c_finds_tensors_that_lie_in_order(library):
    torch = pytest.importorskip("torch")
    image = torch.arange(24.0).reshape(1, 2, 3, 4)
    buffer = python_frame({"plain": image, "turned": image.to(memory_format=torch.channels_last), "half": image.bfloat16()})
    assert same(found(library, buffer, "/plain"), image.numpy())
    assert found(library, buffer, "/turned") == "ENOTSUP"
    assert same(found(library, buffer, "/half"), image.bfloat16().view(torch.int16).numpy())


def test_the_room_beyond_arrays_is_the_same_on_both_sides():
    header = Path(ringbuf.get_include(), "ringbuf_frame.h").read_text()
    assert f"#define RB_FRAME_ROOM {frame.FRAME_ROOM}u" in header and sys.byteorder == "little"
