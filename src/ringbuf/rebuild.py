"""Putting a batch together again: a tree, as tree.py draws it, compiled once into nested functions.

A frame's schema is `[tree, field table]` in JSON, UTF-8, without floats; a row of the field table is
`[dtype spec, shape, offset]`. compile_schema() checks all of it that does not depend on the batch at hand,
so that what is left to do per batch is small. Nothing in a schema makes a reader run or import code, or
allocate more than a small multiple of the schema's own size.
"""

from __future__ import annotations

import collections
import json
import math
import pickle as pickling
import struct
import sys
from operator import itemgetter

import numpy as np

from . import classes, tensors
from .dtypes import dtype_of
from .errors import FrameError
from .tree import FORMATS, MAX_DEPTH

__all__ = ["Schema", "compile_schema", "key_of"]

# Forged frames could otherwise keep a reader busy for a long time.
MAX_NAMED_CLASSES = 256
MAX_KEYS_PER_HASH = 16


class Schema:
    """What all frames with the same schema share.

    Attributes
    ----------
    fields
        (shape, dtype, offset, nbytes) of every array, in the order that `build` expects.
    arrays_end, arrays_bytes
        Where the last array ends; the sum of their sizes. More than fits means that arrays overlap.
    fixed
        The fixed-size part of the values.
    sized
        Which of those are lengths of bytes: (first, count, how to decode).
    build
        Makes the batch out of one list: the arrays, then the values.
    pickled
        Whether a leaf is a pickle.
    """

    __slots__ = ("arrays_bytes", "arrays_end", "build", "fields", "fixed", "pickled", "sized")

    def __init__(self, tree, rows, *, imports: bool):
        self.fields = []
        self.arrays_end = self.arrays_bytes = 0
        for spec, shape, offset in rows:
            self._add_field(dtype_of(spec), tuple(shape), offset)
        compiler = _Compiler(len(rows), imports=imports)
        self.build = compiler.node(tree, 0)
        if compiler.arrays != len(rows):
            raise ValueError(f"the tree uses {compiler.arrays} of {len(rows)} arrays")
        self.fixed = struct.Struct("<" + "".join(compiler.formats))
        self.sized = compiler.sized
        self.pickled = compiler.pickled

    def _add_field(self, dtype: np.dtype, shape: tuple, offset: int) -> None:
        if not all(type(n) is int and n >= 0 for n in (*shape, offset)):
            raise ValueError(f"shape {shape} at offset {offset!r} is not made of sizes")
        if len(shape) > 64 or offset % dtype.alignment:
            raise ValueError(f"shape {shape} of {dtype} at offset {offset} cannot be an array")
        nbytes = math.prod(shape) * dtype.itemsize
        self.fields.append((shape, dtype, offset, nbytes))
        self.arrays_end = max(self.arrays_end, offset + nbytes)
        self.arrays_bytes += nbytes


def compile_schema(text: bytes, imports: bool) -> Schema:
    """Check and compile the bytes of a schema; raises FrameError for any that no writer produces."""
    try:
        tree, rows = json.loads(
            text.decode("utf-8", "surrogatepass"), parse_int=_small_int, parse_float=_no_float, parse_constant=_no_float
        )
        return Schema(tree, rows, imports=imports)
    except Exception as error:  # what malformed input meets first: json, numpy, struct, unpacking ...
        raise FrameError(f"the frame's schema is not valid ({type(error).__name__}: {error})") from error


