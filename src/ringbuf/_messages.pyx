# cython: language_level=3, embedsignature=True, embedsignature.format=python
"""Small messages, straight between Python objects and slots. What stands in the slot is a frame, as frame.py draws it, byte
for byte; only the way there is shorter: for byte strings and text (see Lone), and for small trees of plain numbers,
text and arrays (see Sketch). All else is frame.py's.

Reading trusts no more than frame.py does, and judges nothing: a frame that is not as expected in any way goes there.
"""

cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc cimport errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from ringbuf._core cimport Claim, Lease, Ring, check, deadline_of, filter_of, tag_of, target_of
from ringbuf cimport RB_NOW, rb_filter, rb_slot

import numpy as np

from ringbuf import checks, frame
from ringbuf._core import ANY
from ringbuf.dtypes import spec_of
from ringbuf.errors import Closed, Empty, Full

cdef extern from "endian.h" nogil:
    uint64_t htole64(uint64_t host)
    uint64_t le64toh(uint64_t little)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    const Py_ssize_t PY_SSIZE_T_MAX
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
    LOOK_UP_EVERY = 256   # messages
    DEPTH = 8

NOTHING = object()  # what an attempt returns that found nothing; None is a message like any other

cdef object ndarray = np.ndarray
cdef object laid_out = frame.laid_out
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
    """Keep the frame of an empty message as frame.py writes it."""
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


cdef bint is_lone(object message, uint64_t slot_bytes, Lone *lone) except -1:
    """Whether this is a byte string or text that fits; then *lone is it."""
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
    # The layout, as frame.py worked it out:
    cdef Py_ssize_t offsets[LEAVES]
    cdef Py_ssize_t tail
    cdef bytes schema
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
        self.leaves += 1  # containers count, too: empty ones can be many
        if self.leaves > LEAVES:
            return None
        if kind is dict or kind is list or kind is tuple:
            return self.container(kind, value, depth)
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
        """Add a value of fixed size. LEAVES of them have room."""
        memcpy(self.fixed + self.fixed_bytes, &little, 8)
        self.fixed_bytes += 8
        return True

    cdef bint sized(self, bytes content) except -1:
        """Add a value that lies behind those, which hold its length."""
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

    cdef bint lay_out(self, object node, Ring ring) except -1:
        """Place all parts; False if a slot has no room for them."""
        cdef Py_ssize_t i
        layout = laid_out(node, tuple(self.rows))
        for i in range(self.arrays):
            self.offsets[i] = layout.offsets[i]
        self.tail = layout.tail
        self.schema = layout.schema
        self.frame_bytes = self.tail + self.fixed_bytes + self.content_bytes + PyBytes_GET_SIZE(self.schema)
        return self.frame_bytes <= <Py_ssize_t>min(ring.slot_bytes, SMALL) and layout.data_bytes <= data_room(ring)

    cdef void write(self, char *data) noexcept:
        cdef uint64_t *words = <uint64_t *>data
        cdef Py_ssize_t i
        memcpy(data, BYTES, HEADER)
        words[FRAME_BYTES] = htole64(self.frame_bytes)
        words[TAIL] = htole64(self.tail)
        words[VALUES_BYTES] = htole64(self.fixed_bytes + self.content_bytes)
        words[SCHEMA_BYTES] = htole64(PyBytes_GET_SIZE(self.schema))
        for i in range(self.arrays):
            memcpy(data + self.offsets[i], self.views[i].buf, self.views[i].len)
        data += self.tail
        memcpy(data, self.fixed, self.fixed_bytes)
        data += self.fixed_bytes
        for content in self.content:
            memcpy(data, PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))
            data += PyBytes_GET_SIZE(content)
        memcpy(data, PyBytes_AS_STRING(self.schema), PyBytes_GET_SIZE(self.schema))


cdef Sketch sketch_of(Ring ring, object tree):
    """A sketch of a tree that fits into a slot, or None: it is one for frame.py."""
    cdef Sketch sketch = Sketch.__new__(Sketch)
    sketch.rows = []
    sketch.content = []
    node = sketch.node(tree, 0)
    return sketch if node is not None and sketch.lay_out(node, ring) else None


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
        if schema.pickled or schema.arrays_end > tail or schema.fixed.size > values_bytes:
            return None
        leaves = [ndarray(shape, dtype, lease, offset) for shape, dtype, offset, _ in schema.fields]
        if values_bytes:
            leaves += frame.read_values(schema, PyBytes_FromStringAndSize(at, values_bytes))
        return (schema.build(leaves),)
    except Exception:
        return None


