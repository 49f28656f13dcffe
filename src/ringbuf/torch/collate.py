"""Samples into one batch of tensors, row by row, with the very results of torch's default_collate.

torch's function takes all samples of a batch at once and judges them together. What it does with plain samples is
known beforehand, so these are laid into rows as they come, each while it is still in cache. Whatever is not plain
(another shape or dtype than the first sample's, a tensor that requires a gradient, a type somebody registered
with torch) is Irregular, and the batch is left to torch's own function, which also knows the words of every error.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils import collate as theirs

from ringbuf.loader._rows import Fields, Gathered, Items, Numbers, Pile, Rows
from ringbuf.loader.collate import ALIGNMENT, Irregular, like_mapping, like_sequence
from ringbuf.tensors import to_array

__all__ = ["TensorStack", "collate_in_memory_of_ones_own"]

ITEMSIZE = 8  # of a number
OVERHEAD = 16  # of a text in a frame, about


class TensorStack(Pile):
    """The rows of one batch while they come in: as loader.collate.Stack, for tensors."""

    def __init__(self, first: Any, *, rows: int, indices: Sequence | None = None, in_place: bool = False):
        self._in_place = in_place
        self._functions = dict(theirs.default_collate_fn_map)
        try:
            root = _column(_tensors_only(first, "batch") if in_place else first, container=list)
        except _Odd:
            raise Irregular(first) from None
        super().__init__(root, rows, indices)

    def again(self, first: Any, rows: int, indices: Sequence | None = None) -> bool:
        return self._functions == theirs.default_collate_fn_map and super().again(first, rows, indices)

    def fill(self, samples: Iterable) -> None:
        if not self._in_place:
            super().fill(samples)
            return
        for sample in samples:
            try:
                tensors = _tensors_only(sample, "batch")
            except Exception as error:
                self.refuse(sample, error)
            super().fill((tensors,))

    def refuse(self, sample: Any, error: Exception) -> None:
        """To be judged by torch's function, together with all others."""
        self.root.forget(self.filled)
        raise Irregular(sample) from None

    def row(self, row: int) -> Any:
        return self.root.row(row)

    def finish(self) -> Any:
        return self.root.finish(self.filled)

    def samples(self) -> list:
        return [self.root.sample(row) for row in range(self.filled)]


class _Odd(Exception):
    """Not plain."""


# ---- columns: nbytes(rows), row(row), sample(row), finish(rows); whatever is not like the first value is _Odd ----------


class _Tensors(Rows):
    """Tensors of one shape and dtype."""

    def __init__(self, first: torch.Tensor):
        self.torch_dtype = first.dtype
        array = self._array(first)
        super().__init__(torch.Tensor, array.dtype, array.shape, first)

    def _array(self, value: torch.Tensor) -> np.ndarray:
        """The bytes of a value as an array; _Odd where they do not say all."""
        if value.requires_grad:
            raise _Odd
        try:
            return value.numpy()  # refused for whatever is not plain
        except TypeError:
            return _bits(value)
        except RuntimeError:
            raise _Odd from None

    def nbytes(self, rows: int) -> int:
        return _room(self, rows)

    def unlike(self, row: int, value: Any) -> None:
        if type(value) is not torch.Tensor or value.dtype is not self.torch_dtype or value.shape != self.shape:
            raise _Odd
        plain = value.is_cpu and not (value.requires_grad or value.is_neg() or value.is_conj())
        # An array of it would cost more than its bytes, where they are few. At no address at all are those whose
        # storage is gone or was never there.
        if plain and value.is_contiguous() and (address := value.data_ptr()):
            self.put_from(row, address)
        else:
            self.put(row, self._array(value))

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor if tensor.dtype is self.torch_dtype else tensor.view(self.torch_dtype)

    def row(self, row: int) -> torch.Tensor:
        return self._tensor(self.out[row, ...])

    def sample(self, row: int) -> torch.Tensor:
        return self._tensor(self.out[row, ...].copy())

    def finish(self, rows: int) -> torch.Tensor:
        return self._tensor(self.out[:rows])


class _Arrays(Rows):
    """numpy's arrays of one shape and dtype."""

    def __init__(self, first: np.ndarray):
        _check_for_torch(first)
        super().__init__(np.ndarray, first.dtype, first.shape)

    def nbytes(self, rows: int) -> int:
        return _room(self, rows)

    def unlike(self, row: int, value: Any) -> None:
        if type(value) is not np.ndarray or value.dtype != self.dtype or value.shape != self.shape:
            raise _Odd
        if not value.flags.c_contiguous:
            _check_for_torch(value)
        self.put(row, value)

    def sample(self, row: int) -> np.ndarray:
        return self.out[row, ...].copy()

    def finish(self, rows: int) -> torch.Tensor:
        return torch.from_numpy(self.out[:rows])


