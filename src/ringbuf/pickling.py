"""Pickles for leaves that have no form of their own: memory of arrays and tensors lies outside, in a list of buffers.

Python's own pickler lends the memory of numpy arrays. Tensors it would copy into the stream, at best: of some dtypes
torch cannot read back what it pickled.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

import numpy as np

from . import tensors

__all__ = ["dumps"]


def dumps(value: Any, buffers: list[np.ndarray] | None) -> bytes:
    """`value` pickled, the memory it holds appended to `buffers`, as pickle.loads() takes them; None leaves it in the pickle."""
    file = io.BytesIO()
    lend = None if buffers is None else lambda buffer: buffers.append(np.asarray(buffer.raw()))
    _Pickler(file, 5, buffer_callback=lend).dump(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.memmap:  # numpy would copy it into the stream, as any subclass
            return _array_as, (value.view(np.ndarray), np.memmap)
        if tensors.is_tensor(value):
            return _reduced(value)
        return NotImplemented


def _reduced(value: Any) -> Any:
    """How to make a tensor anew; NotImplemented for what is left to torch."""
    torch = sys.modules["torch"]
    kind = type(value)
    parameter = kind is torch.nn.Parameter
    if not parameter and not _as_its_base(kind, torch.Tensor):
        return NotImplemented
    try:
        array, name, requires_grad = tensors.to_array(value)
    except (TypeError, RuntimeError):
        return NotImplemented
    order = tensors.order_of(value)
    if order:
        array = array.transpose(order)
    plain = (array, name, requires_grad, order)
    if kind is torch.Tensor:
        return _tensor, plain
    return (_parameter, plain) if parameter else (_tensor_as, (kind, value.__dict__, *plain))


def _as_its_base(kind: type, base: type) -> bool:
    """Whether instances of a subclass are made by a view of the base class."""
    names = ("__reduce_ex__", "__reduce__", "__setstate__", "__torch_dispatch__")
    return all(getattr(kind, name, None) is getattr(base, name, None) for name in names)


def _tensor(array: np.ndarray, name: str, requires_grad: int, order: tuple) -> Any:
    return tensors.from_array(array, name, requires_grad, order, imports=True)


def _parameter(array: np.ndarray, name: str, requires_grad: int, order: tuple) -> Any:
    tensor = _tensor(array, name, 0, order)
    return sys.modules["torch"].nn.Parameter(tensor, requires_grad=bool(requires_grad))


def _tensor_as(kind: type, attributes: dict, array: np.ndarray, name: str, requires_grad: int, order: tuple) -> Any:
    tensor = _tensor(array, name, 0, order).as_subclass(kind)
    tensor.__dict__.update(attributes)
    return tensor.requires_grad_() if requires_grad else tensor


def _array_as(array: np.ndarray, kind: type) -> Any:
    return array.view(kind)
