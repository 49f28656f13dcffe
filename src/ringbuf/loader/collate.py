"""Samples into one batch, column by column.

A *column* is one leaf of the samples' nesting: all values of `sample['image']`. The first sample decides the
layout; each further one is copied into its row while it is still in cache, so a dataset may hand out the same
buffer every time. Where the rows lie is the caller's choice: in private memory, or in a slot of a ring.

    stack = Stack(first_sample, rows=32)
    stack.allocate(np.empty)                # or something that hands out arrays inside a slot
    stack.fill([first_sample, ...])         # in order, one for each row
    batch = stack.finish()

The rules are those of torch's default_collate, with arrays where it has tensors:

    array, array scalar       stacked along a new first axis, dtype kept
    float / int / bool        float64 / int64 / bool array
    str, bytes                the values themselves: a list, or a tuple inside a sequence
    mapping, named tuple      the same type
    tuple                     list
    other sequence            the same type, as far as it can be filled with other values
    anything else, also None  TypeError
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ringbuf.loader._rows import Fields, Gathered, Items, Numbers, Pile, Rows

__all__ = ["Irregular", "Stack", "convert", "default_collate", "default_convert", "like_mapping", "like_sequence", "to_array"]

ALIGNMENT = 64  # of arrays in a slot

Empty = Callable[[tuple, np.dtype], np.ndarray]


def default_collate(samples: Sequence) -> Any:
    """One batch of `samples`, in private memory: nested as a sample is, each leaf stacked to shape `(len(samples), *leaf.shape)`.

    Numbers become an array of shape `(len(samples),)`; text and bytes stay a list. Raises RuntimeError, which names two
    samples, for unequal shapes; TypeError, with its place, for a leaf that cannot be stacked.
    """
    stack = Stack(first_of(samples), rows=len(samples))
    stack.allocate(np.empty)
    stack.fill(samples)
    return stack.finish()


def default_convert(sample: Any) -> Any:
    """A sample that is to be delivered as it is: containers as in a batch, arrays as private copies."""
    return convert(sample, private=True)


def first_of(samples: Sequence) -> Any:
    """The sample that decides the layout."""
    if len(samples) == 0:
        raise IndexError("a batch of no samples has no layout: the batch sampler gave no indices")
    return samples[0]


class Stack(Pile):
    """The rows of one batch while they come in, and then those of the next one like it; see `_rows.Pile`.

    first: the sample that decides the layout.
    rows: how many there will be at most.
    indices: what to call the samples in messages; their places in the batch if not given.
    in_place: whether rows are handed out by `row`, for somebody to write into: numbers are arrays then, from the start.
    """

    def __init__(self, first: Any, *, rows: int, indices: Sequence | None = None, in_place: bool = False):
        root = _column(_arrays_only(first, "batch") if in_place else first, "batch", inside=None)
        super().__init__(root, rows, indices)

    def refuse(self, sample: Any, error: Exception) -> None:
        if isinstance(error, Ragged):
            raise RuntimeError(
                f"{error.keyword}, but got {error.want} for sample {self._name(0)} "
                f"and {error.got} for sample {self._name(self.filled)} at {error.path}"
            ) from None

    def row(self, row: int) -> Any:
        """The place of one sample, nested like it, in mappings and tuples that cannot be changed: arrays that are parts of
        the batch, 0-d for what is a number."""
        return self.root.row(row)

    def finish(self) -> Any:
        """The batch of all rows that were filled; its arrays are those that were allocated, or parts of them."""
        return self.root.finish(self.filled)

    def samples(self) -> list:
        """The samples of all rows that were filled, as private copies. Only a stack that raises Irregular is asked."""
        raise NotImplementedError

    def _name(self, row: int) -> Any:
        return row if self.indices is None or row >= len(self.indices) else self.indices[row]


class Irregular(Exception):
    """A sample that cannot be laid into a row; whether it can be collated at all, a `collate_fn` has to say."""

    def __init__(self, sample: Any):
        self.sample = sample


class Ragged(Exception):
    """A sample whose size differs from the first one's."""

    def __init__(self, keyword: str, path: str, want: Any, got: Any):
        self.keyword, self.path, self.want, self.got = keyword, path, want, got


# ---- columns: nbytes(rows), row(row), finish(rows), and what they do about values that are not like the first one -----