class _Scalars(Rows):
    """numpy's scalars of one type."""

    def __init__(self, first: np.generic):
        super().__init__(type(first), first.dtype, ())

    def nbytes(self, rows: int) -> int:
        return _room(self, rows)

    def unlike(self, row: int, value: Any) -> None:
        raise _Odd

    def sample(self, row: int) -> np.generic:
        return self.out[row]

    def finish(self, rows: int) -> torch.Tensor:
        return torch.from_numpy(self.out[:rows])


class _Numbers(Numbers):
    """Python numbers."""

    def __init__(self, first: float, function: Callable, container: type):
        super().__init__(first)
        self.function, self.container = function, container

    def nbytes(self, rows: int) -> int:
        return rows * ITEMSIZE + ALIGNMENT

    def sample(self, row: int) -> Any:
        return self.value(row)

    def finish(self, rows: int) -> torch.Tensor:
        if self.values is None:
            return torch.from_numpy(self.out[:rows])
        return _together(self, self.values[:rows])


class _Others(Gathered):
    """Text, and scalars of types that torch lacks: small, and torch's function takes them all at once."""

    def __init__(self, first: Any, function: Callable, container: type):
        super().__init__()
        self.function, self.container = function, container
        self.size = OVERHEAD + (len(first) if isinstance(first, (str, bytes)) else 0)

    def nbytes(self, rows: int) -> int:
        return rows * self.size + ALIGNMENT

    def sample(self, row: int) -> Any:
        return self.values[row]

    def finish(self, rows: int) -> Any:
        return _together(self, self.values[:rows])


class _Fields(Fields):
    """Mappings; the first one's keys decide."""

    def __init__(self, first: Mapping):
        super().__init__(first, [(key, _column(first[key], container=list)) for key in first])

    def row(self, row: int) -> Any:
        return MappingProxyType({key: child.row(row) for key, child in self.children})

    def sample(self, row: int) -> Any:
        return like_mapping(self.first, {key: child.sample(row) for key, child in self.children})

    def finish(self, rows: int) -> Any:
        return like_mapping(self.first, {key: child.finish(rows) for key, child in self.children})


class _Items(Items):
    """Sequences of one length."""

    def __init__(self, first: Sequence):
        super().__init__(first, [(place, _column(value, container=tuple)) for place, value in enumerate(first)])

    def unequal(self, length: int) -> None:
        raise _Odd

    def row(self, row: int) -> Any:
        parts = [child.row(row) for _, child in self.children]
        return type(self.first)(*parts) if hasattr(self.first, "_fields") else tuple(parts)

    def sample(self, row: int) -> Any:
        return self._of([child.sample(row) for _, child in self.children])

    def _of(self, parts: list) -> Any:
        return tuple(parts) if type(self.first) is tuple else like_sequence(self.first, parts)

    def finish(self, rows: int) -> Any:
        return like_sequence(self.first, [child.finish(rows) for _, child in self.children])


def _room(column: Rows, rows: int) -> int:
    size = math.prod(column.shape) * column.dtype.itemsize * rows
    return size + -size % ALIGNMENT


def _together(column: _Numbers | _Others, values: list) -> Any:
    """Values as torch's function for their type makes a batch of them."""
    if column.container is tuple:
        values = tuple(values)
    return column.function(values, collate_fn_map=theirs.default_collate_fn_map)


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
    if function in _TAKE_NUMBERS:
        return _Numbers(first, function, container)
    if function is theirs.collate_numpy_scalar_fn and _alike_in_torch(type(first)):
        return _Scalars(first)
    if function in _TAKE_ALL_AT_ONCE:
        return _Others(first, function, container)
    if function is not None:
        raise _Odd  # somebody's own
    if isinstance(first, Mapping):
        return _Fields(first)
    if isinstance(first, Sequence):
        return _Items(first)
    raise _Odd


_TAKE_NUMBERS = (theirs.collate_float_fn, theirs.collate_int_fn)
_TAKE_ALL_AT_ONCE = (theirs.collate_numpy_scalar_fn, theirs.collate_str_fn)


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


def _check_for_torch(array: np.ndarray) -> None:
    """_Odd for what torch would not take."""
    if not _known_to_torch(array.dtype) or min(array.strides, default=0) < 0:
        raise _Odd


@functools.lru_cache(maxsize=64)
def _known_to_torch(dtype: np.dtype) -> bool:
    try:
        torch.from_numpy(np.empty(0, dtype))
    except (TypeError, ValueError):
        return False
    return True


@functools.lru_cache(maxsize=64)
def _alike_in_torch(kind: type) -> bool:
    """Whether torch makes of a list of such scalars what it makes of an array of them."""
    dtype = np.dtype(kind)
    if dtype.type is not kind or dtype.kind not in "biufc":
        return False
    try:
        return torch.as_tensor([kind(1)]).dtype is torch.from_numpy(np.empty(0, dtype)).dtype
    except TypeError:
        return False


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
