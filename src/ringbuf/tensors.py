"""torch tensors as numpy arrays over the same memory, and back.

torch is never imported here on its own account: who holds a tensor has imported it. Tensor types that
numpy lacks (bfloat16, float8, complex32) travel as integers of the same size and are viewed back, bit
for bit. A subclass such as Parameter becomes a plain Tensor.
"""

from __future__ import annotations

import importlib
import sys

import numpy as np

__all__ = ["from_array", "is_tensor", "order_of", "to_array"]

_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    # A module that is still being imported may lack the name.
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def to_array(tensor) -> tuple[np.ndarray, str, int]:
    """View a tensor as (array, name of its torch dtype, whether it requires a gradient).

    Raises TypeError, saying what to return instead, unless it is a dense CPU tensor.
    """
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu":
        raise TypeError(f"a tensor on device {tensor.device}; return CPU data, for example tensor.cpu()")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        what = "quantized" if tensor.is_quantized else f"of layout {tensor.layout}"
        raise TypeError(f"a tensor {what}; return dense CPU data, for example tensor.to_dense() or tensor.dequantize()")
    if not tensor.is_leaf:
        raise TypeError("a tensor that is part of a gradient computation; return tensor.detach()")
    name, requires_grad = str(tensor.dtype).removeprefix("torch."), int(tensor.requires_grad)
    if requires_grad:
        tensor = tensor.detach()
    if type(tensor) is not torch.Tensor:
        tensor = tensor.as_subclass(torch.Tensor)
    tensor = tensor.resolve_conj().resolve_neg()
    try:
        return tensor.numpy(), name, requires_grad
    except TypeError:
        bits = _BITS.get(tensor.dtype.itemsize)
        if not _viewable(tensor.dtype) or bits is None:
            raise TypeError(f"a tensor of dtype {tensor.dtype}, which readers cannot rebuild") from None
        return tensor.view(getattr(torch, bits)).numpy(), name, requires_grad


def order_of(tensor) -> tuple[int, ...]:
    """The dimensions of a tensor from the outermost in memory to the innermost, where that is not just their own order:
    images with channels_last for one. What has gaps or lies over itself has no order worth keeping, or that of what has none.
    """
    strides = tensor.stride()
    if tensor.is_contiguous() or 0 in strides:
        return ()
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    return () if order == list(range(len(strides))) else tuple(order)


def from_array(array: np.ndarray, name: str, requires_grad: int, order: tuple[int, ...] = (), *, imports: bool):
    """Make the tensor that to_array() took apart; read-only memory is copied, torch has no such tensors.

    order: as order_of() gave it, where the array's dimensions were brought into that order.

    Raises ValueError or TypeError where array and name do not belong together.
    """
    torch = sys.modules.get("torch")
    if torch is None and imports:
        torch = importlib.import_module("torch")
    if torch is None:
        raise ValueError("the batch holds torch tensors; import torch before reading it")
    dtype = vars(torch).get(name)  # not getattr: torch loads some of its parts on first use
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch {torch.__version__} has no dtype {name!r}")
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    if tensor.dtype is not dtype:
        if dtype.itemsize != array.itemsize or not _viewable(dtype):
            raise ValueError(f"an array of {array.dtype} cannot be a tensor of {dtype}")
        tensor = tensor.view(dtype)
    if order:
        tensor = tensor.permute(sorted(range(len(order)), key=order.__getitem__))
    return tensor.requires_grad_() if requires_grad else tensor


def _viewable(dtype) -> bool:
    # All but quint8 and its like, whose bytes mean nothing without a scale.
    return not str(dtype).startswith("torch.q")
