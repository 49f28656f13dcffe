# cython: language_level=3, embedsignature=True, embedsignature.format=python
"""The part of collation that is done for each value: is it like the first one, and if so, its bytes into its row.

    Pile                        a batch while its samples come in
      Fields, Items             a mapping or sequence in each sample: columns below
        Rows                    arrays, array scalars or tensors of one shape and dtype
        Numbers                 Python's own bools, ints or floats
        Gathered                what is kept as it is until the end

What to make of a value that is not like the first one is for the subclasses to say (collate.py, and torch's): they are asked by
`Rows.unlike`, `Items.unequal` and `Pile.refuse`.

A pile of arrays and numbers in plain containers can be used again, for a batch whose first sample has the very same layout. Its
rows may then lie in a slot at the offsets where the batch before had them, without an array being made.

The GIL is let go for the copy of a large row.
"""

cimport cython
cimport numpy as cnp
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_Clear
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from ringbuf cimport rb_copy_streaming

import numpy as np

cnp.import_array()

cdef enum:
    WORTH_LETTING_GO = 1 << 16 # bytes; a shorter copy takes less time than handing the GIL over
    PAST_CACHE = 8 << 20       # bytes; a column of this size has left the caches by the time somebody reads it
    MOST_DIMENSIONS = 64
    WIDEST_SCALAR = 32         # bytes; a complex number of two long doubles

# ---- tensors, as the DLPack standard has them laid down -------------------------------------------------------------

cdef enum:
    DLPACK_MAJOR = 1
    CPU = 1
    COMPLEX = 5

ctypedef struct Kind:
    uint8_t code
    uint8_t bits
    uint16_t lanes

ctypedef struct Tensor:
    void *data
    int32_t device
    int32_t device_id
    int32_t ndim
    Kind kind
    int64_t *shape
    int64_t *strides
    uint64_t byte_offset

ctypedef int (*Look)(void *tensor, Tensor *out) noexcept

ctypedef struct Exchange:
    uint32_t major
    uint32_t minor
    void *older
    void *allocate
    void *give
    void *take
    Look look         # fills in what `tensor` is, which stays its owner's; may be NULL
    void *stream

cdef Look look_of(object kind) except? NULL:
    """How to look at tensors of this type; NULL where it has no such function."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return NULL
    cdef Exchange *exchange = <Exchange *>PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
    return exchange.look if exchange.major == DLPACK_MAJOR else <Look>NULL


# ---- columns --------------------------------------------------------------------------------------------------------


cdef class Column:
    """One place in the samples' nesting."""

    cdef int add(self, Py_ssize_t row, object value) except -1:
        """Take the value of a row, the rows in order."""
        raise NotImplementedError

    cdef bint takes(self, object first) except -1:
        """Whether a column made for the batch that begins with `first` would be surely this one."""
        return False

    cdef bint repeats(self):
        """Whether it takes any first value at all, and keeps none of them."""
        return False

    cdef void collect_leaves(self, list leaves):
        """Append those whose rows are parts of an array, in the order in which they are allocated."""


cdef class Leaf(Column):
    """A column whose rows are parts of one array.

    dtype, shape: of a row.
    """

    cdef readonly object dtype
    cdef readonly tuple shape
    cdef object array          # None: not made, see `out`
    cdef object slot           # where the rows lie that have no array, and ...
    cdef Py_ssize_t offset     # ... from which byte on
    cdef char *start           # of the first row; NULL: nowhere yet
    cdef Py_ssize_t rows, row_bytes
    cdef bint past_cache
    cdef bint moved            # the rows, or some of them, are not where they were laid out

    cdef bint repeats(self):
        return True

    cdef void collect_leaves(self, list leaves):
        leaves.append(self)

    def allocate(self, rows, empty):
        """Have the rows in an array that `empty(shape, dtype)` returns."""
        self.lie_in(empty((rows, *self.shape), self.dtype))

    @property
    def out(self):
        """The array of all rows."""
        if self.array is None and self.slot is not None:
            self.array = np.ndarray((self.rows, *self.shape), self.dtype, self.slot, self.offset)
        return self.array

    def move_to(self, array):
        """Have the rows in another array from now on, whose first ones are filled."""
        self.lie_in(array)
        self.dtype = array.dtype
        self.moved = True

    def forget(self, row):
        """Not even its beginning counts of what came for this row."""

    cdef int lie_in(self, object out) except -1:
        if not cnp.PyArray_Check(out) or not cnp.PyArray_IS_C_CONTIGUOUS(out) or len(out) == 0:
            raise ValueError("rows lie in a C-contiguous array of one row or more")
        self.array, self.slot = out, None
        self.measure(len(out), cnp.PyArray_NBYTES(out))
        self.start = <char *>cnp.PyArray_DATA(out)
        return 0

    cdef void measure(self, Py_ssize_t rows, Py_ssize_t nbytes):
        self.rows = rows
        self.row_bytes = nbytes // rows
        self.past_cache = nbytes >= PAST_CACHE

    cdef void lie_at(self, object slot, char *begin, Py_ssize_t offset):
        """Have the rows in a slot, where there is room for them."""
        self.array, self.slot, self.offset, self.start = None, slot, offset, begin + offset

    cdef void clear(self):
        self.array = self.slot = None
        self.start = NULL

    cdef char *place_of(self, Py_ssize_t row) except NULL:
        if self.start == NULL or row < 0 or row >= self.rows:
            raise IndexError(f"row {row} of {self.rows if self.start != NULL else 0}")
        return self.start + row * self.row_bytes


