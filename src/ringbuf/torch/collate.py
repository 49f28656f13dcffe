"""Samples into one batch of tensors, row by row, with the very results of torch's default_collate.

torch's function takes all samples of a batch at once and judges them together. What it does with plain samples is
known beforehand, so these are laid into rows as they come, each while it is still in cache. Whatever is not plain
(another shape or dtype than the first sample's, a tensor that requires a gradient, a type somebody registered
with torch) is Irregular, and the batch is left to torch's own function, which also knows the words of every error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils import collate as theirs

from ringbuf._core import RowWriter
from ringbuf.loader.collate import (
    ALIGNMENT,
    PAST_CACHE_BYTES,
    Empty,
    Irregular,
    like_mapping,
    like_sequence,
)
from ringbuf.tensors import to_array

__all__ = ["TensorStack", "collate_in_memory_of_ones_own"]


class TensorStack:
    """The rows of one batch while they come in: as loader.collate.Stack, for tensors."""

    def __init__(self, first: Any, *, rows: int, indices: Sequence | None = None, in_place: bool = False):
        del indices  # torch's messages do not name samples
        self.rows = rows
        self.filled = 0
        self._in_place = in_place
        try:
            self._root = _column(_tensors_only(first, "batch") if in_place else first, container=list)
        except _Odd:
            raise Irregular(first) from None

    def nbytes(self) -> int:
        return self._root.nbytes(self.rows)

    def allocate(self, empty: Empty) -> None:
        self._root.allocate(self.rows, empty)

    def fill(self, samples: Iterable) -> None:
        add = self._root.add
        row = self.filled
        for sample in samples:
            try:
                add(row, _tensors_only(sample, "batch") if self._in_place else sample)
            except Exception:  # to be judged by torch's function, together with all others
                self._root.forget(row)
                raise Irregular(sample) from None
            row += 1
            self.filled = row

    def row(self, row: int) -> Any:
        return self._root.row(row)

    def finish(self) -> Any:
        return self._root.finish(self.filled)

    def samples(self) -> list:
        return [self._root.sample(row) for row in range(self.filled)]


class _Odd(Exception):
    """Not plain."""


# ---- columns: nbytes(rows), allocate(rows, empty), add(row, value), forget(row), row(row), sample(row), finish(rows) ---


class _Rows:
    """Values of one shape and dtype."""

    def __init__(self, first: Any):
        self.dtype = first.dtype
        array = self._array(first)
        self.shape = array.shape
        self.array_dtype = array.dtype
        self.out: np.ndarray
        self.writer: RowWriter | None = None

    def _array(self, value: Any) -> np.ndarray:
        """The bytes of a value as an array; _Odd where they do not say all."""
        raise NotImplementedError

    def nbytes(self, rows: int) -> int:
        size = self.array_dtype.itemsize * rows
        for length in self.shape:
            size *= length
        return size + -size % ALIGNMENT

    def allocate(self, rows: int, empty: Empty) -> None:
        self.out = empty((rows, *self.shape), self.array_dtype)
        if self.out.nbytes:
            self.writer = RowWriter(self.out, rows, streaming=self.out.nbytes >= PAST_CACHE_BYTES)

    def _write(self, row: int, array: np.ndarray) -> None:
        if self.writer is None or not self.writer.write(row, array):
            self.out[row] = array

    def forget(self, row: int) -> None:
        pass

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array)

    def row(self, row: int) -> torch.Tensor:
        return self._tensor(self.out[row, ...])

    def finish(self, rows: int) -> torch.Tensor:
        return self._tensor(self.out[:rows])


class _Tensors(_Rows):
    def _array(self, value: torch.Tensor) -> np.ndarray:
        if value.requires_grad:
            raise _Odd
        try:
            return value.numpy()  # refused for whatever is not plain
        except TypeError:
            return _bits(value)
        except RuntimeError:
            raise _Odd from None

    def add(self, row: int, value: torch.Tensor) -> None:
        if type(value) is not torch.Tensor or value.dtype is not self.dtype or value.shape != self.shape:
            raise _Odd
        plain = value.is_cpu and not (value.requires_grad or value.is_neg() or value.is_conj())
        # An array of it would cost more than its bytes, where they are few. At no address at all are those whose
        # storage is gone or was never there.
        if plain and self.writer is not None and value.is_contiguous() and (address := value.data_ptr()):
            self.writer.write_from(row, address)
        else:
            self._write(row, self._array(value))

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor if tensor.dtype is self.dtype else tensor.view(self.dtype)

    def sample(self, row: int) -> torch.Tensor:
        return self._tensor(self.out[row, ...].copy())


class _Arrays(_Rows):
    def _array(self, value: np.ndarray) -> np.ndarray:
        if not _known_to_torch(value.dtype) or min(value.strides, default=0) < 0:
            raise _Odd
        return value

    def add(self, row: int, value: np.ndarray) -> None:
        if type(value) is not np.ndarray or value.dtype != self.dtype or value.shape != self.shape:
            raise _Odd
        if self.writer is None or not self.writer.write(row, value):
            self.out[row] = self._array(value)

    def sample(self, row: int) -> np.ndarray:
        return self.out[row, ...].copy()


class _Gathered:
    """Numbers and text: small, and torch's function for their type takes them all at once."""

    OVERHEAD = 16

    def __init__(self, first: Any, function: Callable, container: type):
        self.function, self.container = function, container
        self.size = self.OVERHEAD + (len(first) if isinstance(first, (str, bytes)) else 0)
        self.values: list = []

    def nbytes(self, rows: int) -> int:
        return rows * self.size + ALIGNMENT

    def allocate(self, rows: int, empty: Empty) -> None:
        del rows, empty

    def add(self, row: int, value: Any) -> None:
        del row
        self.values.append(value)

    def forget(self, row: int) -> None:
        del self.values[row:]

    def sample(self, row: int) -> Any:
        return self.values[row]

    def finish(self, rows: int) -> Any:
        values = self.values[:rows]
        if self.container is tuple:
            values = tuple(values)
        return self.function(values, collate_fn_map=theirs.default_collate_fn_map)


