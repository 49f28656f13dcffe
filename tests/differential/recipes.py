"""Samples as data: a recipe makes the same sample whenever it gets the same random numbers, in whatever process.

A recipe is small, prints as the code that makes it, and pickles.
"""

from __future__ import annotations

import collections
import functools
import tempfile
from collections import OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

__all__ = [
    "ARRAY_DTYPES", "ARRAY_FORMS", "CONTAINERS", "TENSOR_DTYPES", "TENSOR_FORMS", "THINGS", "Array", "Box", "Tensor", "Thing",
]  # fmt: skip

TENSOR_DTYPES = [
    "float32", "int64", "uint8", "bool", "int8", "int16", "int32", "uint16", "uint32", "uint64", "float16", "float64",
    "complex64", "complex128", "bfloat16", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
]  # fmt: skip
TENSOR_FORMS = [
    "plain", "transposed", "every second", "expanded", "channels last", "part", "grad", "parameter", "subclass", "conj", "neg",
    "sparse", "nested", "labelled",
]  # fmt: skip
# torch's workers cannot send subclasses of tensors of these.
WITHOUT_STORAGE = {"uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"}
STRUCTURED = np.dtype([("a", "<i2"), ("b", "<f4", (2,))])
ARRAY_DTYPES = [
    "float32", "int64", "uint8", "bool", "int8", "int16", "int32", "uint16", "uint32", "uint64", "float16", "float64",
    "complex64", "complex128", "longdouble", "clongdouble", "longlong", "ulonglong", ">i4", ">f8", "S3", "U3", "O", "M8[s]",
    "m8[ms]", "structured", "V4",
]  # fmt: skip
ARRAY_FORMS = [
    "plain", "fortran", "backwards", "every second", "read-only", "memmap", "subclass", "broadcast", "unaligned", "masked",
]  # fmt: skip


class Labelled(torch.Tensor):
    """A subclass that survives operations."""


class Picture(np.ndarray):
    pass


class MyDict(dict):
    label = None


class MyList(list):
    label = None


class MyTuple(tuple):
    pass


class MyStr(str):
    pass


class MyInt(int):
    pass


class MyFloat(float):
    pass


class MyOrdered(OrderedDict):
    pass


class Frozen(Mapping):
    """A mapping that cannot be changed, and can be made anew."""

    def __init__(self, content):
        self.content = dict(content)

    def __getitem__(self, key):
        return self.content[key]

    def __iter__(self):
        return iter(self.content)

    def __len__(self):
        return len(self.content)


class Stubborn(Frozen):
    """One that cannot be made anew of what it holds."""

    def __init__(self, content, more):
        super().__init__(content)
        self.more = more


class Row(Sequence):
    """A sequence that cannot be changed, and can be made anew."""

    def __init__(self, items):
        self.items = tuple(items)

    def __getitem__(self, index):
        return self.items[index]

    def __len__(self):
        return len(self.items)


Pair = namedtuple("Pair", "first second", defaults=(None, None))


class Typed(NamedTuple):
    first: Any = 0
    second: Any = 1


class Child(Typed):
    """A subclass of a named tuple, with a dict of its own."""


@dataclass
class Data:
    first: Any = 0
    second: Any = 1


class Opaque:
    """Nothing that a loader knows."""

    def __init__(self, content):
        self.content = content


