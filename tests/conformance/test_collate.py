"""The default collate, in a worker and in the main process: every kind of leaf and of container.

Of torch's own suite: TestDataLoader's numpy arrays and scalars, bad numpy types, container types, ragged sequences and
default conversion; TestDataLoaderDeviceType's nested tensors; TestStringDataLoader.

Each pass here makes one batch for each case, and what fails is raised at its place.
"""

import collections
import dataclasses
import enum
import types

import numpy as np
import pytest
import torch

from conformance.data import Point, Samples
from conformance.expect import drain, either, same

FLOATS = ["float16", "bfloat16", "float32", "float64"]
TENSOR_DTYPES = [
    *FLOATS,
    *["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "complex64", "complex128"],
    *["float8_e4m3fn", "float8_e5m2"],
]
ARRAY_DTYPES = "? b B h H i I l L e f d F D".split()
SCALARS = [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8, np.bool_, np.complex64]


@dataclasses.dataclass
class Record:
    x: int


class Bag(dict):
    """A dict that cannot be made without an argument."""

    def __init__(self, name, **items):
        super().__init__(**items)
        self.name = name


class Row(list):
    """A list with an attribute of its own."""

    tag = "none"


class Frozen(collections.abc.Mapping):
    """A mapping that cannot be changed."""

    def __init__(self, items):
        self.items_ = dict(items)

    def __getitem__(self, key):
        return self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


class Color(enum.IntEnum):
    RED = 1
    BLUE = 2


def t(*values, dtype=None):
    return torch.tensor(list(values), dtype=dtype)


def tagged(*values):
    row = Row(values)
    row.tag = "kept"
    return row


GIVEN = {  # name: (samples, their batch)
    "float": ([1.5, 2], t(1.5, 2.0, dtype=torch.float64)),
    "int": ([1, -2], t(1, -2)),
    "int of 63 bits": ([2**63 - 1, -(2**63)], t(2**63 - 1, -(2**63))),
    "bool": ([True, False], t(True, False)),
    "bool, then int": ([True, 2], t(1, 2)),
    "int, then bool": ([2, True], t(2, 1)),
    "int, then float": ([1, 2.5], t(1, 2.5)),
    "enum": ([Color.RED, Color.BLUE], t(1, 2)),
    "nan": ([float("inf"), -0.0], t(float("inf"), -0.0, dtype=torch.float64)),
    "str": (["a", "ü\N{PILE OF POO}"], ["a", "ü\N{PILE OF POO}"]),
    "bytes": ([b"", b"\0a\0"], [b"", b"\0a\0"]),
    "numpy str": ([np.str_("a"), np.str_("b")], [np.str_("a"), np.str_("b")]),
    "str in a tuple": ([("a", 1), ("b", 2)], [("a", "b"), t(1, 2)]),
    "str in a list": ([["a", 1], ["b", 2]], [("a", "b"), t(1, 2)]),
    "str in a dict": ([{"s": "a"}, {"s": "b"}], {"s": ["a", "b"]}),
    "str in a named tuple": ([Point("a", b"x"), Point("b", b"y")], Point(("a", "b"), (b"x", b"y"))),
    "str in a dict in a tuple": ([({"s": "a"},), ({"s": "b"},)], [{"s": ["a", "b"]}]),
    "tuple": ([(1, 2.0), (3, 4.0)], [t(1, 3), t(2.0, 4.0, dtype=torch.float64)]),
    "list": ([[1, 2], [3, 4]], [t(1, 3), t(2, 4)]),
    "named tuple": ([Point(1, Point(2, 3)), Point(4, Point(5, 6))], Point(t(1, 4), Point(t(2, 5), t(3, 6)))),
    "dict": ([{"b": 1, "a": (2,)}, {"a": (4,), "b": 3}], {"b": t(1, 3), "a": [t(2, 4)]}),
    "dict with other keys": ([{1: 1, ("x", 2): 2, None: 3}] * 2, {1: t(1, 1), ("x", 2): t(2, 2), None: t(3, 3)}),
    "dict with keys more later": ([{"a": 1}, {"a": 2, "b": 3}], {"a": t(1, 2)}),
    "ordered dict": (
        [collections.OrderedDict(b=1, a=2)] * 2,
        collections.OrderedDict(b=t(1, 1), a=t(2, 2)),
    ),
    "default dict": ([collections.defaultdict(int, a=1)] * 2, collections.defaultdict(int, a=t(1, 1))),
    "user dict": ([collections.UserDict(a=1)] * 2, collections.UserDict(a=t(1, 1))),
    "dict of another constructor": ([Bag("n", a=1)] * 2, Bag("n", a=t(1, 1))),
    "frozen mapping": ([Frozen({"a": 1})] * 2, Frozen({"a": t(1, 1)})),
    "user list": ([collections.UserList([1, 2])] * 2, collections.UserList([t(1, 1), t(2, 2)])),
    "list with an attribute": ([tagged(1, 2), tagged(3, 4)], tagged(t(1, 3), t(2, 4))),
    "deque": ([collections.deque([1, 2])] * 2, collections.deque([t(1, 1), t(2, 2)])),
    "range": ([range(2), range(2)], [t(0, 0), t(1, 1)]),
    "no fields": ([{}, {}], {}),
    "no items": ([[], []], []),
    "empty tuple": ([(), ()], []),
    "one sample": ([{"a": [1, (2.0, "x")]}], {"a": [t(1), [t(2.0, dtype=torch.float64), ("x",)]]}),
    "array": ([np.full((2, 3), 1.5), np.full((2, 3), 2.5)], torch.stack([torch.full((2, 3), v).double() for v in (1.5, 2.5)])),
    "array without dimensions": ([np.array(3), np.array(4)], t(3, 4)),
    "array in fortran order": ([np.arange(6).reshape(2, 3, order="F")] * 2, torch.tensor([[[0, 2, 4], [1, 3, 5]]] * 2)),
    "array with gaps": ([np.arange(6)[::2]] * 2, torch.tensor([[0, 2, 4]] * 2)),
    "array of no items": ([np.zeros((0, 4), np.float32)] * 3, torch.zeros(3, 0, 4)),
    "tensor without dimensions": ([torch.tensor(1.5), torch.tensor(2.5)], t(1.5, 2.5)),
    "tensor of no items": ([torch.zeros(2, 0)] * 2, torch.zeros(2, 2, 0)),
    "transposed tensor": ([torch.arange(6).reshape(2, 3).T] * 2, torch.arange(6).reshape(2, 3).T.expand(2, 3, 2).clone()),
    "expanded tensor": ([torch.ones(1).expand(3)] * 2, torch.ones(2, 3)),
    "scalar, array and tensor mixed": ([np.float32(1), torch.tensor(2.0)], None),
    "nested": (
        [{"a": [(t(1.0), {"b": (2, "s")})]}] * 2,
        {"a": [[torch.ones(2, 1), {"b": [t(2, 2), ("s", "s")]}]]},
    ),
    "scalar of eight bits, then wider": ([np.int8(1), np.int16(300)], None),
    "array, then one of a narrower dtype": ([np.ones(2), np.ones(2, np.float32)], torch.ones(2, 2).double()),
}

REFUSED = {  # name: (samples, error, text)
    "none": ([None, None], TypeError, "default_collate: batch must contain"),
    "none in a dict": ([{"a": None}] * 2, TypeError, "default_collate: batch must contain"),
    "none later": ([1, None], (TypeError, RuntimeError), None),
    "object": ([object(), object()], TypeError, "default_collate: batch must contain"),
    "complex number": ([1j, 2j], TypeError, "default_collate: batch must contain"),
    "set": ([{1}, {2}], TypeError, "default_collate: batch must contain"),
    "data class": ([Record(1), Record(2)], TypeError, "default_collate: batch must contain"),
    "array of str": ([np.array(["a", "b"])] * 2, TypeError, "default_collate: batch must contain"),
    "array of bytes": ([np.array([b"a", b"b"])] * 2, TypeError, "default_collate: batch must contain"),
    "array of objects": ([np.array([object(), 1], object)] * 2, TypeError, "default_collate: batch must contain"),
    "array of times": ([np.array(["2020-01-01"], "M8[D]")] * 2, TypeError, None),
    "array of records": ([np.zeros(2, [("a", "i4")])] * 2, TypeError, None),
    "time": ([np.datetime64("2020-01-01")] * 2, TypeError, None),
    "array of foreign byte order": ([np.ones(2, ">f4")] * 2, (TypeError, ValueError), "byte order"),
    "int of 64 bits": ([2**63, 1], (RuntimeError, ValueError, OverflowError), None),
    "unequal lists": ([[1, 2], [1]], RuntimeError, "each element in list of batch should be of equal size"),
    "unequal tuples": ([(1,), (1, 2)], RuntimeError, "each element in list of batch should be of equal size"),
    "unequal arrays": ([np.ones(2), np.ones(3)], RuntimeError, "stack expects each tensor to be equal size"),
    "unequal tensors": ([torch.ones(2), torch.ones(2, 1)], RuntimeError, "stack expects each tensor to be equal size"),
    "unequal in a dict": ([{"a": torch.ones(2)}, {"a": torch.ones(3)}], RuntimeError, "stack expects each tensor"),
    "missing key": ([{"a": 1}, {"b": 1}], KeyError, "a"),
    "mapping, then not": ([{"a": 1}, 1], TypeError, None),
    "tensor, then number": ([torch.ones(2), 1.0], (TypeError, AttributeError), None),
    "sparse tensor": ([torch.eye(2).to_sparse()] * 2, RuntimeError, "sparse tensors are not currently supported"),
    "nested tensor": (
        [torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)] * 2,
        RuntimeError,
        "not currently supported by the default collate_fn",
    ),
    "proxy of a dict": ([{"a": types.SimpleNamespace()}] * 2, TypeError, "default_collate: batch must contain"),
}