cdef enum:
    NOT_AT_ALL                 # how the bytes of a value are found
    OF_ARRAY
    OF_SCALAR
    OF_TENSOR


cdef class Rows(Leaf):
    """Values of one type, dtype and shape.

    kind: their type. first: one of them, where `kind` is that of a tensor.
    """

    cdef readonly object kind
    cdef int bytes_lie
    cdef int ndim
    cdef cnp.npy_intp lengths[MOST_DIMENSIONS]
    cdef char scalar[WIDEST_SCALAR]
    cdef Look look
    cdef Kind tensor_kind

    def __init__(self, kind, dtype, shape, first=None):
        cdef Tensor seen
        self.kind, self.dtype, self.shape = kind, dtype, shape
        self.ndim = len(shape)
        for axis in range(self.ndim):
            self.lengths[axis] = shape[axis]
        self.bytes_lie = NOT_AT_ALL
        if kind is np.ndarray:
            self.bytes_lie = OF_ARRAY
        elif issubclass(kind, np.generic):
            if dtype.type is kind and dtype.kind in "biufc":  # others have more to their dtype than their type says
                self.bytes_lie = OF_SCALAR
        else:
            self.look = look_of(kind)
            if self.look != NULL and self.seen(first, &seen):
                self.bytes_lie, self.tensor_kind = OF_TENSOR, seen.kind

    def unlike(self, row, value):
        """Take a value that is not exactly like the first one, or whose bytes do not lie in order."""
        raise NotImplementedError

    cdef int add(self, Py_ssize_t row, object value) except -1:
        cdef const void *source = self.bytes_of(value)
        if source == NULL:
            self.unlike(row, value)
        else:
            self.copy(row, source)
        return 0

    cdef bint takes(self, object first) except -1:
        return self.bytes_of(first) != NULL

    def put(self, row, array):
        """Copy a value into its row that numpy can bring into its shape and dtype."""
        cdef bint same = cnp.PyArray_CheckExact(array) and cnp.PyArray_IS_C_CONTIGUOUS(array) and array.shape == self.shape
        if same and (array.dtype is self.dtype or array.dtype == self.dtype and self.dtype.kind in "biufc"):
            self.copy(row, cnp.PyArray_DATA(array))
        else:
            self.place_of(row)
            self.out[row] = array

    def put_from(self, row, size_t address):
        """Copy a row from an address: of what surely has that many bytes there."""
        self.copy(row, <const void *>address)

    cdef const void *bytes_of(self, object value) except? NULL:
        """Where the bytes of a value begin that is exactly like the first one; NULL for any other."""
        if type(value) is not self.kind:
            return NULL
        if self.bytes_lie == OF_ARRAY:
            if (
                <object>cnp.PyArray_DESCR(<cnp.ndarray>value) is self.dtype
                and cnp.PyArray_NDIM(<cnp.ndarray>value) == self.ndim
                and memcmp(cnp.PyArray_DIMS(<cnp.ndarray>value), self.lengths, self.ndim * sizeof(cnp.npy_intp)) == 0
                and cnp.PyArray_IS_C_CONTIGUOUS(<cnp.ndarray>value)
            ):
                return cnp.PyArray_DATA(<cnp.ndarray>value)
        elif self.bytes_lie == OF_SCALAR:
            if not self.moved:
                cnp.PyArray_ScalarAsCtype(value, self.scalar)
                return self.scalar
        elif self.bytes_lie == OF_TENSOR:
            return self.bytes_of_tensor(value)
        return NULL

    cdef const void *bytes_of_tensor(self, object value) except? NULL:
        cdef Tensor seen
        cdef int64_t step = 1
        cdef int axis
        if not self.seen(value, &seen) or memcmp(&seen.kind, &self.tensor_kind, sizeof(Kind)) != 0 or seen.ndim != self.ndim:
            return NULL
        for axis in range(self.ndim - 1, -1, -1):
            if seen.shape[axis] != self.lengths[axis] or (seen.strides[axis] != step and seen.shape[axis] != 1):
                return NULL
            step *= seen.shape[axis]
        # What is not in its bytes: none of these has to do with their layout.
        if value.requires_grad or value.is_neg() or (seen.kind.code == COMPLEX and value.is_conj()):
            return NULL
        return <char *>seen.data + seen.byte_offset

    cdef bint seen(self, object value, Tensor *out):
        """Look at a tensor; False where there is nothing in this process's memory to look at."""
        if self.look(<void *>value, out) != 0:
            PyErr_Clear()
            return False
        return out.device == CPU and out.data != NULL and (out.ndim == 0 or out.strides != NULL)

    cdef int copy(self, Py_ssize_t row, const void *source) except -1:
        cdef char *place = self.place_of(row)
        cdef Py_ssize_t nbytes = self.row_bytes
        if nbytes < WORTH_LETTING_GO:
            copy_bytes(place, source, nbytes, self.past_cache)
        else:
            with nogil:
                copy_bytes(place, source, nbytes, self.past_cache)
        return 0