@dataclass(frozen=True)
class Tensor:
    dtype: str = "float32"
    shape: tuple = (2,)
    form: str = "plain"

    def make(self, random):
        dtype, shape, form = getattr(torch, self.dtype), self.shape, self.form
        if form == "transposed":
            return _tensor(random, dtype, shape[::-1]).permute(*reversed(range(len(shape))))
        if form == "every second" and shape:
            return _tensor(random, dtype, (*shape[:-1], 2 * shape[-1]))[..., ::2]
        if form == "expanded" and shape:
            return _tensor(random, dtype, (1, *shape[1:])).expand(shape)
        if form == "channels last" and len(shape) == 4:
            n, c, h, w = shape
            return _tensor(random, dtype, (n, h, w, c)).permute(0, 3, 1, 2)
        if form == "part":
            return _tensor(random, dtype, (3, *shape))[1]
        tensor = _tensor(random, dtype, shape)
        if form == "grad" and (dtype.is_floating_point or dtype.is_complex):
            return tensor.requires_grad_()
        if form == "parameter":
            return torch.nn.Parameter(tensor, requires_grad=dtype in (torch.float32, torch.float64))
        if form == "subclass" and self.dtype not in WITHOUT_STORAGE:
            return tensor.as_subclass(Labelled)
        if form == "conj" and dtype in (torch.complex64, torch.complex128):
            return tensor.conj()
        if form == "neg" and dtype in (torch.complex64, torch.complex128):
            return tensor.conj().imag
        if form == "sparse" and dtype is torch.float32 and shape:
            return torch.eye(2).to_sparse()
        if form == "nested" and dtype is torch.float32:
            return torch.nested.nested_tensor([tensor.reshape(-1), torch.ones(2)])
        if form == "labelled":
            tensor.label = "not a part of it"
        return tensor


def _bytes(random, count):
    """Any bytes; or such that make infinities, zeros of both signs, and NaN of all kinds."""
    if random.random() < 0.5:
        return np.frombuffer(random.bytes(count), np.uint8).copy()
    return random.choice(np.array([0, 0, 1, 0x7F, 0x80, 0xFF], np.uint8), count)


def _tensor(random, dtype, shape):
    count = int(np.prod(shape, dtype=int))
    if dtype is torch.bool:
        return torch.from_numpy(random.integers(0, 2, shape).astype(bool).reshape(shape))
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    raw = _bytes(random, count * dtype.itemsize)
    return torch.from_numpy(raw).view(dtype).reshape(shape)


@dataclass(frozen=True)
class Array:
    dtype: str = "float32"
    shape: tuple = (2,)
    form: str = "plain"

    def make(self, random):
        dtype = STRUCTURED if self.dtype == "structured" else np.dtype(self.dtype)
        shape, form = self.shape, self.form
        if form == "every second" and shape:
            return _array(random, dtype, (*shape[:-1], 2 * shape[-1]))[..., ::2]
        array = _array(random, dtype, shape)
        if form == "fortran":
            return np.asfortranarray(array)
        if form == "backwards" and shape:
            return array[::-1]
        if form == "read-only":
            array.flags.writeable = False
        if form == "memmap" and array.nbytes and dtype.kind != "O":
            with tempfile.TemporaryFile() as file:
                mapped = np.memmap(file, dtype, "w+", shape=shape)
            mapped[...] = array
            return mapped
        if form == "subclass":
            return array.view(Picture)
        if form == "broadcast" and shape:
            return np.broadcast_to(array[:1], shape)
        if form == "unaligned" and dtype.kind != "O" and shape:
            raw = np.empty(array.nbytes + 1, np.uint8)[1:]
            moved = raw.view(dtype).reshape(shape)
            moved[...] = array
            return moved
        if form == "masked":
            return np.ma.MaskedArray(array)
        return array


def _array(random, dtype, shape):
    count = int(np.prod(shape, dtype=int))
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool).reshape(shape)
    if dtype.kind == "O":
        array = np.empty(shape, object)
        array[...] = "something"
        return array
    if dtype.kind in "U":
        return np.full(shape, "".join(map(chr, random.integers(65, 91, 3))), dtype)
    if dtype.char in "gG":  # ten of its sixteen bytes mean something, and not all patterns of those are numbers
        return random.standard_normal(shape).astype(dtype).reshape(shape)
    return _bytes(random, count * dtype.itemsize).view(dtype).reshape(shape)


def _number_of(kind):
    dtype = np.dtype(kind)
    return lambda random: _array(random, dtype, (1,))[0]


