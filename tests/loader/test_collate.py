"""Samples into batches: the rules of torch's default_collate, on arrays."""

import collections
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

from ringbuf.loader.collate import Stack, default_collate, default_convert

torch = pytest.importorskip("torch", reason="the oracle of these tests is torch")
torch_collate = torch.utils.data.default_collate

Point = namedtuple("Point", "x y")


class MyDict(dict):
    pass


class Strict(collections.abc.Mapping):
    """A mapping that can be made of nothing but itself."""

    def __init__(self):
        self._data = {"a": 1.0}

    def __getitem__(self, key):
        return self._data[key]

    def __iter__(self):
        return iter(self._data)

    def __len__(self):
        return len(self._data)


class MyList(list):
    def __init__(self, label):
        super().__init__([0, 0])
        self.label = label


def as_arrays(batch):
    """A batch of torch's, with arrays for tensors; containers as they are."""
    if isinstance(batch, torch.Tensor):
        return batch.numpy()
    if isinstance(batch, collections.abc.Mapping):
        return {key: as_arrays(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(as_arrays, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(as_arrays, batch)) if type(batch) in (list, tuple) else list(map(as_arrays, batch))
    return batch


def assert_same(got, want):
    if isinstance(want, np.ndarray):
        assert isinstance(got, np.ndarray)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert np.array_equal(got, want, equal_nan=got.dtype.kind == "f")
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            assert_same(got[key], want[key])
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for one, other in zip(got, want):
            assert_same(one, other)
    else:
        assert got == want


AGREED = {
    "float32 arrays": [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)],
    "0-d arrays": [np.array(3.5), np.array(4.5)],
    "empty arrays": [np.empty((0, 4), np.int16), np.empty((0, 4), np.int16)],
    "Fortran order": [np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6).reshape(2, 3)],
    "bool arrays": [np.array([True, False]), np.array([False, False])],
    "unsigned": [np.uint16([1, 2]), np.uint16([3, 4])],
    "half": [np.float16([1.5]), np.float16([2.5])],
    "complex": [np.complex64([1j]), np.complex64([2])],
    "numpy scalars": [np.float32(1.5), np.float32(2.5)],
    "numpy bool": [np.bool_(True), np.bool_(False)],
    "numpy int8": [np.int8(1), np.int8(-1)],
    "python float": [1.5, 2],
    "python int": [1, -(2**62)],
    "python bool": [True, False],
    "strings": ["a", "ü\0"],
    "bytes": [b"", b"\0a\0"],
    "dict": [{"x": 1, "y": np.ones(2)}, {"y": np.zeros(2), "x": 2, "z": 9}],
    "dict of strings": [{"s": "a"}, {"s": "b"}],
    "int keys": [{1: 1.0, (2, 3): 2.0}] * 2,
    "tuple": [(1, "a", b"b", np.ones(1)), (2, "c", b"d", np.zeros(1))],
    "list": [[1, "a"], [2, "b"]],
    "named tuple": [Point(1, "a"), Point(2, "b")],
    "nested": [{"p": Point((1, [2.0]), {"q": "r"})}] * 3,
    "empty tuple": [(), ()],
    "empty list": [[], []],
    "empty dict": [{}, {}],
    "range": [range(2), range(2, 4)],
    "one sample": [np.arange(3)],
}


@pytest.mark.parametrize("samples", AGREED.values(), ids=AGREED.keys())
def test_a_batch_equals_torchs(samples):
    want = torch_collate(samples)
    got = default_collate(samples)
    assert type(got) is type(want) or isinstance(want, torch.Tensor)
    assert_same(got, as_arrays(want))


CONTAINERS = {
    "OrderedDict": [OrderedDict(b=1, a=2)] * 2,
    "defaultdict": [defaultdict(int, a=1)] * 2,
    "dict subclass": [MyDict(a=1)] * 2,
    "mapping that cannot be rebuilt": [Strict(), Strict()],
    "named tuple": [Point(1, 2)] * 2,
    "list subclass": [MyList("here"), MyList("there")],
    "tuple inside": [[(1, 2)], [(3, 4)]],
    "string in tuple": [("a",), ("b",)],
    "string in list": [["a"], ["b"]],
    "string in dict": [{"a": "b"}] * 2,
}