cdef void copy_bytes(void *to, const void *source, size_t nbytes, bint past_cache) noexcept nogil:
    if past_cache:
        rb_copy_streaming(to, source, nbytes)
    else:
        memcpy(to, source, nbytes)


cdef dict NUMBERS = {bool: np.dtype(np.bool_), int: np.dtype(np.int64), float: np.dtype(np.float64)}


cdef class Numbers(Leaf):
    """Python numbers: laid down as long as all are of the first one's type, gathered from the first one that is not.

    kind: the type of the first one. values: what was gathered, None where nothing was.
    """

    cdef readonly object kind
    cdef readonly list values

    def __init__(self, first):
        self.kind = type(first)
        self.dtype = NUMBERS.get(self.kind)
        self.shape = ()
        self.values = [] if self.dtype is None else None  # a subclass, which may be anything

    cdef void collect_leaves(self, list leaves):
        if self.dtype is not None:
            leaves.append(self)

    def allocate(self, rows, empty):
        if self.dtype is not None:
            self.lie_in(empty((rows,), self.dtype))

    cdef bint takes(self, object first) except -1:
        return type(first) is self.kind and self.dtype is not None

    cdef int add(self, Py_ssize_t row, object value) except -1:
        if self.values is None and (type(value) is not self.kind or not self.lay_down(self.place_of(row), value)):
            self.values = self.out[:row].tolist()
            self.moved = True
        if self.values is not None:
            self.values.append(value)
        return 0

    cdef bint lay_down(self, char *place, object value) except -1:
        """Write a number of the right type; False for an int that is too large."""
        cdef int overflow = 0
        if self.kind is float:
            (<double *>place)[0] = <double>value
        elif self.kind is bool:
            place[0] = value is True
        else:
            (<int64_t *>place)[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
        return overflow == 0

    def value(self, row):
        """The number of a row."""
        return self.out[row].item() if self.values is None else self.values[row]

    def forget(self, row):
        if self.values is not None:
            del self.values[row:]


cdef class Gathered(Column):
    """Values that stay what they are."""

    cdef readonly list values

    def __init__(self):
        self.values = []

    def allocate(self, rows, empty):
        pass

    cdef int add(self, Py_ssize_t row, object value) except -1:
        self.values.append(value)
        return 0

    def forget(self, row):
        del self.values[row:]


# ---- containers -----------------------------------------------------------------------------------------------------


cdef class Nested(Column):
    """Columns below a container.

    first: the first sample's; an empty one, where it is a dict, list or tuple, of which nothing else matters.
    children: (key or place, column).
    """

    cdef readonly object first
    cdef readonly list children
    cdef object kind
    cdef bint plain
    cdef tuple keys, columns

    def __init__(self, first, children):
        self.kind = type(first)
        self.plain = self.kind is dict or self.kind is list or self.kind is tuple
        self.first = self.kind() if self.plain else first
        self.children = children
        self.keys = tuple([key for key, _ in children])
        self.columns = tuple([column for _, column in children])

    def nbytes(self, rows):
        return sum([child.nbytes(rows) for _, child in self.children])

    def allocate(self, rows, empty):
        for _, child in self.children:
            child.allocate(rows, empty)

    def forget(self, row):
        for _, child in self.children:
            child.forget(row)

    cdef bint repeats(self):
        for column in self.columns:
            if not (<Column>column).repeats():
                return False
        return self.plain

    cdef void collect_leaves(self, list leaves):
        for column in self.columns:
            (<Column>column).collect_leaves(leaves)


cdef class Fields(Nested):
    """Mappings; the first one's keys decide."""

    cdef int add(self, Py_ssize_t row, object value) except -1:
        cdef Py_ssize_t at
        for at in range(len(self.columns)):
            (<Column>self.columns[at]).add(row, value[self.keys[at]])
        return 0

    cdef bint takes(self, object first) except -1:
        cdef Py_ssize_t at = 0
        if not self.plain or type(first) is not self.kind or len(<dict>first) != len(self.keys):
            return False
        for key, value in (<dict>first).items():
            if not same_key(key, self.keys[at]) or not (<Column>self.columns[at]).takes(value):
                return False
            at += 1
        return True


cdef bint same_key(object one, object other) except -1:
    # Of other types, equal ones need not be the same: 1 and True, (1, 2) and (1.0, 2.0).
    return one is other or (type(one) is str and type(other) is str and one == other)


cdef class Items(Nested):
    """Sequences of one length."""

    cdef int add(self, Py_ssize_t row, object value) except -1:
        cdef Py_ssize_t at, length = len(value)
        if length != len(self.columns):
            self.unequal(length)
        if type(value) is tuple or type(value) is list:
            for at in range(length):
                (<Column>self.columns[at]).add(row, value[at])
        else:
            for column, part in zip(self.columns, value, strict=True):
                (<Column>column).add(row, part)
        return 0

    def unequal(self, length):
        """Raise for a sequence of another length."""
        raise NotImplementedError

    cdef bint takes(self, object first) except -1:
        cdef Py_ssize_t at
        if not self.plain or type(first) is not self.kind or len(first) != len(self.columns):
            return False
        for at in range(len(self.columns)):
            if not (<Column>self.columns[at]).takes(first[at]):
                return False
        return True


# ---- the batch ------------------------------------------------------------------------------------------------------


cdef class Pile:
    """The rows of one batch while they come in, and then those of the next one like it.

    root: the column for whole samples.
    rows: how many there will be at most.
    indices: what to call the samples in messages; their places in the batch if not given.
    filled: how many rows are.
    form: for whoever lays the rows out, to remember how; None at first.
    repeats: whether again() may be true; if not, it holds on to parts of the first sample and is to be dropped.
    """

    cdef readonly Py_ssize_t rows
    cdef public Py_ssize_t filled
    cdef public object form
    cdef readonly bint repeats
    cdef readonly object indices
    cdef readonly Column root
    cdef list leaves
    cdef object room           # what nbytes() returns

    def __init__(self, Column root, rows, indices=None):
        self.root = root
        self.rows = rows
        self.indices = indices
        self.repeats = root.repeats()
        self.leaves = []
        root.collect_leaves(self.leaves)

    def nbytes(self):
        """Room that the rows need, as far as the first sample tells."""
        if self.room is None:
            self.room = self.root.nbytes(self.rows)
        return self.room

    def allocate(self, empty):
        """Lay out the rows in arrays that `empty(shape, dtype)` returns."""
        self.root.allocate(self.rows, empty)

    def place(self, slot, tuple offsets not None):
        """Lay out the rows in `slot`, a buffer that stays where it is as long as it lives.

        offsets: where the arrays from `allocate` lay in another one of the same alignment, in their order.
        """
        cdef Py_buffer view
        cdef Py_ssize_t offset, at
        cdef Leaf leaf
        PyObject_GetBuffer(slot, &view, PyBUF_WRITABLE)
        PyBuffer_Release(&view)  # the leaves keep the slot
        for at in range(len(self.leaves)):
            leaf, offset = <Leaf>self.leaves[at], offsets[at]
            if offset < 0 or offset > view.len - leaf.rows * leaf.row_bytes:
                raise ValueError(f"{leaf.rows} rows of {leaf.row_bytes} bytes at {offset} of a slot of {view.len} bytes")
            leaf.lie_at(slot, <char *>view.buf, offset)

    def again(self, first, Py_ssize_t rows, indices=None):
        """Begin another batch, if it is surely like the last one: all of that, and this one by its first sample."""
        if rows != self.rows or not self.is_whole() or not self.root.takes(first):
            return False
        self.indices = indices
        self.filled = 0
        return True

    def fill(self, samples):
        """Copy each sample into its row as it comes, the first one included."""
        for sample in samples:
            try:
                self.root.add(self.filled, sample)
            except Exception as error:
                self.refuse(sample, error)
                raise
            self.filled += 1

    def refuse(self, sample, error):
        """Raise something better than `error` for a sample that has no place in its row, if there is something better."""

    @property
    def whole(self):
        """Whether each row is filled, and where it was laid out."""
        return self.is_whole()

    cdef bint is_whole(self):
        cdef Leaf leaf
        if self.filled != self.rows:
            return False
        for leaf in self.leaves:
            if leaf.moved:
                return False
        return True

    def clear(self):
        """Let go of arrays and slots."""
        cdef Leaf leaf
        for leaf in self.leaves:
            leaf.clear()