THINGS = {
    "int": lambda random: int(random.integers(-(1 << 62), 1 << 62)),
    "float": lambda random: float(random.standard_normal()),
    "str": lambda random: "é" * int(random.integers(0, 4)),
    "bool": lambda random: bool(random.integers(2)),
    "bytes": lambda random: random.bytes(int(random.integers(0, 5))),
    "None": lambda random: None,
    "nan": lambda random: float("nan"),
    "infinity": lambda random: -float("inf"),
    "minus zero": lambda random: -0.0,
    "complex": lambda random: complex(random.standard_normal(), 1),
    "large int": lambda random: int(random.integers(1, 9)) << 70,
    "uint64": lambda random: (1 << 63) + int(random.integers(9)),
    "float32 scalar": _number_of("float32"),
    "float64 scalar": _number_of("float64"),
    "int16 scalar": _number_of("int16"),
    "int64 scalar": _number_of("int64"),
    "uint32 scalar": _number_of("uint32"),
    "float16 scalar": _number_of("float16"),
    "complex64 scalar": _number_of("complex64"),
    "bool scalar": lambda random: np.bool_(random.integers(2)),
    "str scalar": lambda random: np.str_("a" * int(random.integers(3))),
    "bytes scalar": lambda random: np.bytes_(b"a" * int(random.integers(1, 3))),
    "datetime scalar": lambda random: np.datetime64(int(random.integers(1 << 30)), "s"),
    "structured scalar": lambda random: _array(random, STRUCTURED, (1,))[0],
    "longlong scalar": _number_of("longlong"),
    "subclass of str": lambda random: MyStr("mine"),
    "subclass of int": lambda random: MyInt(random.integers(9)),
    "subclass of float": lambda random: MyFloat(random.integers(9)),
    "range": lambda random: range(int(random.integers(9)), 12, 3),
    "bytearray": lambda random: bytearray(random.bytes(2)),
    "set": lambda random: {int(random.integers(9))},
    "frozenset": lambda random: frozenset([1]),
    "type": lambda random: int,
    "ellipsis": lambda random: ...,
    "exception": lambda random: ValueError("as data"),
    "dtype": lambda random: torch.float32,
    "size": lambda random: torch.Size([1, int(random.integers(9))]),
    "record": lambda random: torch.ones(2).max(0),
    "opaque": lambda random: Opaque(int(random.integers(9))),
    "device": lambda random: torch.device("cpu"),
}


@dataclass(frozen=True)
class Thing:
    """Something that is not an array."""

    kind: str = "int"

    def make(self, random):
        return THINGS[self.kind](random)


KEYS = ["image", "label", 3, None, ("a", 1)]


def _keyed(values):
    return dict(zip(KEYS, values))


def _attributed(kind, content):
    made = kind(content)
    made.label = "an attribute"
    return made


def _padded(kind, values):
    return kind(*values[:2])


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "dict": _keyed,
    "OrderedDict": lambda values: OrderedDict(_keyed(values)),
    "defaultdict": lambda values: defaultdict(list, _keyed(values)),
    "Counter": lambda values: collections.Counter(_keyed(values)),
    "MyDict": lambda values: _attributed(MyDict, _keyed(values)),
    "MyOrdered": lambda values: MyOrdered(_keyed(values)),
    "UserDict": lambda values: UserDict(_keyed(values)),
    "Frozen": lambda values: Frozen(_keyed(values)),
    "Stubborn": lambda values: Stubborn(_keyed(values), 1),
    "ChainMap": lambda values: collections.ChainMap(_keyed(values)),
    "Pair": functools.partial(_padded, Pair),
    "Typed": functools.partial(_padded, Typed),
    "Child": functools.partial(_padded, Child),
    "Data": functools.partial(_padded, Data),
    "MyList": lambda values: _attributed(MyList, values),
    "MyTuple": MyTuple,
    "UserList": UserList,
    "deque": deque,
    "Row": Row,
    "Opaque": lambda values: Opaque(list(values)),
}


@dataclass(frozen=True)
class Box:
    """Something that holds other things."""

    kind: str = "list"
    parts: tuple = ()

    def make(self, random):
        return CONTAINERS[self.kind]([part.make(random) for part in self.parts])