@pytest.mark.parametrize("samples", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_containers_keep_the_types_that_torch_keeps(samples):
    def types(batch):
        if isinstance(batch, collections.abc.Mapping):
            return type(batch), [types(value) for value in batch.values()]
        if isinstance(batch, (list, tuple)):
            return type(batch), [types(value) for value in batch]
        return "array" if isinstance(batch, (np.ndarray, torch.Tensor)) else type(batch)

    assert types(default_collate(samples)) == types(torch_collate(samples))


def test_what_else_a_container_carries_is_kept():
    assert default_collate([MyList("here"), MyList("there")]).label == "here"
    assert default_collate([defaultdict(list, a=1)]).default_factory is list


@pytest.mark.parametrize(
    "samples",
    [
        [None, None],
        [{"a": None}],
        [{1, 2}],
        [object()],
        [1j, 2j],
        [dataclass(type("D", (), {}))()],
        [np.array([None])],
        [{"a": np.array(["x", 1], object)}],
    ],
    ids=lambda samples: type(samples[0]).__name__ if type(samples[0]) is object else repr(samples),
)
def test_what_torch_refuses_is_a_type_error(samples):
    with pytest.raises(TypeError):
        torch_collate(samples)
    with pytest.raises(TypeError):
        default_collate(samples)


@pytest.mark.parametrize(
    ("samples", "path"),
    [
        ([{"x": [1, None]}], r"batch\['x'\]\[1\]"),
        ([{"x": {"y": np.array([None])}}], r"batch\['x'\]\['y'\]"),
        ([{"x": 1}, {"x": None}], r"batch\['x'\]"),
        ([{"x": 1.5}, {"x": "1.5"}], r"batch\['x'\]"),
        ([np.zeros(2), np.array([1, "a"], object)], "batch has dtype object"),
        ([{"x": np.ma.masked_array([1, 2], [True, False])}], r"batch\['x'\] is a masked array"),
        ([np.zeros(2, [("a", object)])], "pointers"),
    ],
)
def test_a_type_error_names_the_path(samples, path):
    with pytest.raises(TypeError, match=path):
        default_collate(samples)


def test_none_is_refused_with_torchs_words():
    with pytest.raises(TypeError, match="default_collate: batch must contain"):
        default_collate([None])


def test_ragged_arrays_name_the_field_both_shapes_and_both_samples():
    stack = Stack({"x": np.zeros((2, 3))}, rows=2, indices=[40, 70])
    stack.allocate(np.empty)
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size") as caught:
        stack.fill([{"x": np.zeros((2, 3))}, {"x": np.zeros((2, 4))}])
    for part in ("batch['x']", "(2, 3)", "(2, 4)", "sample 40", "sample 70"):
        assert part in str(caught.value)


def test_sequences_of_unequal_length_are_refused():
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size") as caught:
        default_collate([{"x": [1, 2]}, {"x": [1]}])
    assert "batch['x']" in str(caught.value)


def test_a_missing_key_is_a_key_error():
    with pytest.raises(KeyError, match="y"):
        default_collate([{"x": 1, "y": 2}, {"x": 1}])


def test_no_samples_are_an_index_error_as_in_torch():
    with pytest.raises(IndexError):
        torch_collate([])
    with pytest.raises(IndexError, match="no samples"):
        default_collate([])


@pytest.mark.parametrize(
    "dtype", ["M8[ns]", "M8[25us]", "m8[s]", ">f4", ">i2", [("a", "i4"), ("b", "f8", 2)], "S3", "V5"]
)
def test_dtypes_that_torch_lacks_are_kept(dtype):
    samples = [np.zeros(2, dtype), np.frombuffer(bytes(range(64)), dtype, 2)]
    batch = default_collate(samples)
    assert batch.dtype == np.dtype(dtype)
    assert [row.tobytes() for row in batch] == [sample.tobytes() for sample in samples]


def test_arrays_may_run_backwards():
    batch = default_collate([np.arange(3)[::-1], np.arange(3)])
    assert batch.tolist() == [[2, 1, 0], [0, 1, 2]]
    assert batch.strides == (24, 8)


def test_not_a_time_stays_where_it_was():
    batch = default_collate([np.datetime64("NaT", "s"), np.datetime64("2020-01-01", "s")])
    assert batch.dtype == "M8[s]"
    assert np.isnat(batch).tolist() == [True, False]


def test_later_samples_of_a_wider_dtype_widen_the_column():
    batch = default_collate([{"x": np.int32([1])}, {"x": np.float64([0.5])}, {"x": np.int32([3])}])
    assert batch["x"].dtype == np.float64
    assert batch["x"].tolist() == [[1.0], [0.5], [3.0]]


def test_longer_strings_are_not_cut():
    assert default_collate([np.array(["a"]), np.array(["abc"])]).tolist() == [["a"], ["abc"]]


def test_dtypes_without_a_common_one_are_refused_with_the_path():
    with pytest.raises(TypeError, match=r"batch\['x'\].*int64.*datetime64"):
        default_collate([{"x": np.zeros(1, np.int64)}, {"x": np.zeros(1, "M8[s]")}])


def test_ints_and_floats_mix_without_being_cut():
    assert default_collate([1, 2.5]).tolist() == [1.0, 2.5]


@pytest.mark.parametrize("value", [2**63, 2**70, -(2**64)])
def test_an_int_beyond_64_bits_is_an_overflow(value):
    with pytest.raises(OverflowError, match=str(value)):
        default_collate([{"x": 1}, {"x": value}])


def test_arrays_of_subclasses_become_plain():
    batch = default_collate([np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])] * 2)
    assert type(batch) is np.ndarray
    assert batch["b"].tolist() == [[2.0], [2.0]]


