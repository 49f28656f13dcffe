"""Bytes that no writer produced: FrameError, and nothing worse."""

import collections
import dataclasses
import functools
import json
import struct
import sys
import tracemalloc
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringbuf import frame
from ringbuf.errors import FrameError

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Cleaning:
    path: object

    def __del__(self):
        raise AssertionError("ran code of the class")


@dataclasses.dataclass
class Sample:
    image: object
    label: object


def forged(tree, rows=(), *, values=b"", arrays=b"", schema=None, **header):
    """A frame with any schema and any header."""
    if schema is None:
        schema = json.dumps([tree, rows], separators=(",", ":")).encode()
    tail = 64 + len(arrays)
    words = {
        "magic": b"rb-frame",
        "version": 1,
        "frame_bytes": tail + len(values) + len(schema),
        "tail": tail,
        "values_bytes": len(values),
        "schema_bytes": len(schema),
        "spare": 0,
        "spare2": 0,
    }
    words.update(header)
    return bytearray(struct.pack("<8s7Q", *words.values()) + arrays + values + schema)


def test_a_forged_frame_without_a_flaw_is_read():
    buffer = forged(["list", "a", "i"], [["<i4", [2], 64]], values=struct.pack("<q", 5), arrays=b"\1\0\0\0\2\0\0\0")
    array, number = frame.read(buffer)
    assert array.tolist() == [1, 2] and number == 5