class _Rows(Rows):
    """Arrays of one shape."""

    def __init__(self, first: Any, path: str):
        value = to_array(first, path)
        super().__init__(np.ndarray if isinstance(value, np.ndarray) else type(value), value.dtype, value.shape)
        self.path = path

    def nbytes(self, rows: int) -> int:
        size = self.dtype.itemsize * rows
        for length in self.shape:
            size *= length
        return size + -size % ALIGNMENT

    def unlike(self, row: int, value: Any) -> None:
        if type(value) is not self.kind:
            value = to_array(value, self.path)
        if value.shape != self.shape:
            raise Ragged("stack expects each tensor to be equal size", self.path, self.shape, value.shape)
        if value.dtype != self.dtype:
            self._widen(row, value.dtype)
        self.put(row, value)

    def _widen(self, row: int, other: np.dtype) -> None:
        """Make room for values of another dtype, rather than cut them down to the first sample's."""
        try:
            wide = np.result_type(self.dtype, other)
        except TypeError:
            raise TypeError(
                f"{self.path} is {self.dtype} in the first sample and {other} in row {row}; they have no common dtype"
            ) from None
        refuse_pointers(wide, self.path)
        if wide != self.dtype:
            rows = np.empty(self.out.shape, wide)
            rows[:row] = self.out[:row]
            self.move_to(rows)

    def row(self, row: int) -> np.ndarray:
        return self.out[row, ...]

    def finish(self, rows: int) -> np.ndarray:
        return self.out[:rows] if rows < len(self.out) else self.out


class _Numbers(Numbers):
    """Python numbers."""

    ITEMSIZE = 8

    def __init__(self, first: float, path: str):
        super().__init__(first)
        self.path = path
        self.always_float = isinstance(first, float)

    def nbytes(self, rows: int) -> int:
        return rows * self.ITEMSIZE + ALIGNMENT

    def finish(self, rows: int) -> np.ndarray:
        if self.values is None:
            return self.out[:rows] if rows < len(self.out) else self.out
        try:
            # Without a dtype, so that numpy does not make a number of None or of a string.
            numbers = np.array(self.values)
        except ValueError:
            raise TypeError(self._mixed()) from None
        if numbers.dtype.kind not in "bi" and all(isinstance(value, int) for value in self.values):
            raise OverflowError(f"{self.path} holds an int that does not fit 64 bits: {max(self.values, key=abs)}")
        if numbers.ndim != 1 or numbers.dtype.kind not in "bif":
            raise TypeError(self._mixed())
        return numbers.astype(np.float64, copy=False) if self.always_float else numbers

    def _mixed(self) -> str:
        types = sorted({type(value).__qualname__ for value in self.values})
        return f"{self.path} is a number in the first sample, but the batch mixes {', '.join(types)}"


class _Texts(Gathered):
    """Strings or bytes, which stay what they are."""

    OVERHEAD = 24  # of a string in a frame, about

    def __init__(self, first: str | bytes, inside: type | None):
        super().__init__()
        self.size = len(first.encode("utf-8", "surrogatepass") if isinstance(first, str) else first)
        self.container = tuple if inside is not None and issubclass(inside, Sequence) else list

    def nbytes(self, rows: int) -> int:
        return rows * (self.size + self.OVERHEAD)

    def finish(self, rows: int) -> list | tuple:
        del rows
        return self.container(self.values)


class _Fields(Fields):
    """Mappings; the first one's keys decide."""

    def __init__(self, first: Mapping, path: str):
        super().__init__(first, [(key, _column(first[key], f"{path}[{key!r}]", inside=type(first))) for key in first])

    def row(self, row: int) -> Any:
        # What is written goes into the arrays; to put others in their place would be without effect, and is refused.
        return MappingProxyType({key: child.row(row) for key, child in self.children})

    def finish(self, rows: int) -> Any:
        return like_mapping(self.first, {key: child.finish(rows) for key, child in self.children})


class _Items(Items):
    """Sequences of one length."""

    def __init__(self, first: Sequence, path: str):
        columns = [_column(value, f"{path}[{place}]", inside=type(first)) for place, value in enumerate(first)]
        super().__init__(first, list(enumerate(columns)))
        self.path = path

    def unequal(self, length: int) -> None:
        raise Ragged("each element in list of batch should be of equal size", self.path, len(self.children), length)

    def row(self, row: int) -> Any:
        parts = [child.row(row) for _, child in self.children]
        return type(self.first)(*parts) if hasattr(self.first, "_fields") else tuple(parts)

    def finish(self, rows: int) -> Any:
        return like_sequence(self.first, [child.finish(rows) for _, child in self.children])


