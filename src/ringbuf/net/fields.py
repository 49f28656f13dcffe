"""What batches are made of, without a batch: the same nesting, with a Field in the place of each leaf."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from ringbuf.dtypes import dtype_of
from ringbuf.errors import FrameError
from ringbuf.rebuild import key_of

__all__ = ["Field", "fields_of"]

MOST_DEPTH = 64
VALUES = {"b": bool, "i": int, "I": int, "f": float, "c": complex, "s": str, "y": bytes, "S": np.str_, "Y": np.bytes_}


class Field(NamedTuple):
    """A leaf of a batch.

    dtype: of an array or tensor (as numpy has it); for other leaves their Python type.
    shape: of an array or tensor, as it was in the first batch; () for other leaves.
    """

    dtype: Any
    shape: tuple[int, ...]


def fields_of(schema: bytes) -> Any:
    """The nesting that a frame's schema describes: dicts, lists and tuples; a namedtuple as a tuple, a dataclass as a dict.

    Raises FrameError.
    """
    try:
        tree, rows = json.loads(schema.decode("utf-8", "surrogatepass"))
        leaves = iter([Field(dtype_of(spec), tuple(shape)) for spec, shape, _ in rows])
        return _node(tree, leaves, 0)
    except Exception as error:
        raise FrameError(f"the description of batches is not valid ({type(error).__name__}: {error})") from error


def _node(node: Any, leaves: Any, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise ValueError("it is too deep")
    if node == "a":
        return next(leaves)
    if node == "n":
        return None
    if isinstance(node, str):
        return Field(VALUES[node], ())
    word, *rest = node
    if word in ("list", "tuple"):
        children = [_node(child, leaves, depth + 1) for child in rest]
        return tuple(children) if word == "tuple" else children
    if word in ("dict", "ordered"):
        return {key_of(key, 0): _node(child, leaves, depth + 1) for key, child in zip(rest[0], rest[1:], strict=True)}
    if word == "named":
        return tuple(_node(child, leaves, depth + 1) for child in rest[3:])
    if word == "data":
        return {name: _node(child, leaves, depth + 1) for name, child in zip(rest[2], rest[3:], strict=True)}
    if word in ("list*", "tuple*"):
        kind, count = rest
        run = [Field(VALUES[kind], ())] * min(count, 1 << 18)
        return tuple(run) if word == "tuple*" else run
    if word == "T":
        field = next(leaves)
        order = rest[2:]
        if order:
            shape = [0] * len(order)
            for at, axis in enumerate(order):
                shape[axis] = field.shape[at]
            return field._replace(shape=tuple(shape))
        return field
    if word == "x":
        return Field(dtype_of(rest[0]), ())
    raise ValueError(f"{word!r} is not known")