HEADERS = {
    "magic": {"magic": b"rb-frama"},
    "version": {"version": 2},
    "spare": {"spare": 1},
    "spare2": {"spare2": 1},
    "tail inside the header": {"tail": 56, "values_bytes": 8},
    "tail beyond the end": {"tail": 1 << 40},
    "frame larger than the buffer": {"frame_bytes": 1 << 40, "schema_bytes": (1 << 40) - 64},
    "sizes that wrap around": {"values_bytes": 2**64 - 8, "schema_bytes": 8 + 10},
    "values that overlap the schema": {"values_bytes": 4},
    "no schema": {"schema_bytes": 0, "frame_bytes": 64},
    "short schema": {"schema_bytes": 5, "frame_bytes": 69},
    "all ones": dict.fromkeys(["frame_bytes", "tail", "values_bytes", "schema_bytes"], 2**64 - 1),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_header_that_contradicts_itself_is_refused(header):
    assert frame.read(forged("n", [])) is None
    with pytest.raises(FrameError):
        frame.read(forged("n", [], **header))


@pytest.mark.parametrize("size", [0, 1, 63])
def test_a_buffer_shorter_than_a_header_is_refused(size):
    with pytest.raises(FrameError, match=f"here are {size}"):
        frame.read(bytes(forged("n", []))[:size])


def test_a_truncated_frame_is_refused_at_every_length():
    whole = bytes(forged(["list", "a", "s"], [["<i4", [2], 64]], values=struct.pack("<Q2s", 2, b"ab"), arrays=bytes(8)))
    frame.read(whole)
    for size in range(len(whole)):
        with pytest.raises(FrameError):
            frame.read(whole[:size])


ROWS = {
    "object dtype": ["|O", [1], 64],
    "object dtype with a size": ["|O8", [1], 64],
    "pickled scalar type": ["object", [1], 64],
    "comma string": ["i4,f8", [1], 64],
    "repeat count": ["2i4", [1], 64],
    "no dtype": [None, [1], 64],
    "number as dtype": [4, [1], 64],
    "unknown ml_dtype": ["ml_dtypes.finfo", [1], 64],
    "attribute of ml_dtypes": ["ml_dtypes.np", [1], 64],
    "path into ml_dtypes": ["ml_dtypes._finfo.finfo", [1], 64],
    "datetime with a huge multiple": ["<M8[9999999999s]", [1], 64],
    "datetime with a divisor": ["<M8[s/2]", [1], 64],
    "huge item": ["|V9999999999", [1], 64],
    "beyond the arrays": ["<i4", [3], 64],
    "at the end of the arrays": ["|u1", [1], 72],
    "far offset": ["|u1", [1], 2**63],
    "offset of 2**64": ["|u1", [1], 2**64],
    "negative offset": ["|u1", [1], -8],
    "unaligned": ["<i4", [1], 65],
    "float offset": ["|u1", [1], 64.0],
    "bool offset": ["|u1", [1], True],
    "negative shape": ["|u1", [-1], 64],
    "two negative sizes": ["|u1", [-1, -1], 64],
    "bool in a shape": ["|u1", [True], 64],
    "shape as text": ["|u1", "3", 64],
    "shape as number": ["|u1", 3, 64],
    "huge shape": ["|u1", [2**62, 2**62], 64],
    "shape that wraps around to nothing": ["<i8", [2**32, 2**32], 64],
    "65 dimensions": ["|u1", [1] * 65, 64],
    "huge shape with a zero": ["<i8", [0, 2**63, 2**63], 64],
    "short row": ["|u1", [1]],
    "long row": ["|u1", [1], 64, 0],
    "object in a struct": [["struct", 8, 0, ["a", None, 0, "|O", []]], [1], 64],
    "struct larger than its size": [["struct", 4, 0, ["a", None, 0, "<i8", []]], [1], 64],
    "struct field outside": [["struct", 8, 0, ["a", None, 2**31, "<i4", []]], [1], 64],
    "struct field before": [["struct", 8, 0, ["a", None, -4, "<i4", []]], [1], 64],
    "struct with two fields of a name": [
        ["struct", 8, 0, ["a", None, 0, "<i4", []], ["a", None, 4, "<i4", []]],
        [1],
        64,
    ],
    "struct with a number as name": [["struct", 8, 0, [5, None, 0, "<i4", []]], [1], 64],
    "struct of negative size": [["struct", -8, 0], [1], 64],
    "huge subarray": [["struct", 8, 0, ["a", None, 0, "<i4", [2**31 - 1, 2**31 - 1]]], [1], 64],
    "other word": [["union", 8, 0], [1], 64],
    "empty list as dtype": [[], [1], 64],
    "deeply nested struct": [
        functools.reduce(lambda inner, _: ["struct", 1, 0, ["a", None, 0, inner, []]], range(100), "|u1"),
        [1],
        64,
    ],
}


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_field_that_numpy_or_the_buffer_cannot_hold_is_refused(row, copy):
    assert frame.read(forged("a", [["|u1", [8], 64]], arrays=bytes(8))).tolist() == [0] * 8
    with pytest.raises(FrameError):
        frame.read(forged("a", [row], arrays=bytes(8)), copy=copy)


def q(*numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


TREES = {
    "unknown leaf": ("?", b""),
    "empty leaf": ("", b""),
    "number": (1, b""),
    "null": (None, b""),
    "object": ({"a": "n"}, b""),
    "empty list": ([], b""),
    "unknown container": (["set", "n"], b""),
    "name of a method": (["__init__"], b""),
    "list as word": ([["list"], "n"], b""),
    "array that is not in the table": ("a", b""),
    "value without bytes": ("i", b""),
    "value with too few bytes": ("i", bytes(7)),
    "value with too many bytes": ("i", bytes(9)),
    "bytes that nothing asks for": ("n", bytes(8)),
    "text longer than the values": ("s", q(3) + b"ab"),
    "text shorter than the values": ("s", q(1) + b"ab"),
    "text of 2**64 bytes": ("s", q(2**64 - 1)),
    "two texts that together are too long": (["list", "s", "s"], q(2, 1) + b"ab"),
    "text that is not UTF-8": ("s", q(1) + b"\xff"),
    "numpy text that is not UTF-8": ("S", q(1) + b"\xff"),
    "run of nothing": (["list*", "i", 0], b""),
    "run of a negative count": (["list*", "i", -1], b""),
    "run of a count as text": (["list*", "i", "1"], bytes(8)),
    "run of True": (["list*", "i", True], bytes(8)),
    "run of arrays": (["list*", "a", 1], b""),
    "run of complex": (["list*", "c", 1], bytes(16)),
    "run of nones": (["list*", "n", 10**9], b""),
    "run of too many": (["list*", "i", 10**15], bytes(8)),
    "run of far too many": (["list*", "b", 2**63], bytes(8)),
    "run of too many texts": (["tuple*", "s", 10**12], bytes(8)),
    "run with an extra": (["list*", "i", 1, 1], bytes(8)),
    "run of an empty kind": (["list*", "", 1], b""),
    "run of two kinds": (["list*", "if", 1], bytes(16)),
    "dict with too few keys": (["dict", ["a"], "n", "n"], b""),
    "dict with too many keys": (["dict", ["a", "b"], "n"], b""),
    "dict without keys": (["dict"], b""),
    "key of a number": (["dict", [5], "n"], b""),
    "key of an unknown letter": (["dict", [["q", "1"]], "n"], b""),
    "key of an unknown constant": (["dict", [["=", "Ellipsis"]], "n"], b""),
    "key of bad hex": (["dict", [["y", "0g"]], "n"], b""),
    "key of a short float": (["dict", [["f", "00"]], "n"], b""),
    "key of a nested tuple too deep": (["dict", [functools.reduce(lambda k, _: ["t", k], range(300), "a")], "n"], b""),
    "key that is a list": (["dict", [[["a"]]], "n"], b""),
    "namedtuple with too few values": (["named", "m", "P", ["x", "y"], "n"], b""),
    "namedtuple with a number as name": (["named", "m", "P", [1], "n"], b""),
    "namedtuple in module 5": (["named", 5, "P", ["x"], "n"], b""),
    "namedtuple with code as name": (["named", "m", "P", ["x=print('run')"], "n"], b""),
    "namedtuple with a keyword as name": (["named", "m", "P", ["class"], "n"], b""),
    "namedtuple with two fields of a name": (["named", "m", "P", ["x", "x"], "n", "n"], b""),
    "namedtuple of a bad type name": (["named", "m", "P Q", ["x"], "n"], b""),
    "dataclass of a module that is not loaded": (["data", "antigravity", "Sample", ["x"], "n"], b""),
    "dataclass that does not exist": (["data", __name__, "Missing", ["x"], "n"], b""),
    "dataclass that is a function": (["data", "builtins", "eval", ["x"], "n"], b""),
    "dataclass that is another class": (["data", "subprocess", "Popen", ["x"], "n"], b""),
    "dataclass with other fields": (["data", __name__, "Sample", ["image", "labels"], "n", "n"], b""),
    "dataclass that runs code when it goes": (["data", __name__, "Cleaning", ["path"], "n"], b""),
    "namedtuple of very many fields": (["named", "m", "P", [f"x{i}" for i in range(1025)], *"n" * 1025], b""),
    "very many namedtuples": (["list", *(["named", "m", f"P{i}", ["x"], "n"] for i in range(257))], b""),
    "keys of one hash": (["dict", [["i", hex(sys.hash_info.modulus * i)] for i in range(17)], *"n" * 17], b""),
    "one key many times": (["dict", ["a"] * 17, *"n" * 17], b""),
    "dataclass with an empty name": (["data", __name__, "", []], b""),
    "dataclass through an attribute": (["data", __name__, "sys.modules", ["x"], "n"], b""),
    "tensor that is not in the table": (["T", "float32", 0], b""),
    "scalar of an object": (["x", "|O", ""], q(8) + bytes(8)),
    "scalar of the wrong size": (["x", "<i4", ""], q(8) + bytes(8)),
    "scalar of another name": (["x", "<i4", "q"], q(4) + bytes(4)),
    "scalar of an odd name": (["x", "<i4", "O"], q(4) + bytes(4)),
    "scalar text beyond unicode": (["x", "<U1", ""], q(4) + b"\xff" * 4),
    "pickle": (["p", 0], q(4) + b"\x80\x05N."),
    "pickle with a negative count": (["p", -1], q(4) + b"\x80\x05N."),
    "pickle with buffers that are not in the table": (["p", 10**9], q(4) + b"\x80\x05N."),
}  # fmt: skip


@pytest.mark.parametrize(("tree", "values"), TREES.values(), ids=TREES)
def test_a_tree_that_no_writer_makes_is_refused(tree, values, capsys):
    with pytest.raises(FrameError):
        frame.read(forged(tree, [], values=values))
    assert capsys.readouterr().out == ""
    assert "antigravity" not in sys.modules


def test_arrays_that_the_tree_does_not_use_are_refused():
    with pytest.raises(FrameError, match="0 of 1"):
        frame.read(forged("n", [["|u1", [0], 64]]))


SCHEMAS = {
    "not json": b"[[",
    "not utf-8": b'["\xe9",[]]',
    "utf-16": '["n",[]]'.encode("utf-16"),
    "one part": b'["n"]',
    "three parts": b'["n",[],[]]',
    "float": b'["n",[["|u1",[1.0],64]]]',
    "NaN": b'["n",[NaN]]',
    "number of many digits": b'["n",[["|u1",[' + b"9" * 100_000 + b"],64]]]",
    "deep brackets": b"[" * 500_000,
    "deep brackets that close": b"[" * 250_000 + b"]" * 250_000,
    "deep tree": b'["list",' * 1000 + b'"n"' + b"]" * 1000,
    "text": b'"n,"',
    "rows as text": b'["a","abc"]',
    "rows as null": b'["n",null]',
    "nothing": b"",
    "zeros": bytes(100),
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_that_is_not_plain_json_is_refused(schema):
    with pytest.raises(FrameError):
        frame.read(forged(None, schema=schema))


def test_a_schema_beyond_the_limit_is_refused_before_it_is_parsed():
    schema = json.dumps([["list"] + ["n"] * 300_000, []]).encode()
    with pytest.raises(FrameError, match="at most"):
        frame.read(forged(None, schema=schema))


@pytest.mark.parametrize(
    "buffer",
    [
        forged(["list*", "s", 10**12], values=bytes(8)),
        forged(["list*", "b", 10**12], values=bytes(8)),
        forged("s", values=q(2**40)),
        forged(["list"] + ["a"] * 100, [["|u1", [1 << 20], 64]] * 100, arrays=bytes(1 << 20)),
        forged("a", [["|V0", [2**62], 64]]),
        forged("a", [["|S0", [2**61], 64]]),
        forged(None, schema=b"[" * (1 << 20)),
        forged(None, schema=b"[" + b"[]," * 300_000),
    ],
    ids=["texts", "bools", "text", "overlapping arrays", "items of no size", "texts of no size", "brackets", "lists"],
)
def test_memory_stays_in_proportion_to_the_buffer(buffer):
    tracemalloc.start()
    try:
        frame.read(buffer, copy=True)
    except FrameError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < (1 << 20) + 40 * len(buffer)


def test_reading_neither_imports_nor_runs_code_of_a_lazy_module(monkeypatch):
    ran = []

    class Lazy(types.ModuleType):
        def __getattribute__(self, name):
            ran.append(name)
            return super().__getattribute__(name)

    lazy = Lazy("lazy")
    eager = types.ModuleType("eager")
    eager.__getattr__ = ran.append
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    monkeypatch.setitem(sys.modules, "eager", eager)
    for module in ("lazy", "eager"):
        frame.read(forged(["named", module, "P", ["x"], "n"]))
        with pytest.raises(FrameError):
            frame.read(forged(["data", module, "Outer.P", ["x"], "n"]))
    assert ran == []


def test_reading_calls_neither_constructors_nor_factories(monkeypatch):
    def explode(*args, **kwargs):
        raise AssertionError("ran code of the class")

    for kind, name in [(Sample, "__init__"), (Sample, "__new__"), (Point, "__new__"), (Point, "_make")]:
        monkeypatch.setattr(kind, name, explode)
    trees = [
        ["data", __name__, "Sample", ["image", "label"], "n", "n"],
        ["named", __name__, "Point", ["x", "y"], "n", "n"],
    ]
    sample, point = frame.read(forged(["list", *trees]))
    assert type(sample) is Sample and (sample.image, sample.label) == (None, None)
    assert type(point) is Point and tuple(point) == (None, None)


def test_only_a_reader_that_trusts_the_writer_imports(tmp_path, monkeypatch):
    (tmp_path / "not_loaded_yet.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass Late:\n    x: int\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "not_loaded_yet", raising=False)
    buffer = forged(["data", "not_loaded_yet", "Late", ["x"], "i"], values=q(5))
    with pytest.raises(FrameError, match="not imported here"):
        frame.read(buffer)
    assert "not_loaded_yet" not in sys.modules
    assert frame.read(buffer, imports=True).x == 5
    assert frame.read(buffer).x == 5  # loaded by now


def seeds():
    batches = [
        {"image": np.arange(24, dtype=np.uint8).reshape(2, 3, 4), "label": np.arange(2), "name": ["a", "b"]},
        [None, True, 5, 2**70, 1.5, 2j, "text\ud800", b"bytes", np.str_("s"), np.float32(1), (1, 2), [1.5, 2.5]],
        {1: Point(1, Sample(np.zeros(2, [("a", "i1"), ("b", ">M8[us]", (2,))]), "x")), (None, b"k", 1.5): []},
    ]
    frames = []
    for batch in batches:
        buffer = bytearray(frame.plan(batch).frame_bytes)
        frame.plan(batch).write(buffer)
        frames.append(bytes(buffer))
    return frames


SEEDS = seeds()
places = st.integers(0, 1 << 16)
edits = st.lists(
    st.tuples(st.just("set"), places, st.integers(0, 255))
    | st.tuples(st.just("word"), places, st.sampled_from([0, 1, 63, 64, 65, 2**31, 2**32, 2**63, 2**64 - 1]))
    | st.tuples(st.just("insert"), places, st.sampled_from([b"[", b"]", b",", b'"', b"9", b"-", b'"a",', b"[]"]))
    | st.tuples(st.just("delete"), places, st.integers(1, 9)),
    min_size=1,
    max_size=4,
)


def edited(whole: bytes, changes) -> bytearray:
    """Apply edits; those that move bytes keep the header in step, so that the schema is reached."""
    buffer = bytearray(whole)
    for what, place, value in changes:
        at = place % len(buffer)
        if what == "set":
            buffer[at] = value
        elif what == "word":
            at = at // 8 * 8 % 64
            buffer[at : at + 8] = q(value)
        else:
            tail, values = struct.unpack_from("<QQ", buffer, 24)
            start = (tail + values) % len(buffer)
            at = start + place % max(1, len(buffer) - start)
            buffer[at : at + (value if what == "delete" else 0)] = b"" if what == "delete" else value
            struct.pack_into("<Q", buffer, 16, len(buffer))
            struct.pack_into("<Q", buffer, 40, max(0, len(buffer) - tail - values) % 2**64)
        if len(buffer) < 64:
            return buffer
    return buffer


def walk_through(value):
    """Touch every byte that a reader was given."""
    if isinstance(value, np.ndarray):
        value.tobytes()
    elif isinstance(value, dict):
        for item in value.items():
            walk_through(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            walk_through(item)
    elif isinstance(value, Sample):
        walk_through(vars(value))


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("whole", SEEDS, ids=["arrays", "values", "classes"])
def test_any_one_byte_changed_gives_a_batch_or_a_frame_error(whole, copy):
    refused = 0
    for at in range(len(whole)):
        for change in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            buffer = bytearray(whole)
            buffer[at] ^= change
            try:
                walk_through(frame.read(buffer, copy=copy))
            except FrameError:
                refused += 1
    assert refused > 64 * 9  # the whole header, and much of the schema


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(SEEDS), edits, st.booleans())
def test_changed_bytes_give_a_batch_or_a_frame_error(whole, changes, copy):
    try:
        batch = frame.read(edited(whole, changes), copy=copy)
    except FrameError:
        return
    walk_through(batch)


@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=100))
def test_random_schemas_and_values_give_a_batch_or_a_frame_error(schema, values):
    try:
        frame.read(forged(None, schema=schema, values=values))
    except FrameError:
        pass


atoms = st.sampled_from(
    ["a", "n", "i", "s", "y", "I", "x", "list", "dict", "list*", "named", "data", "T", "p", "<i4", "m", "x"]
)
junk = st.recursive(
    atoms | st.integers(-2, 70) | st.none() | st.booleans(), lambda j: st.lists(j, max_size=6), max_leaves=12
)


@settings(deadline=None, max_examples=400)
@given(junk, st.lists(junk, max_size=3), st.binary(max_size=40))
def test_random_trees_and_tables_give_a_batch_or_a_frame_error(tree, rows, values):
    try:
        walk_through(frame.read(forged(tree, rows, values=values, arrays=bytes(64))))
    except FrameError:
        pass