def _column(first: Any, path: str, *, inside: type | None) -> Any:
    """The column that takes values like `first`, which lie in a container of type `inside`."""
    if isinstance(first, (str, bytes)):
        return _Texts(first, inside)
    if isinstance(first, (np.ndarray, np.generic)) or _is_tensor(first):
        return _Rows(first, path)
    if isinstance(first, (float, int)):
        return _Numbers(first, path)
    if isinstance(first, Mapping):
        return _Fields(first, path)
    if isinstance(first, Sequence):
        return _Items(first, path)
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first)} at {path}; give a collate_fn that knows what to do with it"
    )


# ---- leaves and containers --------------------------------------------------------------------------------------


def convert(sample: Any, *, private: bool, path: str = "batch") -> Any:
    """`sample` with tensors as arrays and containers as a batch has them.

    private: whether arrays are copied. Without, the result shares memory with the sample.
    """
    if isinstance(sample, np.ndarray) or _is_tensor(sample):
        array = to_array(sample, path)
        return array.copy() if private else array
    if isinstance(sample, (str, bytes)):
        return sample
    if isinstance(sample, Mapping):
        values = {key: convert(sample[key], private=private, path=f"{path}[{key!r}]") for key in sample}
        return like_mapping(sample, values)
    if isinstance(sample, Sequence):
        items = [convert(value, private=private, path=f"{path}[{at}]") for at, value in enumerate(sample)]
        return like_sequence(sample, items)
    return sample


def _arrays_only(sample: Any, path: str) -> Any:
    """`sample` with numbers as arrays, and nothing else that has no fixed place in a row."""
    if isinstance(sample, (str, bytes)):
        raise TypeError(
            f"{path} is a {type(sample).__name__}, which has no place in a row; a dataset with __getitem_into__ gives arrays "
            "and numbers alone"
        )
    if isinstance(sample, (float, int)) and not isinstance(sample, np.generic):
        return np.asarray(sample, np.bool_ if isinstance(sample, bool) else np.int64 if isinstance(sample, int) else np.float64)
    if isinstance(sample, Mapping):
        return like_mapping(sample, {key: _arrays_only(sample[key], f"{path}[{key!r}]") for key in sample})
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*[_arrays_only(value, f"{path}[{at}]") for at, value in enumerate(sample)])
    if isinstance(sample, Sequence):
        return type(sample)([_arrays_only(value, f"{path}[{at}]") for at, value in enumerate(sample)])
    return sample


def to_array(value: Any, path: str) -> np.ndarray | np.generic:
    """`value` as a plain array, or the array scalar that it is; TypeError names `path` where it cannot be one."""
    if _is_tensor(value):
        value = _array_of_tensor(value, path)
    elif "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray):  # importing it takes 15 ms
        raise TypeError(f"{path} is a masked array, which would lose its mask; give its filled() or its two arrays")
    elif not isinstance(value, np.generic):
        # A subclass becomes a plain array of the same memory; a list or a number a new one.
        value = np.asarray(value)
    refuse_pointers(value.dtype, path)
    return value


def refuse_pointers(dtype: np.dtype, path: str) -> None:
    """Raise TypeError for items that lie elsewhere: Python objects, strings of variable width."""
    if dtype.hasobject or dtype.kind == "T":
        raise TypeError(f"{path} has dtype {dtype}, whose items are pointers and cannot be shared")


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _array_of_tensor(tensor: Any, path: str) -> np.ndarray:
    if tensor.device.type != "cpu":
        raise TypeError(f"{path} is a tensor on {tensor.device}; return CPU data from the dataset")
    if tensor.is_nested or tensor.layout is not sys.modules["torch"].strided:
        raise TypeError(f"{path} is a nested or sparse tensor; give a collate_fn that knows what to do with it")
    return tensor.detach().resolve_conj().resolve_neg().numpy()


def like_mapping(first: Mapping, values: dict) -> Any:
    """`values` as a mapping of the type of `first`, or as a dict where that type cannot be filled."""
    if type(first) is dict:
        return values
    try:
        if isinstance(first, MutableMapping):
            # A copy keeps what else the object carries, a default factory for one.
            clone = copy.copy(first)
            clone.update(values)
            return clone
        return type(first)(values)
    except TypeError:
        return values


def like_sequence(first: Sequence, items: list) -> Any:
    """`items` as a sequence of the type of `first`, or as a list where that type cannot be filled."""
    if isinstance(first, tuple):
        return type(first)(*items) if hasattr(first, "_fields") else items
    if type(first) is list:
        return items
    try:
        if isinstance(first, MutableSequence):
            clone = copy.copy(first)
            for place, item in enumerate(items):
                clone[place] = item
            return clone
        return type(first)(items)
    except TypeError:
        return items
