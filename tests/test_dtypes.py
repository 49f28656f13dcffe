"""Specs of dtypes: what numpy's own strings lose is spelled out, what has no bytes of its own is refused."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from ringbuf.dtypes import dtype_of, spec_of


def round_trip(dtype):
    return dtype_of(json.loads(json.dumps(spec_of(np.dtype(dtype)))))


@pytest.mark.parametrize(
    ("dtype", "spec"),
    [
        ("f4", "<f4"),
        (">U3", ">U3"),
        ("?", "|b1"),
        ("M8[25us]", "<M8[25us]"),
        ("V8", "|V8"),
        (
            np.dtype([(("title", "a"), "i1"), ("b", "f8", (2,))], align=True),
            ("struct", 24, 1, ("a", "title", 0, "|i1", ()), ("b", None, 8, "<f8", (2,))),
        ),
        ([("in", [("x", ">i2")])], ("struct", 2, 0, ("in", None, 0, ("struct", 2, 0, ("x", None, 0, ">i2", ())), ()))),
    ],
    ids=str,
)
def test_a_spec_is_plain_data(dtype, spec):
    assert spec_of(np.dtype(dtype)) == spec
    hash(spec)


def test_titles_alignment_and_padding_survive():
    inner = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    dtype = np.dtype([(("the title", "in"), inner), ("c", "i1")], align=True)
    again = round_trip(dtype)
    assert repr(again) == repr(dtype)
    assert again.isalignedstruct and again["in"].isalignedstruct
    assert again.fields["the title"][2] == "the title"


def test_metadata_and_the_scalar_type_of_a_record_are_dropped():
    assert round_trip(np.dtype("i4", metadata={"unit": "mm"})).metadata is None
    assert round_trip(np.dtype((np.record, [("a", "i4")]))).type is np.void


def test_ml_dtypes_go_by_name():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="a package of its own")
    assert spec_of(np.dtype(ml_dtypes.bfloat16)) == "ml_dtypes.bfloat16"
    names = [name for name, kind in vars(ml_dtypes).items() if isinstance(kind, type) and issubclass(kind, np.generic)]
    assert "int4" in names and "float8_e5m2" in names
    for name in names:
        dtype = np.dtype(getattr(ml_dtypes, name))
        assert round_trip(dtype) == dtype and round_trip(dtype).type is dtype.type
    with pytest.raises(TypeError, match="byte order"):
        spec_of(np.dtype(ml_dtypes.bfloat16).newbyteorder(">"))


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("O", "object arrays hold pointers"),
        (np.dtypes.StringDType(), "variable-width strings"),
        ([("a", "i4"), ("b", "O")], "field 'b': object"),
        ([("a", [("b", "O", 3)], 2)], "field 'a': field 'b': object"),
        ([((5, "a"), "i4")], "title 5"),
        (("i4", [("low", "i2"), ("high", "i2")]), "field names to a 'i' number"),
    ],
    ids=str,
)
def test_a_dtype_without_bytes_of_its_own_is_refused(dtype, words):
    with pytest.raises(TypeError, match=words):
        spec_of(np.dtype(dtype))


def nested(depth):
    dtype = np.dtype("i4")
    for _ in range(depth):
        dtype = np.dtype([("a", dtype)])
    return dtype


def test_sixteen_nested_structs_are_enough():
    assert round_trip(nested(16)) == nested(16)
    with pytest.raises(TypeError, match="16 deep"):
        spec_of(nested(17))


@settings(deadline=None)
@given(hnp.array_dtypes(hnp.scalar_dtypes(), max_size=4) | hnp.nested_dtypes())
def test_any_dtype_round_trips(dtype):
    dtype = dtype if dtype.subdtype is None else np.dtype([("a", dtype)])
    again = round_trip(dtype)
    assert repr(again) == repr(dtype) and again == dtype and again.itemsize == dtype.itemsize
