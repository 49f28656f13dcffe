# cython: language_level=3, embedsignature=True, embedsignature.format=python
"""Small messages, straight between Python objects and slots. What stands in the slot is a frame, as frame.py draws it, byte
for byte; only the way there is shorter: for byte strings and text (see Lone), and for small trees of plain numbers,
text and arrays (see Sketch). All else is frame.py's.

Reading trusts no more than frame.py does, and judges nothing: a frame that is not as expected in any way goes there.
"""

cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc cimport errno
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from ringbuf._core cimport Claim, Lease, Ring, check, deadline_of, filter_of, tag_of, target_of
from ringbuf._ringbuf cimport rb_filter, rb_slot

import numpy as np

from ringbuf import checks, frame
from ringbuf.dtypes import spec_of
from ringbuf.errors import Closed, Empty, Full

cdef extern from "endian.h" nogil:
    uint64_t htole64(uint64_t host)
    uint64_t le64toh(uint64_t little)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef extern from *:
    """typedef const volatile uint64_t shared_word;"""
    ctypedef uint64_t shared_word  # is read as often as it is written here, not as a compiler likes

cdef enum:
    # Words of a header. The first two and the last two are the same in all frames.
    FRAME_BYTES = 2
    TAIL = 3
    VALUES_BYTES = 4
    SCHEMA_BYTES = 5
    SPARE = 6
    HEADER_WORDS = 8
    HEADER = 8 * HEADER_WORDS

    SMALL = 1 << 16       # bytes; to copy more takes longer than all that is saved here
    LEAVES = 32           # of one sketch
    DEPTH = 8

cdef object ndarray = np.ndarray
cdef object lay_out = frame.laid_out
cdef object compiled = frame.compiled
cdef Py_ssize_t schema_most = frame.CACHED_BYTES
cdef uint64_t frame_room = frame.FRAME_ROOM


# ---- one byte string, or one text -------------------------------------------------------------------------------
#
# Its frame is that of an empty one with its length added to three words:
#
#     0      8        16           24    32            40            48 56   64      72 ...    72 + length
#     magic  version  frame_bytes  tail  values_bytes  schema_bytes  0  0    length  content   schema
#
# When it is read, all but the content is compared with what would be written here around so many bytes: no number from
# shared memory is used at all.

cdef enum:
    LENGTH = 8            # the word
    HEAD = 72             # bytes before the content
    END = 8               # bytes after it

cdef unsigned char BYTES[HEAD + END]
cdef unsigned char TEXT[HEAD + END]


cdef int learn(unsigned char *into, message) except -1:
    """Keep the frame of an empty message, from whom frames are defined by."""
    plan = frame.plan(message)
    cdef bytearray buffer = bytearray(HEAD + END)
    assert plan.write(buffer) == HEAD + END
    memcpy(into, <unsigned char *>buffer, HEAD + END)
    return 0


learn(BYTES, b"")
learn(TEXT, "")


cdef void fill_head(void *to, uint64_t length) noexcept nogil:
    """What stands before a content of so many bytes."""
    cdef uint64_t *words = <uint64_t *>to
    memcpy(words, BYTES, HEAD)
    words[FRAME_BYTES] = htole64(HEAD + length + END)
    words[VALUES_BYTES] = htole64(8 + length)
    words[LENGTH] = htole64(length)


cdef struct Lone:
    const char *content
    Py_ssize_t length
    unsigned char *empty   # BYTES or TEXT


cdef bint is_lone(object message, uint64_t slot_bytes, Lone *lone):
    if type(message) is bytes:
        lone.content, lone.length, lone.empty = PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message), BYTES
    elif type(message) is str:
        if len(<str>message) > SMALL:
            return False
        try:
            lone.content = PyUnicode_AsUTF8AndSize(message, &lone.length)
        except UnicodeError:  # a lone surrogate
            return False
        lone.empty = TEXT
    else:
        return False
    return <uint64_t>lone.length + HEAD + END <= min(slot_bytes, SMALL)


cdef object lone_in(const rb_slot *slot):
    """The byte string or text whose frame this is, or None. `slot.bytes` is our own copy of that number."""
    cdef char head[HEAD]
    cdef char end[END]
    cdef char *data = <char *>slot.data
    cdef Py_ssize_t length = slot.bytes - HEAD - END
    if not HEAD + END <= slot.bytes <= SMALL:
        return None
    fill_head(head, length)
    if memcmp(data, head, HEAD) != 0:
        return None
    if memcmp(data + HEAD + length, BYTES + HEAD, END) == 0:
        return PyBytes_FromStringAndSize(data + HEAD, length)
    if memcmp(data + HEAD + length, TEXT + HEAD, END) == 0:
        # A decoder reads twice, so not from shared memory.
        content = PyBytes_FromStringAndSize(data + HEAD, length)
        try:
            return PyUnicode_DecodeUTF8(PyBytes_AS_STRING(content), length, NULL)
        except UnicodeError:
            pass
    return None