def test_tensors_count_as_arrays():
    batch = default_collate([{"x": torch.ones(2, requires_grad=True)}, {"x": torch.zeros(2)}])
    assert type(batch["x"]) is np.ndarray
    assert batch["x"].tolist() == [[1, 1], [0, 0]]


def test_a_sparse_tensor_is_refused():
    with pytest.raises(TypeError, match=r"batch\['x'\] is a nested or sparse tensor"):
        default_collate([{"x": torch.ones(2).to_sparse()}])


def test_samples_may_share_one_buffer():
    buffer = np.zeros(3)

    def samples():
        for row in range(4):
            buffer[:] = row
            yield buffer

    stack = Stack(buffer, rows=4)
    stack.allocate(np.empty)
    stack.fill(samples())
    assert stack.finish().tolist() == [[row] * 3 for row in range(4)]


def test_fewer_rows_than_expected_leave_no_tail():
    stack = Stack({"x": np.zeros(2), "y": 1}, rows=10)
    stack.allocate(np.empty)
    stack.fill({"x": np.full(2, row), "y": row} for row in range(3))
    batch = stack.finish()
    assert batch["x"].shape == (3, 2)
    assert batch["y"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("samples", AGREED.values(), ids=AGREED.keys())
def test_the_estimate_covers_the_arrays(samples):
    stack = Stack(samples[0], rows=len(samples))
    sizes = []

    def empty(shape, dtype):
        array = np.empty(shape, dtype)
        sizes.append(array.nbytes)
        return array

    stack.allocate(empty)
    assert sum(sizes) <= stack.nbytes()


# ---- default_convert --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sample",
    [
        {"a": np.arange(2), "b": ("c", 1, 2.5, None)},
        [1, "x"],
        Point(np.zeros(1), b"b"),
        OrderedDict(a=[1]),
        "text",
        range(3),
    ],
    ids=repr,
)
def test_converting_a_sample_keeps_what_torch_keeps(sample):
    want = torch.utils.data.default_convert(sample)
    got = default_convert(sample)
    assert type(got) is type(want)
    assert_same(got, as_arrays(want))


def test_a_converted_sample_shares_no_memory():
    sample = {"x": [np.arange(3)]}
    converted = default_convert(sample)
    sample["x"][0][:] = 9
    assert converted["x"][0].tolist() == [0, 1, 2]


def test_converting_lets_other_objects_through():
    thing = object()
    assert default_convert({"a": thing, "b": None}) == {"a": thing, "b": None}


# ---- large rows, which are copied as bytes ----------------------------------------------------------------------

LARGE = (3, 40, 40)
LAYOUTS = {
    "C order": lambda array: array,
    "Fortran order": np.asfortranarray,
    "transposed": lambda array: np.ascontiguousarray(array.T).T,
    "backwards": lambda array: array[::-1, :, ::-1].copy()[::-1, :, ::-1],
    "broadcast": lambda array: np.broadcast_to(array[:1], array.shape),
    "strided": lambda array: array.repeat(2, axis=2)[:, :, ::2],
    "read-only": lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
}


@pytest.mark.parametrize("dtype", ["f4", "u1", "c16", "?", ">f4", "M8[s]", "f2", [("a", "i4"), ("b", "f8", 2)]], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("later", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_large_rows_of_any_layout_arrive_equal(dtype, layout, later):
    dtype = np.dtype(dtype)
    content = np.random.default_rng(1).integers(0, 2, (2, *LARGE, dtype.itemsize), np.uint8)
    samples = [layout(content[0].view(dtype)[..., 0]), later(content[1].view(dtype)[..., 0])]
    batch = default_collate(samples)
    assert batch.dtype == dtype
    assert np.ascontiguousarray(batch[0]).tobytes() == np.ascontiguousarray(samples[0]).tobytes()
    assert np.ascontiguousarray(batch[1]).tobytes() == np.ascontiguousarray(samples[1]).tobytes()


@pytest.mark.parametrize(("first", "second"), [("f4", "f8"), ("f8", "f4"), ("i2", "f4"), ("<f4", ">f4"), (">i4", "<i4")])
def test_large_rows_of_several_dtypes_are_converted(first, second):
    values = np.arange(5000) % 100
    batch = default_collate([values.astype(first), values.astype(second), values.astype(first)])
    assert batch.dtype == np.result_type(first, second)
    assert (batch == values).all()


def test_a_batch_beyond_the_caches_arrives_equal():
    samples = [np.full((1024, 1024), value, np.uint8) for value in range(9)]
    batch = default_collate(samples)
    assert [np.unique(row).tolist() for row in batch] == [[value] for value in range(9)]