def read(Lease lease not None, bint copy, bint pickle, bint imports):
    """As frame.read(), of a message of any size."""
    tree = None if copy else tree_in(lease, imports)
    return frame.read(lease, copy=copy, pickle=pickle, imports=imports) if tree is None else tree[0]


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


cdef object planned(Ring ring, object tree):
    """`tree` as put_planned() takes it: itself if it is small and alone, a Sketch, or a Plan that fits."""
    cdef Lone lone
    if is_lone(tree, ring.slot_bytes, &lone):
        return tree
    plan = sketch_of(ring, tree)
    if plan is None:
        plan = frame.plan(tree)
        plan.check(data_room(ring))
    return plan


cdef int put_planned(Ring ring, object plan, uint64_t tag, uint32_t target, int64_t until) except? -1:
    cdef Lone lone
    if is_lone(plan, ring.slot_bytes, &lone):
        return put_lone(ring, &lone, tag, target, until)
    if type(plan) is Sketch:
        return put_sketch(ring, plan, tag, target, until)
    return put_plan(ring, plan, tag, target, until)


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


# ---- both, as RingBuffer has them -----------------------------------------------------------------------------


cdef class Messages:
    """What a RingBuffer does once for each message; it is here so that a call costs little more than what it does."""

    cdef readonly Ring _core
    cdef readonly bint _imports      # frames may import the modules of their classes: only among relatives
    cdef public bint _reads_unasked  # subscribed because it attached, and neither read nor wrote yet

    def _open(self, Ring ring not None):
        self._core = ring
        self._imports = ring.name is None

    def put(self, tree, *, timeout=None, tag=0, target=ANY):
        """Publish `tree`, its arrays copied into a slot.

        timeout: seconds to wait for a free slot; None waits for ever, 0 not at all.
        tag: a number that consumers can ask for.
        target: the consumer that it is addressed to; ANY is for whoever takes it first.
        Raises TypeError naming the path of what cannot travel and BatchTooLarge, both before waiting;
        Full when `timeout` passes; Closed after finish() or close().
        """
        cdef Ring ring = self.opened()
        plan = planned(ring, tree)
        if self._reads_unasked:
            self._write_only(timeout=timeout, tag=tag, target=target)
        check(put_planned(ring, plan, tag_of(tag), target_of(target), deadline_of(timeout)), ring, Full, timeout)

    def put_many(self, trees, *, timeout=None, tag=0, target=ANY):
        """Publish several trees in order, each in a slot of its own as by put(), and return how many those were.

        timeout: seconds to wait for free slots, over all; None waits until all are in, 0 not at all.
        Fewer than all are in when the time has passed, or the ring is finished or closed meanwhile; go on with the
        first that is not in. When not even one got in, the errors are those of put(). TypeError and BatchTooLarge, about any
        of them, come before the first is published. A signal's exception leaves those in that were.
        """
        cdef Ring ring = self.opened()
        cdef list plans = [planned(ring, tree) for tree in trees]
        if self._reads_unasked:
            self._write_only(timeout=timeout, tag=tag, target=target)
        cdef uint64_t c_tag = tag_of(tag)
        cdef uint32_t c_target = target_of(target)
        cdef int64_t until = deadline_of(timeout)
        cdef Py_ssize_t done = 0
        cdef int rc
        for plan in plans:
            try:
                rc = put_planned(ring, plan, c_tag, c_target, until)
            except Closed:  # by another thread, while we waited
                if done == 0:
                    raise
                break
            if rc < 0:
                if done == 0 or not is_end(rc):
                    check(rc, ring, Full, timeout)
                break
            done += 1
            if done % LOOK_UP_EVERY == 0:
                PyErr_CheckSignals()
        return done

    def get(self, *, timeout=None, tag=None, target=None):
        """Borrow the oldest message, in place: the tree that was put, its arrays views of the slot.

        timeout: seconds to wait; None waits for ever, 0 not at all.
        tag: take only a message with this tag.
        target: take only one for this consumer, or for anyone.
        The slot returns to the ring when the last view of it is gone, however the view came about.
        In queue mode the views are writable and nobody else's; in broadcast they are read-only.
        Raises Empty when `timeout` passes; Closed when the ring is finished and nothing is left, or is closed.
        """
        return self.take(timeout, tag, target, False)

    def get_copy(self, *, timeout=None, tag=None, target=None):
        """Take the oldest message as private arrays; its slot is free when this returns. Arguments as get()."""
        return self.take(timeout, tag, target, True)

    def get_many(self, n, *, timeout=None, tag=None, target=None):
        """Wait for a message and return it with all that are there by then, oldest first, `n` at most.

        Arguments and errors are those of get(), and so is what the list holds: each array keeps its slot.
        A message that is no frame is an error also behind good ones; those are given up with it, as they are when a signal's
        exception comes while one is opened.
        """
        cdef Py_ssize_t most = checks.whole("n", n, at_least=1, at_most=PY_SSIZE_T_MAX)
        cdef rb_filter wanted
        cdef int rc
        cdef Ring ring = self.opened()
        self._reads_unasked = False
        filter_of(tag, target, &wanted)
        message = take_message(ring, &wanted, deadline_of(timeout), False, self._imports, &rc)
        check(rc, ring, Empty, timeout)
        cdef list messages = [message]
        most = min(most, 1 + <Py_ssize_t>ring.ready())  # or a producer that is quick enough would keep us for ever
        while len(messages) < most and not ring.closed:
            message = take_message(ring, &wanted, RB_NOW, False, self._imports, &rc)
            if rc < 0:
                if not is_end(rc):
                    check(rc, ring)
                break
            messages.append(message)
        return messages

    cdef object take(self, object timeout, object tag, object target, bint copy):
        cdef rb_filter wanted
        cdef int rc
        cdef Ring ring = self.opened()
        self._reads_unasked = False
        filter_of(tag, target, &wanted)
        message = take_message(ring, &wanted, deadline_of(timeout), copy, self._imports, &rc)
        check(rc, ring, Empty, timeout)
        return message

    # -- what asyncio's calls are made of: an attempt, and what to say when there is no more time

    def _get_now(self, timeout, tag, target):
        """The message that get() would return at once, or NOTHING."""
        cdef rb_filter wanted
        cdef int rc
        cdef Ring ring = self.opened()
        self._reads_unasked = False
        filter_of(tag, target, &wanted)
        deadline_of(timeout)
        message = take_message(ring, &wanted, RB_NOW, False, self._imports, &rc)
        if rc == -errno.EAGAIN:
            return NOTHING
        check(rc, ring, Empty, timeout)
        return message

    def _planned(self, tree, timeout, tag, target):
        """What _put_now() takes. Refuses what put() would refuse."""
        plan = planned(self.opened(), tree)
        self._core.check_claim(timeout=timeout, tag=tag, target=target)
        self._write_only(timeout=timeout, tag=tag, target=target)
        return plan

    def _put_now(self, plan, tag, target):
        """True, or NOTHING where no slot is free."""
        cdef Ring ring = self.opened()
        cdef int rc = put_planned(ring, plan, tag_of(tag), target_of(target), RB_NOW)
        if rc == -errno.EAGAIN:
            return NOTHING
        check(rc, ring, Full)
        return True

    def _put_together(self, list trees not None, list tags not None, list targets not None):
        """Publish several, each in a slot of its own, and wake whoever waits once, after the last. All or none, but for a death
        half-way. Full where not enough slots are free."""
        cdef Ring ring = self.opened()
        cdef list claims = [], sizes = []
        cdef Claim claim
        for tree, tag, target in zip(trees, tags, targets):
            sketch = sketch_of(ring, tree)
            plan = frame.plan(tree) if sketch is None else None
            if plan is not None:
                plan.check(data_room(ring))
            claim = ring.claim(tag=tag, target=target, timeout=0)
            claims.append(claim)
            if plan is not None:
                sizes.append(plan.write(claim))
            else:
                (<Sketch>sketch).write(<char *>claim.slot.data)
                sizes.append((<Sketch>sketch).frame_bytes)
        ring.commit_all(claims, sizes)

    def _say_empty(self, timeout):
        check(-errno.ETIMEDOUT, self.opened(), Empty, timeout)

    def _say_full(self, timeout):
        check(-errno.ETIMEDOUT, self.opened(), Full, timeout)

    cdef Ring opened(self):
        if self._core is None:
            raise RuntimeError("this RingBuffer was never made; does a subclass call RingBuffer.__init__()?")
        return self._core

    def _write_only(self, **wish):
        """A handle that only writes must not count as a reader, or the ring fills up with messages for it."""
        if self._reads_unasked:
            self._core.check_claim(**wish)  # not for the sake of a call that will be refused
            self._core.unsubscribe()
            self._reads_unasked = False

    @property
    def slot_bytes(self):
        """Bytes of arrays that one message may have."""
        return data_room(self.opened())


cdef uint64_t data_room(Ring ring) noexcept:
    return ring.slot_bytes - min(ring.slot_bytes, frame_room)