# ---- small trees ------------------------------------------------------------------------------------------------


@cython.final
@cython.no_gc
@cython.freelist(8)
cdef class Sketch:
    """frame.Plan for a small tree out of plain types: the same frame, from one walk in C."""

    cdef Py_buffer views[LEAVES]
    cdef Py_ssize_t arrays
    cdef list rows
    cdef char fixed[8 * LEAVES]     # the values of fixed size
    cdef Py_ssize_t fixed_bytes
    cdef list content               # those that follow them, as bytes
    cdef Py_ssize_t content_bytes
    cdef Py_ssize_t leaves
    cdef object layout
    cdef Py_ssize_t frame_bytes

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.arrays):
            PyBuffer_Release(&self.views[i])

    cdef object node(self, object value, int depth):
        """The node of tree.py's for this value, or None: it needs more than this."""
        cdef int overflow = 0
        cdef int64_t whole
        cdef double real
        kind = type(value)
        if kind is dict or kind is list or kind is tuple:
            return self.container(kind, value, depth)
        self.leaves += 1
        if self.leaves > LEAVES:
            return None
        if kind is ndarray:
            return self.array(value)
        if kind is int:
            whole = PyLong_AsLongLongAndOverflow(value, &overflow)
            return "i" if overflow == 0 and self.word(htole64(<uint64_t>whole)) else None
        if kind is float:
            real = value
            memcpy(&whole, &real, 8)
            return "f" if self.word(htole64(<uint64_t>whole)) else None
        if kind is bytes:
            return "y" if self.sized(value) else None
        if kind is str and len(<str>value) <= SMALL:
            return "s" if self.sized((<str>value).encode("utf-8", "surrogatepass")) else None
        if kind is bool:
            self.fixed[self.fixed_bytes] = value is True
            self.fixed_bytes += 1
            return "b"
        if value is None:
            return "n"
        return None

    cdef object container(self, object kind, object value, int depth):
        cdef list nodes, keys
        cdef tuple children  # of this moment; another thread may change the container
        if depth == DEPTH or len(value) > LEAVES:
            return None
        if kind is dict:
            keys, values = [], []
            for key, child in list((<dict>value).items()):
                if type(key) is not str:
                    return None
                keys.append(key)
                values.append(child)
            nodes, children = ["dict", tuple(keys)], tuple(values)
        else:
            nodes, children = ["list" if kind is list else "tuple"], tuple(value)
        cdef bint alike = kind is not dict and len(children) > 1
        for child in children:
            node = self.node(child, depth + 1)
            if node is None:
                return None
            alike = alike and type(node) is str and node in "bifsy" and (len(nodes) == 1 or node == nodes[1])
            nodes.append(node)
        if alike:
            return (nodes[0] + "*", nodes[1], len(children))
        return tuple(nodes)

    cdef bint word(self, uint64_t little) noexcept:
        memcpy(self.fixed + self.fixed_bytes, &little, 8)
        self.fixed_bytes += 8
        return True

    cdef bint sized(self, bytes content):
        self.content.append(content)
        self.content_bytes += PyBytes_GET_SIZE(content)
        return self.word(htole64(<uint64_t>PyBytes_GET_SIZE(content)))

    cdef object array(self, object value):
        cdef Py_buffer *view = &self.views[self.arrays]
        dtype = value.dtype
        if dtype.names is not None:
            return None  # their padding is a matter for frame.py
        try:
            spec = spec_of(dtype)
            PyObject_GetBuffer(value, view, PyBUF_C_CONTIGUOUS)
        except (TypeError, ValueError, BufferError):
            return None
        self.arrays += 1
        self.rows.append((spec, value.shape, view.len))
        return "a" if view.len <= SMALL else None

    cdef void write(self, char *data):
        cdef Py_ssize_t i, at = self.layout.tail
        cdef bytes schema = self.layout.schema
        cdef uint64_t *words = <uint64_t *>data
        memcpy(data, BYTES, HEADER)
        words[FRAME_BYTES] = htole64(self.frame_bytes)
        words[TAIL] = htole64(at)
        words[VALUES_BYTES] = htole64(self.fixed_bytes + self.content_bytes)
        words[SCHEMA_BYTES] = htole64(PyBytes_GET_SIZE(schema))
        offsets = self.layout.offsets
        for i in range(self.arrays):
            memcpy(data + <Py_ssize_t>offsets[i], self.views[i].buf, self.views[i].len)
        memcpy(data + at, self.fixed, self.fixed_bytes)
        at += self.fixed_bytes
        for content in self.content:
            memcpy(data + at, PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))
            at += PyBytes_GET_SIZE(content)
        memcpy(data + at, PyBytes_AS_STRING(schema), PyBytes_GET_SIZE(schema))


