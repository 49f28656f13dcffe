"""A frame: what a slot holds, and what the network sends.

    0        64                                                            tail
    | header | array | pad | array | pad ... (each at a multiple of 64) ... | values | schema |

    header   magic, version, frame_bytes, tail, values_bytes, schema_bytes, 0, 0    (eight 64-bit words)
    values   ints, floats, text ...: a fixed-size part, then the bytes whose lengths it holds
    schema   [tree, field table] in JSON: how leaves nest, dtype and shape and offset of each array

All integers are little endian. The tail comes last because slot.empty() hands out arrays before it is known
what else the batch holds. A steady stream has the same schema in every frame, so both sides keep what they
worked out for the last few dozen of them, by its exact bytes.

The writing side is plan() or Writer, the reading side is read(). Reading trusts nothing: each number is checked
against the buffer before use, and bytes that shared memory could still change are copied before they are parsed.
"""

from __future__ import annotations

import functools
import json
import math
import operator
import struct

import numpy as np

from ._core import copy_into
from .dtypes import spec_of
from .errors import BatchTooLarge, FrameError
from .rebuild import Schema, compile_schema
from .tree import Unwieldy, Walk

__all__ = ["FRAME_ROOM", "HEADER_BYTES", "Form", "Plan", "Writer", "plan", "read", "schema_of"]

ALIGNMENT = 64
FRAME_ROOM = 4096  # what a slot gets beyond slot_bytes, for header, padding and tail
HEADER_BYTES = 64
MAX_SCHEMA_BYTES = 1 << 20
VERSION = 1

_HEADER = struct.Struct("<8s7Q")
_MAGIC = b"rb-frame"
_CACHED = 64  # schemas; larger ones than the following are worked out each time, so that the caches stay small
_CACHED_LEAVES = 512
CACHED_BYTES = 1 << 14
PAST_CACHE = 8 << 20  # bytes; larger arrays are copied past the caches, where whoever reads them would not find them any more


def plan(batch, pickle: bool = False) -> Plan:
    """Walk `batch` once and work out where each part of it will lie; nothing is copied but small values.

    pickle: send leaves that have no form of their own as pickles, and so all of a batch that is too deep or too large
        to be described; only for readers that trust the writer.
    Raises TypeError for a leaf that cannot be sent, ValueError for a tree that is too deep or too large, both
    naming the path, such as `batch['meta'][0]`.
    """
    try:
        return Plan(Walk(batch, pickle=pickle))
    except Unwieldy:
        if not pickle:
            raise
        return Plan(Walk(batch, pickle=True, whole=True))


class Plan:
    """A batch that is ready to be written.

    Attributes
    ----------
    data_bytes
        The sum of the sizes of its arrays.
    frame_bytes
        All of it, with header, padding and tail.
    """

    __slots__ = ("_arrays", "_layout", "_values", "data_bytes", "frame_bytes")

    def __init__(self, walk: Walk):
        rows = tuple(walk.rows)
        lay_out = laid_out if walk.leaves <= _CACHED_LEAVES else laid_out.__wrapped__
        self._arrays = walk.arrays
        self._values = walk.values()
        self._layout = layout = lay_out(walk.tree, rows)
        self.data_bytes = layout.data_bytes
        self.frame_bytes = layout.tail + len(self._values) + len(layout.schema)

    def check(self, slot_bytes: int) -> None:
        """Raise BatchTooLarge unless a ring with such slots can take the batch."""
        needed = max(self.data_bytes, self.frame_bytes - FRAME_ROOM)
        if needed > slot_bytes:
            raise _too_large(needed, slot_bytes)

    def write(self, buffer) -> int:
        """Fill `buffer`, which should begin at a multiple of 64, and return how many bytes are used."""
        view = _bytes_of(buffer)
        if len(view) < self.frame_bytes:
            raise _too_large(self.frame_bytes, len(view))
        for array, offset in zip(self._arrays, self._layout.offsets):
            _copy_in(buffer, offset, array)
        return _finish(view, self._layout.tail, self._values, self._layout.schema)