# A worker stacks into a tensor that is made like the first sample, the main process does not. Ours makes it in another way, which
# does not fail.
DEPENDS = {  # name: (samples, batch of the main process, of torch's worker, of ours)
    "conjugated tensor": ([t(1 + 2j).conj()] * 2, t(1 - 2j, 1 - 2j)[:, None], RuntimeError, t(1 - 2j, 1 - 2j)[:, None]),
    "negated tensor": ([t(1 + 2j).conj().imag] * 2, t(-2.0, -2.0)[:, None], RuntimeError, t(-2.0, -2.0)[:, None]),
    "wider dtype": ([np.ones(1, np.float32), np.ones(1)], torch.ones(2, 1).double(), torch.ones(2, 1), torch.ones(2, 1)),
    "ints, then floats": ([t(1), t(1.5)], t(1.0, 1.5)[:, None], TypeError, TypeError),
    "bools, then ints": ([t(True), t(2)], t(1, 2)[:, None], TypeError, TypeError),
}

GIVEN |= {
    f"tensor of {name}": (
        [torch.tensor([[0, 1], [2, 3]]).to(getattr(torch, name))] * 2,
        torch.tensor([[[0, 1], [2, 3]]] * 2).to(getattr(torch, name)),
    )
    for name in TENSOR_DTYPES
}
GIVEN |= {
    f"array of {np.dtype(code).name}": (
        [np.array([0, 1, 2]).astype(code), np.array([3, 4, 0]).astype(code)],
        torch.from_numpy(np.array([[0, 1, 2], [3, 4, 0]]).astype(code)),
    )
    for code in ARRAY_DTYPES
}
GIVEN |= {
    f"numpy {kind.__name__}": ([kind(1), kind(0)], torch.from_numpy(np.array([1, 0]).astype(kind))) for kind in SCALARS
}
CASES = {name: row[0] for rows in (GIVEN, REFUSED, DEPENDS) for name, row in rows.items()}