cdef Sketch sketch_of(object message, uint64_t slot_bytes):
    """A sketch of a message that fits into such a slot of a RingBuffer, or None: it is one for frame.py."""
    cdef Sketch sketch = Sketch.__new__(Sketch)
    sketch.rows = []
    sketch.content = []
    tree = sketch.node(message, 0)
    if tree is None:
        return None
    sketch.layout = lay_out(tree, tuple(sketch.rows))
    sketch.frame_bytes = (<Py_ssize_t>sketch.layout.tail + sketch.fixed_bytes + sketch.content_bytes
                          + PyBytes_GET_SIZE(sketch.layout.schema))
    if sketch.frame_bytes > <Py_ssize_t>min(slot_bytes, SMALL):
        return None
    if <Py_ssize_t>sketch.layout.data_bytes + <Py_ssize_t>frame_room > <Py_ssize_t>max(slot_bytes, frame_room):
        return None
    return sketch


cdef object tree_in(Lease lease, bint imports):
    """What the frame in a slot holds, or None: frame.py has to look at it. Each byte outside arrays is read once."""
    cdef uint64_t words[HEADER_WORDS]
    cdef Py_ssize_t i
    if lease.slot.bytes < HEADER:
        return None
    for i in range(HEADER_WORDS):
        words[i] = (<shared_word *>lease.slot.data)[i]
    if memcmp(words, BYTES, 16) != 0 or memcmp(words + SPARE, BYTES + 8 * SPARE, 16) != 0:
        return None
    cdef uint64_t frame_bytes = le64toh(words[FRAME_BYTES])
    cdef uint64_t tail = le64toh(words[TAIL])
    cdef uint64_t values_bytes = le64toh(words[VALUES_BYTES])
    cdef uint64_t schema_bytes = le64toh(words[SCHEMA_BYTES])
    if not HEADER <= tail <= frame_bytes <= lease.slot.bytes:
        return None
    if values_bytes > frame_bytes - tail or schema_bytes != frame_bytes - tail - values_bytes:
        return None
    if schema_bytes > <uint64_t>schema_most:
        return None
    cdef char *at = <char *>lease.slot.data + tail
    try:
        schema = compiled(PyBytes_FromStringAndSize(at + values_bytes, schema_bytes), imports)
        if schema.pickled or schema.arrays_end > tail:
            return None
        leaves = [ndarray(shape, dtype, lease, offset) for shape, dtype, offset, _ in schema.fields]
        if values_bytes:
            leaves += frame.read_values(schema, PyBytes_FromStringAndSize(at, values_bytes))
        return (schema.build(leaves),)
    except Exception:
        return None


# ---- producers ----------------------------------------------------------------------------------------------


cdef int put_lone(Ring ring, const Lone *lone, uint64_t tag, uint32_t target, int64_t until) except? -1:
    """0, or why there was no slot."""
    cdef rb_slot slot
    cdef char *data
    cdef int rc = ring.claim_slot(tag, target, until, &slot)
    if rc == 0:
        data = <char *>slot.data
        fill_head(data, lone.length)
        memcpy(data + HEAD, lone.content, lone.length)
        memcpy(data + HEAD + lone.length, lone.empty + HEAD, END)
        check(ring.commit_slot(&slot, HEAD + lone.length + END), ring)
    return rc


cdef int put_sketch(Ring ring, Sketch sketch, uint64_t tag, uint32_t target, int64_t until) except? -1:
    cdef rb_slot slot
    cdef int rc = ring.claim_slot(tag, target, until, &slot)
    if rc == 0:
        sketch.write(<char *>slot.data)
        check(ring.commit_slot(&slot, sketch.frame_bytes), ring)
    return rc


cdef int put_plan(Ring ring, object plan, uint64_t tag, uint32_t target, int64_t until) except? -1:
    cdef Claim claim = Claim.__new__(Claim)
    cdef rb_slot slot
    cdef int rc = ring.claim_slot(tag, target, until, &slot)
    if rc == 0:
        claim.holds(ring, &slot)  # gives the slot back if the next line raises
        claim.commit(plan.write(claim))
    return rc