class _Layout:
    __slots__ = ("data_bytes", "offsets", "schema", "tail")


@functools.lru_cache(maxsize=_CACHED)
def laid_out(tree, rows: tuple) -> _Layout:
    layout = _Layout()
    layout.data_bytes, layout.offsets, end = 0, [], HEADER_BYTES
    for _, _, nbytes in rows:
        layout.offsets.append(end)
        layout.data_bytes += nbytes
        end = _round_up(end + nbytes)
    layout.tail = end
    layout.schema = _write_schema.__wrapped__(tree, rows, layout.offsets)
    return layout


def _schema_bytes(tree, rows: tuple, offsets: tuple, leaves: int) -> bytes:
    """What a steady stream writes again and again."""
    write = _write_schema if leaves <= _CACHED_LEAVES else _write_schema.__wrapped__
    return write(tree, rows, offsets)


@functools.lru_cache(maxsize=_CACHED)
def _write_schema(tree, rows: tuple, offsets: tuple) -> bytes:
    table = [(spec, shape, offset) for (spec, shape, _), offset in zip(rows, offsets)]
    # As JSON's own escapes, two lone surrogates would come back as one character.
    schema = json.dumps((tree, table), separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    if len(schema) > MAX_SCHEMA_BYTES:
        raise Unwieldy(
            f"describing the batch takes {len(schema)} bytes, at most {MAX_SCHEMA_BYTES} are allowed; "
            "send fewer and larger arrays"
        )
    return schema


class Form:
    """All of a frame but its arrays: enough for another batch that differs in nothing but what is in these.

    offsets: where they lie, in the order in which they were taken from the Writer.
    """

    __slots__ = ("_head", "_schema", "_tail", "data_bytes", "frame_bytes", "offsets")

    def __init__(self, offsets: tuple, data_bytes: int, tail: int, schema: bytes):
        self.offsets, self.data_bytes = offsets, data_bytes
        self.frame_bytes = tail + len(schema)
        self._tail, self._schema = tail, schema
        self._head = _HEADER.pack(_MAGIC, VERSION, self.frame_bytes, tail, 0, len(schema), 0, 0)

    def write(self, buffer) -> int:
        """Make a frame of a buffer that has the arrays where they belong; returns how many bytes are used."""
        view = _bytes_of(buffer)
        view[self._tail : self.frame_bytes] = self._schema
        view[:HEADER_BYTES] = self._head
        return self.frame_bytes


class Writer:
    """Builds one frame in place: arrays first, then the batch that holds them.

    data_limit: how many bytes of arrays may be taken; by default as many as fit.
    form: of an earlier frame, whose arrays count as taken here as well.

    Attributes
    ----------
    form
        After finish(): the form of the frame, if it consists of nothing but the arrays that were taken. Otherwise None.
    """

    def __init__(self, buffer, data_limit: int | None = None, pickle: bool = False, form: Form | None = None):
        self._buffer = buffer
        self._view = _bytes_of(buffer)
        self._limit = len(self._view) if data_limit is None else data_limit
        self._pickle = pickle
        self.form: Form | None = None
        self._end = HEADER_BYTES if form is None else form._tail
        self._data_bytes = 0 if form is None else form.data_bytes
        self._taken: list[int] = [] if form is None else list(form.offsets)
        self._start = _address(np.ndarray((0,), np.uint8, buffer))

    def empty(self, shape, dtype) -> np.ndarray:
        """An uninitialised C-contiguous array inside the buffer; raises BatchTooLarge when it does not fit."""
        dtype = np.dtype(dtype)
        spec_of(dtype)
        try:
            shape = (operator.index(shape),)
        except TypeError:
            shape = tuple(map(operator.index, shape))
        if min(shape, default=0) < 0:
            raise ValueError(f"shape {shape} has a negative size")
        nbytes = math.prod(shape) * dtype.itemsize
        offset, end = self._end, _round_up(self._end + nbytes)
        self._check(self._data_bytes + nbytes, end)
        array = np.ndarray(shape, dtype, self._buffer, offset)
        self._data_bytes += nbytes
        self._taken.append(offset)
        self._end = end
        return array

    def finish(self, batch) -> int:
        """Lay down what is not inside yet, then the tail and the header; return how many bytes are used.

        Arrays that lie inside the buffer and are C-contiguous stay where they are, all others are copied.
        Raises as plan() does, and BatchTooLarge, before anything is written.
        """
        try:
            return self._finish(Walk(batch, pickle=self._pickle))
        except Unwieldy:
            if not self._pickle:
                raise
            return self._finish(Walk(batch, pickle=True, whole=True))

    def _finish(self, walk: Walk) -> int:
        end, data_bytes = self._end, self._data_bytes
        offsets, copies = [], []
        for array in walk.arrays:
            offset = self._offset_inside(array)
            if offset is None:
                offset = end
                end = _round_up(end + array.nbytes)
                data_bytes += array.nbytes
                copies.append((offset, array))
            offsets.append(offset)
        values, schema = walk.values(), _schema_bytes(walk.tree, tuple(walk.rows), tuple(offsets), walk.leaves)
        self._check(data_bytes, end + len(values) + len(schema))
        for offset, array in copies:
            _copy_in(self._buffer, offset, array)
        if offsets == self._taken and not copies and not values:
            self.form = Form(tuple(offsets), data_bytes, end, schema)
        return _finish(self._view, end, values, schema)

    def _offset_inside(self, array: np.ndarray) -> int | None:
        if not (array.flags.c_contiguous and array.flags.aligned):
            return None
        offset = _address(array) - self._start
        return offset if HEADER_BYTES <= offset <= self._end - array.nbytes else None

    def _check(self, data_bytes: int, frame_bytes: int) -> None:
        if data_bytes > self._limit:
            raise _too_large(data_bytes, self._limit)
        if frame_bytes > len(self._view):
            room = min(self._limit, len(self._view))
            raise _too_large(room + frame_bytes - len(self._view), room)


def read(exporter, *, copy: bool = False, pickle: bool = False, imports: bool = False):
    """Rebuild the batch that a frame holds.

    The arrays are views of `exporter`, which lives as long as any of them; it must not move or free its memory
    before. They can be written to if its buffer can.

    copy: give private arrays instead, and keep nothing of `exporter`.
    pickle: allow pickled leaves, which run code of the writer's choice.
    imports: import the modules of namedtuples and dataclasses, and torch, where they are not loaded yet.
    Raises FrameError for anything but an intact frame of this version.
    """
    view = _bytes_of(exporter)
    schema, tail, values_bytes = _read_header(view, imports)
    if schema.pickled and not pickle:
        raise FrameError("the frame holds a pickled leaf; only a loader reads those, from its own workers")
    if schema.arrays_end > tail:
        raise FrameError(f"an array ends at byte {schema.arrays_end}, but the arrays end at {tail}")
    if copy and schema.arrays_bytes > tail:  # arrays overlap: one copy of all is less than a copy of each
        exporter, copy = np.array(np.ndarray((tail,), np.uint8, exporter)), False
    ndarray = np.ndarray
    try:
        if copy:
            # As raw bytes: numpy's copy() would leave out the padding of structured dtypes.
            leaves = [
                ndarray(shape, dtype, ndarray((nbytes,), np.uint8, exporter, offset).copy())
                for shape, dtype, offset, nbytes in schema.fields
            ]
        else:
            leaves = [ndarray(shape, dtype, exporter, offset) for shape, dtype, offset, _ in schema.fields]
        if values_bytes:
            leaves += read_values(schema, view[tail : tail + values_bytes])
        return schema.build(leaves)
    except FrameError:
        raise
    except Exception as error:  # whatever numpy, a decoder or a pickle meets first
        raise FrameError(f"the frame cannot be rebuilt ({type(error).__name__}: {error})") from error


def schema_of(exporter) -> bytes:
    """The schema of a frame, as its writer put it down; rebuild.compile_schema() reads it. Raises FrameError."""
    view = _bytes_of(exporter)
    tail, values_bytes, frame_bytes = _check_header(view)
    return bytes(view[tail + values_bytes : frame_bytes])


def _read_header(view: memoryview, imports: bool) -> tuple[Schema, int, int]:
    tail, values_bytes, frame_bytes = _check_header(view)
    schema_bytes = frame_bytes - tail - values_bytes
    known = compiled if schema_bytes <= CACHED_BYTES else compile_schema
    schema = known(bytes(view[tail + values_bytes : frame_bytes]), imports)
    if values_bytes < schema.fixed.size:
        raise FrameError(f"the tree asks for {schema.fixed.size} bytes of values, the frame has {values_bytes}")
    return schema, tail, values_bytes


def _check_header(view: memoryview) -> tuple[int, int, int]:
    if len(view) < HEADER_BYTES:
        raise FrameError(f"a frame has at least {HEADER_BYTES} bytes, here are {len(view)}")
    magic, version, frame_bytes, tail, values_bytes, schema_bytes, spare, spare2 = _HEADER.unpack_from(view)
    if magic != _MAGIC:
        raise FrameError(f"a frame begins with {_MAGIC!r}, these bytes with {magic!r}")
    if version != VERSION or spare or spare2:
        raise FrameError(f"the frame has version {version}.{spare}.{spare2}, this reader knows {VERSION}.0.0")
    if not HEADER_BYTES <= tail <= frame_bytes <= len(view) or tail + values_bytes + schema_bytes != frame_bytes:
        raise FrameError(
            f"a frame of {frame_bytes} bytes in a buffer of {len(view)} cannot have its tail at {tail}, "
            f"{values_bytes} bytes of values and {schema_bytes} of schema"
        )
    if schema_bytes > MAX_SCHEMA_BYTES:
        raise FrameError(f"the schema has {schema_bytes} bytes, at most {MAX_SCHEMA_BYTES} are allowed")
    return tail, values_bytes, frame_bytes


compiled = functools.lru_cache(maxsize=_CACHED)(compile_schema)


def read_values(schema: Schema, view: memoryview) -> list:
    values = list(schema.fixed.unpack_from(view))
    at, end = schema.fixed.size, len(view)
    for first, count, decode in schema.sized:
        for index in range(first, first + count):
            start, at = at, at + values[index]
            if at > end:
                raise FrameError(f"a text or other value ends at byte {at} of {end}")
            values[index] = decode(bytes(view[start:at]))
    if at != end:
        raise FrameError(f"the values end at byte {at} of {end}")
    return values


def _copy_in(buffer, offset: int, array: np.ndarray) -> None:
    dtype = array.dtype
    if not array.nbytes:
        return
    if dtype.names is not None:  # as raw bytes, so that padding comes along and nothing stale stays behind
        dtype = np.dtype((np.void, dtype.itemsize))
        array = array.view(dtype)
    if array.nbytes >= PAST_CACHE and array.flags.c_contiguous:
        copy_into(np.ndarray((array.nbytes,), np.uint8, buffer, offset), array.reshape(-1).view(np.uint8))
    else:
        np.ndarray(array.shape, dtype, buffer, offset)[...] = array


def _finish(view: memoryview, tail: int, values: bytes, schema: bytes) -> int:
    at = tail + len(values)
    frame_bytes = at + len(schema)
    view[tail:at] = values
    view[at:frame_bytes] = schema
    _HEADER.pack_into(view, 0, _MAGIC, VERSION, frame_bytes, tail, len(values), len(schema), 0, 0)
    return frame_bytes


def _bytes_of(buffer) -> memoryview:
    view = memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _round_up(end: int) -> int:
    return -(-end // ALIGNMENT) * ALIGNMENT


def _too_large(needed: int, available: int) -> BatchTooLarge:
    return BatchTooLarge(
        f"the batch needs {needed} bytes, a slot has {available}; "
        f"create the ring with slot_bytes={needed} or more, or send smaller batches",
        needed_bytes=needed,
        available_bytes=available,
    )
