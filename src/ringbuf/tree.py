"""Taking a batch apart: its nesting as a *tree* of plain data, its leaves in three lists.

A tree is nested tuples of str and int, so it can be hashed, compared and written as JSON:

    leaf                          where its content goes
    "a"                           an array: the next row of the field table
    "n"                           None
    "b" "i" "f" "c"               bool, int of 64 bits, float, complex: fixed-size values
    "I" "s" "y" "S" "Y"           larger int, str, bytes, numpy.str_, numpy.bytes_: a length and bytes
    ("x", dtype spec, char)       a numpy scalar: a length and bytes
    ("T", dtype, requires grad)   a torch tensor: the next row of the field table; dimensions follow in the
                                  order in which they lie in that row, where it is not theirs
    ("p", n)                      a pickled object: a length and bytes, and n rows of the field table

    container
    ("list", child, ...)  ("tuple", child, ...)
    ("dict", (key, ...), child, ...)  ("ordered", (key, ...), child, ...)
    ("named", module, qualname, (field, ...), child, ...)      a namedtuple
    ("data", module, qualname, (field, ...), child, ...)       a dataclass
    ("list*", leaf, n)  ("tuple*", leaf, n)                    n leaves of one kind out of "bifsy"

A key is a str, or a pair of a letter and text for the other types (see _key). Leaves appear in the lists in
the order of a depth-first walk. Nothing that changes from batch to batch is in the tree.
"""

from __future__ import annotations

import collections
import struct
import sys

import numpy as np

from . import classes, pickling, tensors
from .dtypes import spec_of

__all__ = ["FORMATS", "MAX_DEPTH", "MAX_NODES", "Unwieldy", "Walk"]

MAX_DEPTH = 64
MAX_NODES = 1 << 18  # what a reader's limit on the size of a schema allows for

# How a leaf lies in the fixed-size part of the values; Q is the length of bytes that follow that part.
FORMATS = {"b": "?", "i": "q", "f": "d", "c": "dd", "I": "Q", "s": "Q", "y": "Q", "S": "Q", "Y": "Q"}

_RUNS = {bool: "b", int: "i", float: "f", str: "s", bytes: "y"}


class Unwieldy(ValueError):
    """A batch whose description would be larger than readers accept, however small its data is."""


class _Attribute(str):
    """A step of a path that reads `.name`, not `['name']`."""