def put(Ring ring, message, timeout, tag, target):
    """Publish `message` if it is a small one; else return False, and nothing was looked at."""
    cdef Lone lone
    cdef Sketch sketch = None
    if not is_lone(message, ring.slot_bytes, &lone):
        sketch = sketch_of(message, ring.slot_bytes)
        if sketch is None:
            return False
    cdef uint64_t c_tag = tag_of(tag)
    cdef uint32_t c_target = target_of(target)
    cdef int64_t until = deadline_of(timeout)
    cdef int rc
    if sketch is None:
        rc = put_lone(ring, &lone, c_tag, c_target, until)
    else:
        rc = put_sketch(ring, sketch, c_tag, c_target, until)
    check(rc, ring, Full, timeout)
    return True


def planned(Ring ring, messages, slot_bytes):
    """`messages` as put_all() takes them: small ones, and plans that fit. Raises as put() of one of them."""
    cdef Lone lone
    plans = []
    for message in messages:
        if not is_lone(message, ring.slot_bytes, &lone):
            plan = sketch_of(message, ring.slot_bytes)
            if plan is None:
                plan = frame.plan(message)
                plan.check(slot_bytes)
            message = plan
        plans.append(message)
    return plans


def put_all(Ring ring, list plans, timeout, tag, target):
    """Publish what planned() made, one after the other until `timeout` has passed, and return how many that were."""
    cdef uint64_t c_tag = tag_of(tag)
    cdef uint32_t c_target = target_of(target)
    cdef int64_t until = deadline_of(timeout)
    cdef Py_ssize_t done = 0
    cdef Lone lone
    cdef int rc
    for plan in plans:
        try:
            if is_lone(plan, ring.slot_bytes, &lone):
                rc = put_lone(ring, &lone, c_tag, c_target, until)
            elif type(plan) is Sketch:
                rc = put_sketch(ring, plan, c_tag, c_target, until)
            else:
                rc = put_plan(ring, plan, c_tag, c_target, until)
        except Closed:  # by another thread, while we waited
            if done == 0:
                raise
            break
        if rc < 0:
            if done == 0 or not is_end(rc):
                check(rc, ring, Full, timeout)
            break
        done += 1
    return done


cdef bint is_end(int rc) noexcept:
    """Does it only mean that no more can be had now?"""
    return rc == -errno.EAGAIN or rc == -errno.ETIMEDOUT or rc == -errno.EPIPE


# ---- consumers ----------------------------------------------------------------------------------------------


cdef object take_message(Ring ring, const rb_filter *wanted, int64_t until, bint copy, bint imports, int *rc):
    """The oldest message; with *rc below 0, why there is none."""
    cdef Lease lease
    cdef rb_slot slot
    rc[0] = ring.take_slot(wanted, until, &slot)
    if rc[0] < 0:
        return None
    try:
        message = lone_in(&slot)
        if message is not None:
            ring.release_slot(&slot)
            return message
        lease = Lease.__new__(Lease)
    except MemoryError:
        ring.release_slot(&slot)
        raise
    lease.holds(ring, &slot)
    if not copy:
        tree = tree_in(lease, imports)
        if tree is not None:
            return tree[0]
    return frame.read(lease, copy=copy, imports=imports)


def take(Ring ring, timeout, tag, target, bint copy, bint imports):
    """The oldest message, of this tag and for this target if given, as frame.read() gives it."""
    cdef rb_filter wanted
    cdef int rc
    filter_of(tag, target, &wanted)
    message = take_message(ring, &wanted, deadline_of(timeout), copy, imports, &rc)
    check(rc, ring, Empty, timeout)
    return message


def take_all(Ring ring, n, timeout, tag, target, bint imports):
    """Wait for one message, and return it with those that are there by then, n at most, oldest first."""
    cdef Py_ssize_t most = checks.whole("n", n, at_least=1, at_most=INT64_MAX)
    cdef rb_filter wanted
    cdef int rc
    filter_of(tag, target, &wanted)
    message = take_message(ring, &wanted, deadline_of(timeout), False, imports, &rc)
    check(rc, ring, Empty, timeout)
    messages = [message]
    while len(messages) < most and not ring.closed:
        message = take_message(ring, &wanted, 0, False, imports, &rc)
        if rc < 0:
            if not is_end(rc):
                check(rc, ring)
            break
        messages.append(message)
    return messages