@pytest.fixture(scope="module", params=[False, True], ids=["in_process", "in_a_worker"])
def in_worker(request):
    return request.param


@pytest.fixture(scope="module")
def outcomes(Loader, in_worker):
    """What came of each case: a batch, or an exception."""
    samples, batches = [], []
    for case in CASES.values():
        batches.append(list(range(len(samples), len(samples) + len(case))))
        samples += case
    found = drain(iter(Loader(Samples(samples), batch_sampler=batches, num_workers=int(in_worker))))
    assert len(found) == len(CASES)
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("case", GIVEN)
def test_a_batch_of(outcomes, case):
    samples, expected = GIVEN[case]
    if expected is None:  # whatever torch makes of it
        expected = torch.utils.data.default_collate(samples)
    assert_batch(outcomes[case], expected)


@pytest.mark.parametrize("case", REFUSED)
def test_a_batch_is_refused_of(outcomes, case):
    _, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        if isinstance(outcomes[case], Exception):
            raise outcomes[case]


@pytest.mark.parametrize("case", DEPENDS)
def test_what_depends_on_who_makes_the_batch(Loader, outcomes, case, in_worker):
    _, expected, of_torchs_worker, of_ours = DEPENDS[case]
    if in_worker:
        expected = either(Loader, torch=of_torchs_worker, ringbuf=of_ours)
    if isinstance(expected, type):
        assert isinstance(outcomes[case], expected)
    else:
        assert_batch(outcomes[case], expected)


def assert_batch(batch, expected):
    if isinstance(batch, Exception):
        raise batch
    assert same(batch, expected), f"{batch!r} is not {expected!r}"


def test_attributes_of_containers_are_kept(outcomes):
    assert outcomes["list with an attribute"].tag == "kept"
    assert outcomes["dict of another constructor"].name == "n"
    assert outcomes["default dict"].default_factory is int
    assert list(outcomes["dict"]) == ["b", "a"]


def test_bits_are_kept(outcomes):
    inf, zero = outcomes["nan"].tolist()
    assert inf == float("inf") and str(zero) == "-0.0"