class Walk:
    """One walk over one batch.

    Attributes
    ----------
    tree
        The nesting, as drawn above.
    arrays, rows
        The arrays in order, and for each (dtype spec, shape, nbytes).
    leaves
        How many nodes the tree has below its root.
    """

    __slots__ = ("_bytes", "_fixed", "_formats", "_path", "_pickle", "arrays", "leaves", "rows", "tree")

    def __init__(self, batch, *, pickle: bool = False, whole: bool = False):
        """Walk `batch`; nothing is copied but small values.

        whole: take all of it as one leaf, a pickle with its arrays inside.
        Raises TypeError for a leaf that cannot be sent and Unwieldy for a tree that cannot, naming the path.
        """
        self.arrays: list[np.ndarray] = []
        self.rows: list[tuple] = []
        self._formats: list[str] = []
        self._fixed: list = []
        self._bytes: list[bytes] = []
        self._path: list = [None] * (MAX_DEPTH + 1)
        self.leaves = 0
        self._pickle = pickle
        self.tree = self._pickled(batch, 0, None) if whole else _HANDLERS.get(type(batch), _other)(self, batch, 0)

    def values(self) -> bytes:
        """All leaves that are not arrays: the fixed-size part, then the bytes whose lengths it holds."""
        if not self._formats:
            return b""
        return b"".join((struct.pack("<" + "".join(self._formats), *self._fixed), *self._bytes))

    def fixed(self, kind: str, value) -> str:
        self._formats.append(FORMATS[kind])
        self._fixed.append(value)
        return kind

    def sized(self, kind, content: bytes):
        self._formats.append("Q")
        self._fixed.append(len(content))
        self._bytes.append(content)
        return kind

    def array(self, array: np.ndarray) -> str:
        self.rows.append((spec_of(array.dtype), array.shape, array.nbytes))
        self.arrays.append(array)
        return "a"

    def children(self, steps, leaves, depth: int) -> list:
        """The nodes of `leaves`, which lie at `steps` of a container at `depth`."""
        self.leaves += len(leaves)
        if depth >= MAX_DEPTH:
            raise Unwieldy(f"{self.path(8)}... is nested more than {MAX_DEPTH} deep; does a container hold itself?")
        if self.leaves > MAX_NODES:
            raise Unwieldy(
                f"the batch has more than {MAX_NODES} leaves; send arrays, or lists of one type of number or text"
            )
        path, nodes, handlers = self._path, [], _HANDLERS
        for step, leaf in zip(steps, leaves):
            path[depth] = step
            nodes.append(handlers.get(type(leaf), _other)(self, leaf, depth + 1))
        return nodes

    def run(self, word: str, leaves, kind: str) -> tuple | None:
        """A whole list of numbers or text at once; None if an int needs more than 64 bits."""
        if kind == "i" and (min(leaves) < -(1 << 63) or max(leaves) >= 1 << 63):
            return None
        if kind == "s":
            leaves = [text.encode("utf-8", "surrogatepass") for text in leaves]
        if kind in "sy":
            self._bytes.extend(leaves)
            leaves = list(map(len, leaves))
        self._formats.append(f"{len(leaves)}{FORMATS[kind]}")
        self._fixed.extend(leaves)
        return (word + "*", kind, len(leaves))

    def refuse(self, value, depth: int, why: object):
        """The last resort for a leaf without a form of its own: pickle it where that is allowed."""
        if not self._pickle:
            raise TypeError(f"{self.path(depth)} cannot be sent: {why}")
        buffers: list[np.ndarray] = []
        node = self._pickled(value, depth, buffers)
        for buffer in buffers:
            self.array(buffer)
        return (node[0], len(buffers))

    def _pickled(self, value, depth: int, buffers: list | None):
        try:
            content = pickling.dumps(value, buffers)
        except Exception as error:  # __reduce__ is anybody's code
            raise TypeError(
                f"{self.path(depth)} cannot be sent: {type(value).__name__} cannot be pickled "
                f"({type(error).__name__}: {error}); return arrays, numbers or text"
            ) from error
        return self.sized(("p", 0), content)

    def path(self, depth: int) -> str:
        steps = self._path[:depth]
        return "batch" + "".join(f".{s}" if type(s) is _Attribute else f"[{s!r}]" for s in steps)