class _Nested:
    children: list[tuple[Any, Any]]

    def nbytes(self, rows: int) -> int:
        return sum(child.nbytes(rows) for _, child in self.children)

    def allocate(self, rows: int, empty: Empty) -> None:
        for _, child in self.children:
            child.allocate(rows, empty)

    def forget(self, row: int) -> None:
        for _, child in self.children:
            child.forget(row)


class _Fields(_Nested):
    """Mappings; the first one's keys decide."""

    def __init__(self, first: Mapping):
        self.first = first
        self.children = [(key, _column(first[key], container=list)) for key in first]

    def add(self, row: int, value: Mapping) -> None:
        for key, child in self.children:
            child.add(row, value[key])

    def row(self, row: int) -> Any:
        return MappingProxyType({key: child.row(row) for key, child in self.children})

    def sample(self, row: int) -> Any:
        return like_mapping(self.first, {key: child.sample(row) for key, child in self.children})

    def finish(self, rows: int) -> Any:
        return like_mapping(self.first, {key: child.finish(rows) for key, child in self.children})


class _Items(_Nested):
    """Sequences of one length."""

    def __init__(self, first: Sequence):
        self.first = first
        self.children = [(place, _column(value, container=tuple)) for place, value in enumerate(first)]

    def add(self, row: int, value: Sequence) -> None:
        if len(value) != len(self.children):
            raise _Odd
        for (_, child), part in zip(self.children, value, strict=True):
            child.add(row, part)

    def row(self, row: int) -> Any:
        parts = [child.row(row) for _, child in self.children]
        return type(self.first)(*parts) if hasattr(self.first, "_fields") else tuple(parts)

    def sample(self, row: int) -> Any:
        return self._of([child.sample(row) for _, child in self.children])

    def _of(self, parts: list) -> Any:
        return tuple(parts) if type(self.first) is tuple else like_sequence(self.first, parts)

    def finish(self, rows: int) -> Any:
        return like_sequence(self.first, [child.finish(rows) for _, child in self.children])


def _column(first: Any, *, container: type) -> Any:
    """The column for values like `first`, as torch's collate() would find what to do with it.

    container: what torch gathers the values of such a column in, before it calls the function for their type.
    """
    function = _function_for(first)
    if function is theirs.collate_tensor_fn or function is collate_in_memory_of_ones_own:
        if type(first) is not torch.Tensor:
            raise _Odd
        return _Tensors(first)
    if function is theirs.collate_numpy_array_fn:
        if type(first) is not np.ndarray:
            raise _Odd
        return _Arrays(first)
    if function in _TAKE_ALL_AT_ONCE:
        return _Gathered(first, function, container)
    if function is not None:
        raise _Odd  # somebody's own
    if isinstance(first, Mapping):
        return _Fields(first)
    if isinstance(first, Sequence):
        return _Items(first)
    raise _Odd


_TAKE_ALL_AT_ONCE = (
    theirs.collate_numpy_scalar_fn,
    theirs.collate_float_fn,
    theirs.collate_int_fn,
    theirs.collate_str_fn,
)


def _function_for(value: Any) -> Callable | None:
    known = theirs.default_collate_fn_map
    kind = type(value)
    if kind in known:
        return known[kind]
    return next((known[key] for key in known if isinstance(value, key)), None)


def _bits(value: torch.Tensor) -> np.ndarray:
    """A tensor of a dtype that numpy lacks, as integers."""
    try:
        return to_array(value)[0]
    except (TypeError, RuntimeError):
        raise _Odd from None


@functools.lru_cache(maxsize=64)
def _known_to_torch(dtype: np.dtype) -> bool:
    try:
        torch.from_numpy(np.empty(0, dtype))
    except (TypeError, ValueError):
        return False
    return True


def _tensors_only(sample: Any, path: str) -> Any:
    """`sample` with numbers and arrays as tensors, and nothing else that has no fixed place in a row."""
    if isinstance(sample, torch.Tensor):
        return sample
    if isinstance(sample, (str, bytes)):
        raise TypeError(
            f"{path} is a {type(sample).__name__}, which has no place in a row; a dataset with __getitem_into__ gives tensors, "
            "arrays and numbers alone"
        )
    if isinstance(sample, (np.ndarray, np.generic)):
        return torch.as_tensor(sample)
    if isinstance(sample, float):
        return torch.tensor(sample, dtype=torch.float64)
    if isinstance(sample, int):
        return torch.tensor(sample)
    if isinstance(sample, Mapping):
        return like_mapping(sample, {key: _tensors_only(sample[key], f"{path}[{key!r}]") for key in sample})
    if isinstance(sample, Sequence):
        parts = [_tensors_only(value, f"{path}[{place}]") for place, value in enumerate(sample)]
        return tuple(parts) if type(sample) is tuple else like_sequence(sample, parts)
    raise TypeError(f"{path} is a {type(sample).__name__}, which has no place in a row")


def collate_in_memory_of_ones_own(batch: Sequence, *, collate_fn_map: Any = None) -> torch.Tensor:
    """torch's collate_tensor_fn as it works in a worker, without its file in /dev/shm for each tensor.

    What it returns is copied into a slot anyway; and such files end in a bus error where /dev/shm is small.
    """
    first = batch[0]
    if first.is_nested or first.layout is not torch.strided:
        return theirs.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)  # refuses
    out = first.new_empty((len(batch), *first.size()))
    return torch.stack(list(batch), 0, out=out)