def _small_int(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("a number has more than 64 bits")
    return int(digits)


def _no_float(text: str):
    raise ValueError(f"{text} is not an integer")


class _Compiler:
    """Turns nodes into functions from the list of leaves to an object, counting leaves as it goes."""

    def __init__(self, arrays_total: int, *, imports: bool):
        self.arrays = 0
        self.formats: list[str] = []
        self.sized: list[tuple] = []
        self.pickled = False
        self._classes: set[tuple] = set()
        self._next_value = arrays_total  # values follow the arrays in the list of leaves
        self._arrays_total = arrays_total
        self._imports = imports

    def node(self, node, depth: int):
        if depth > MAX_DEPTH:
            raise ValueError(f"the tree is more than {MAX_DEPTH} deep")
        if type(node) is str:
            return self._leaf(node)
        word, *rest = node
        return getattr(self, _METHODS[word])(word, rest, depth)

    def _children(self, nodes, depth: int) -> list:
        return [self.node(node, depth + 1) for node in nodes]

    def _take_arrays(self, count: int) -> int:
        first, self.arrays = self.arrays, self.arrays + count
        if self.arrays > self._arrays_total:
            raise ValueError(f"the tree has more arrays than the {self._arrays_total} of the field table")
        return first

    def _take_values(self, kind: str, count: int = 1) -> int:
        if type(count) is not int or count < 1:
            raise ValueError(f"{count!r} is not a number of leaves")
        first, self._next_value = self._next_value, self._next_value + count * len(FORMATS[kind])
        self.formats.append(f"{count}{FORMATS[kind]}" if count > 1 else FORMATS[kind])
        if kind in _DECODERS:
            self.sized.append((first - self._arrays_total, count, _DECODERS[kind]))
        return first

    def _leaf(self, kind: str):
        if kind == "a":
            return itemgetter(self._take_arrays(1))
        if kind == "n":
            return lambda leaves: None
        first = self._take_values(kind)
        if kind == "c":
            return lambda leaves: complex(leaves[first], leaves[first + 1])
        return itemgetter(first)

    def _list(self, word, nodes, depth):
        children = self._children(nodes, depth)
        if word == "tuple":
            return lambda leaves: tuple([child(leaves) for child in children])
        return lambda leaves: [child(leaves) for child in children]

    def _run(self, word, rest, depth):
        kind, count = rest
        if kind not in "bifsy":
            raise ValueError(f"there are no runs of {kind!r}")
        first = self._take_values(kind, count)
        part = itemgetter(slice(first, first + count))
        return part if word == "list*" else lambda leaves: tuple(part(leaves))

    def _dict(self, word, rest, depth):
        keys, *nodes = rest
        keys = [key_of(key, 0) for key in keys]
        if max(collections.Counter(map(hash, keys)).values(), default=0) > MAX_KEYS_PER_HASH:
            raise ValueError(f"more than {MAX_KEYS_PER_HASH} keys of a dict have the same hash")
        pairs = list(zip(keys, self._children(nodes, depth), strict=True))
        if word == "ordered":
            return lambda leaves: collections.OrderedDict([(key, child(leaves)) for key, child in pairs])
        return lambda leaves: {key: child(leaves) for key, child in pairs}

    def _named(self, word, rest, depth):
        module, qualname, names, *nodes = rest
        names = tuple(names)
        if not all(type(text) is str for text in (module, qualname, *names)) or len(names) != len(nodes):
            raise ValueError(f"{qualname!r} has {len(nodes)} values for the fields {names}")
        self._classes.add((module, qualname, names))
        if len(self._classes) > MAX_NAMED_CLASSES:
            raise ValueError(f"the tree names more than {MAX_NAMED_CLASSES} classes")
        children = self._children(nodes, depth)
        find, make = (_find_namedtuple, tuple.__new__) if word == "named" else (_find_dataclass, _make_dataclass)
        imports = self._imports

        def build(leaves):
            # Looked up each time: the class may have been loaded, or defined anew, since the last batch.
            kind = find(module, qualname, names, imports)
            return make(kind, [child(leaves) for child in children])

        return build

    def _tensor(self, word, rest, depth):
        name, requires_grad, *order = rest
        if not all(type(axis) is int for axis in order) or sorted(order) != list(range(len(order))):
            raise ValueError(f"{order} is not an order of dimensions")
        index, imports = self._take_arrays(1), self._imports
        return lambda leaves: tensors.from_array(leaves[index], name, requires_grad, order, imports=imports)

    def _scalar(self, word, rest, depth):
        spec, char = rest
        dtype = dtype_of(spec)
        if char and (char not in "qQ" or np.dtype(char) != dtype):
            raise ValueError(f"{char!r} is not another name of {dtype}")
        kind = np.dtype(char) if char else dtype
        first = self._take_values("y")

        def build(leaves):
            content = leaves[first]
            if len(content) != kind.itemsize:
                raise ValueError(f"a scalar of {kind} has {len(content)} bytes")
            return np.ndarray((), kind, bytearray(content) if content else None)[()]

        return build

    def _pickle(self, word, rest, depth):
        (count,) = rest
        self.pickled = True
        index = self._take_values("y")
        first = self._take_arrays(count)
        return lambda leaves: pickling.loads(leaves[index], buffers=leaves[first : first + count])


_METHODS = {
    "list": "_list", "tuple": "_list", "list*": "_run", "tuple*": "_run", "dict": "_dict", "ordered": "_dict",
    "named": "_named", "data": "_named", "T": "_tensor", "x": "_scalar", "p": "_pickle",
}  # fmt: skip

_DECODERS = {
    "I": lambda content: int.from_bytes(content, "little", signed=True),
    "s": lambda content: content.decode("utf-8", "surrogatepass"),
    "y": lambda content: content,
    "S": lambda content: np.str_(content.decode("utf-8", "surrogatepass")),
    "Y": np.bytes_,
}

_CONSTANTS = {"True": True, "False": False, "None": None}


def key_of(key, depth: int):
    if type(key) is str:
        return key
    kind, *rest = key
    if kind == "t" and depth < MAX_DEPTH:
        return tuple(key_of(part, depth + 1) for part in rest)
    (text,) = rest
    if kind == "i":
        return int(text, 16)
    if kind == "=":
        return _CONSTANTS[text]
    if kind == "f":
        return struct.unpack("<d", bytes.fromhex(text))[0]
    if kind == "y":
        return bytes.fromhex(text)
    raise ValueError(f"{kind!r} does not begin a key")


def _find_namedtuple(module: str, qualname: str, names: tuple, imports: bool) -> type:
    try:
        kind = classes.find_class(module, qualname, imports=imports)
    except ImportError:
        kind = None
    if kind is not None and classes.namedtuple_fields(kind) == names:
        return kind
    return classes.make_namedtuple(qualname, names)


def _find_dataclass(module: str, qualname: str, names: tuple, imports: bool) -> type:
    kind = classes.find_class(module, qualname, imports=imports)
    if kind is None:
        loaded = "has no class of that name" if module in sys.modules else "is not imported here"
        raise FrameError(f"the batch holds a dataclass {module}.{qualname}, but module {module!r} {loaded}")
    found = classes.dataclass_fields(kind)
    if found != names:
        raise FrameError(
            f"the batch holds a dataclass {module}.{qualname} with the fields {names}, here it has {found}; "
            "do both sides run the same code?"
        )
    return kind


def _make_dataclass(kind: type, values: list):
    made = object.__new__(kind)
    for name, value in zip(classes.dataclass_fields(kind), values):
        object.__setattr__(made, name, value)  # a frozen class forbids setattr()
    return made