def _int(walk: Walk, value: int, depth: int):
    if -(1 << 63) <= value < 1 << 63:
        return walk.fixed("i", value)
    return walk.sized("I", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _complex(walk: Walk, value: complex, depth: int):
    walk._formats.append(FORMATS["c"])
    walk._fixed += (value.real, value.imag)
    return "c"


def _array(walk: Walk, value: np.ndarray, depth: int):
    try:
        return walk.array(value)
    except TypeError as error:
        return walk.refuse(value, depth, error)


def _list(walk: Walk, value: list, depth: int):
    return _sequence(walk, value, depth, "list")


def _tuple(walk: Walk, value: tuple, depth: int):
    return _sequence(walk, value, depth, "tuple")


def _sequence(walk: Walk, value, depth: int, word: str):
    if len(value) > 1:
        kinds = set(map(type, value))
        kind = _RUNS.get(kinds.pop()) if len(kinds) == 1 else None
        node = walk.run(word, value, kind) if kind else None
        if node:
            return node
    return (word, *walk.children(range(len(value)), value, depth))


def _dict(walk: Walk, value: dict, depth: int, word: str = "dict"):
    try:
        keys = tuple([key if type(key) is str else _key(key, 0) for key in value])
    except TypeError as error:
        return walk.refuse(value, depth, error)
    return (word, keys, *walk.children(value, value.values(), depth))


def _ordered(walk: Walk, value: dict, depth: int):
    return _dict(walk, value, depth, "ordered")


def _key(key, depth: int):
    """A dict key as plain data; numbers as text, because 1, 1.0 and True are equal but not the same."""
    kind = type(key)
    if kind is str:
        return key
    if kind is int:
        return ("i", hex(key))
    if kind is bool or key is None:
        return ("=", str(key))
    if kind is float:
        return ("f", struct.pack("<d", key).hex())
    if kind is bytes:
        return ("y", key.hex())
    if kind is tuple and depth < MAX_DEPTH:
        return ("t", *(_key(part, depth + 1) for part in key))
    raise TypeError(
        f"a key of type {kind.__name__}; keys may be str, int, bool, None, float, bytes and tuples of those"
    )


def _other(walk: Walk, value, depth: int):
    """A leaf whose exact type has no handler: subclasses, tensors, numpy scalars, named things."""
    kind = type(value)
    if isinstance(value, np.ndarray):
        masked = sys.modules.get("numpy.ma")
        if masked is not None and isinstance(value, masked.MaskedArray):
            return walk.refuse(value, depth, "a masked array; send its .data and .mask, or .filled()")
        if walk._pickle:  # which keeps the type
            return walk.refuse(value, depth, "")
        return _array(walk, value.view(np.ndarray), depth)
    if isinstance(value, np.generic):
        return _scalar(walk, value, depth)
    if tensors.is_tensor(value):
        if walk._pickle and kind is not sys.modules["torch"].Tensor:
            return walk.refuse(value, depth, "")
        try:
            array, name, requires_grad = tensors.to_array(value)
            order = tensors.order_of(value)
        except (TypeError, RuntimeError) as error:
            return walk.refuse(value, depth, error)
        walk.array(array.transpose(order) if order else array)
        return ("T", name, requires_grad, *order)
    names = classes.namedtuple_fields(kind)
    if names is not None and len(names) == len(value):
        return _named(walk, value, depth, "named", names, value)
    names = classes.dataclass_fields(kind)
    if names is not None:
        if classes.find_class(kind.__module__, kind.__qualname__) is not kind:
            return walk.refuse(
                value, depth, f"readers cannot find the dataclass {kind.__qualname__}; define it in a module"
            )
        try:
            leaves = [getattr(value, name) for name in names]
        except AttributeError as error:
            return walk.refuse(value, depth, error)
        return _named(walk, value, depth, "data", names, leaves)
    return walk.refuse(value, depth, f"{kind.__name__} is neither array, number, text nor plain container")


def _named(walk: Walk, value, depth: int, word: str, names, leaves):
    kind = type(value)
    extra = sorted(getattr(value, "__dict__", {}).keys() - set(names))
    if extra:
        return walk.refuse(value, depth, f"{kind.__name__} has attributes that are not fields: {', '.join(extra)}")
    nodes = walk.children(map(_Attribute, names), leaves, depth)
    return (word, kind.__module__, kind.__qualname__, names, *nodes)


def _scalar(walk: Walk, value: np.generic, depth: int):
    kind = type(value)
    if kind is np.str_:
        return walk.sized("S", value.encode("utf-8", "surrogatepass"))
    if kind is np.bytes_:
        return walk.sized("Y", bytes(value))
    array = np.asarray(value)
    if kind is not array.dtype.type:
        return walk.refuse(value, depth, f"{kind.__name__} is a subclass of a numpy scalar")
    try:
        spec = spec_of(array.dtype)
    except TypeError as error:
        return walk.refuse(value, depth, error)
    # longlong and int64 share a spec but are two scalar types.
    return walk.sized(("x", spec, array.dtype.char if array.dtype.char in "qQ" else ""), array.tobytes())


_HANDLERS = {
    type(None): lambda walk, value, depth: "n",
    bool: lambda walk, value, depth: walk.fixed("b", value),
    int: _int,
    float: lambda walk, value, depth: walk.fixed("f", value),
    complex: _complex,
    str: lambda walk, value, depth: walk.sized("s", value.encode("utf-8", "surrogatepass")),
    bytes: lambda walk, value, depth: walk.sized("y", value),
    np.ndarray: _array,
    dict: _dict,
    collections.OrderedDict: _ordered,
    list: _list,
    tuple: _tuple,
}
