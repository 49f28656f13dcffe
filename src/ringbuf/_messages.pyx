# cython: language_level=3, embedsignature=True, embedsignature.format=python
"""Messages between Python and slots; those that are one byte string without a plan, a view or a claim.

The frame of a byte string is that of an empty one, with its length added to three words:

    0      8        16           24    32            40            48 56   64      72 ...    72 + length
    magic  version  frame_bytes  tail  values_bytes  schema_bytes  0  0    length  content   schema

The empty one is frame.py's own, so both write the same bytes. Reading takes this way only if every byte around the
content is what we would write around so many: no number from shared memory is used, and frame.py
judges all others.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc cimport errno
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from ringbuf._core cimport Claim, Lease, Ring, check, deadline_of, filter_of, tag_of, target_of
from ringbuf._ringbuf cimport rb_filter, rb_slot

from ringbuf import checks, frame
from ringbuf.errors import Closed, Empty, Full

cdef extern from "endian.h" nogil:
    uint64_t htole64(uint64_t host)

cdef enum:
    FRAME_BYTES = 2       # the words that a length is added to
    VALUES_BYTES = 4
    LENGTH = 8
    WORDS = 9             # before the content
    HEAD = 8 * WORDS
    SCHEMA = 8            # bytes after it
    SMALL = 1 << 16       # bytes; to copy more takes longer than all that is saved here

cdef unsigned char EMPTY[HEAD + SCHEMA]


def _learn_the_empty_frame():
    plan = frame.plan(b"")
    buffer = bytearray(plan.frame_bytes)
    plan.write(buffer)
    assert len(buffer) == HEAD + SCHEMA
    memcpy(EMPTY, <unsigned char *>buffer, HEAD + SCHEMA)


_learn_the_empty_frame()


cdef void fill_head(uint64_t *words, uint64_t length) noexcept nogil:
    """What stands before a content of so many bytes."""
    memcpy(words, EMPTY, HEAD)
    words[FRAME_BYTES] = htole64(HEAD + length + SCHEMA)
    words[VALUES_BYTES] = htole64(8 + length)
    words[LENGTH] = htole64(length)


# ---- producers ----------------------------------------------------------------------------------------------


cdef inline bint is_small(Ring ring, object message) noexcept:
    return type(message) is bytes and <uint64_t>PyBytes_GET_SIZE(message) + HEAD + SCHEMA <= min(ring.slot_bytes, SMALL)


cdef int put_small(Ring ring, object content, uint64_t tag, uint32_t target, int64_t until) except? -1:
    """0, or why there was no slot."""
    cdef Py_ssize_t length = PyBytes_GET_SIZE(content)
    cdef rb_slot slot
    cdef char *data
    cdef int rc = ring.claim_slot(tag, target, until, &slot)
    if rc == 0:
        data = <char *>slot.data
        fill_head(<uint64_t *>data, length)
        memcpy(data + HEAD, PyBytes_AS_STRING(content), length)
        memcpy(data + HEAD + length, EMPTY + HEAD, SCHEMA)
        check(ring.commit_slot(&slot, HEAD + length + SCHEMA), ring)
    return rc


cdef int put_plan(Ring ring, object plan, uint64_t tag, uint32_t target, int64_t until) except? -1:
    """0, or why there was no slot."""
    cdef Claim claim = Claim.__new__(Claim)
    cdef rb_slot slot
    cdef int rc = ring.claim_slot(tag, target, until, &slot)
    if rc == 0:
        claim.holds(ring, &slot)  # gives the slot back if the next line raises
        claim.commit(plan.write(claim))
    return rc


def put(Ring ring, message, timeout, tag, target):
    """Publish `message` if it is a small byte string; else return False, and nothing was looked at."""
    if not is_small(ring, message):
        return False
    cdef uint64_t c_tag = tag_of(tag)
    cdef uint32_t c_target = target_of(target)
    check(put_small(ring, message, c_tag, c_target, deadline_of(timeout)), ring, Full, timeout)
    return True


def planned(Ring ring, messages, slot_bytes):
    """`messages` as put_all() takes them: small byte strings, and plans that fit. Raises as put() of one of them."""
    plans = []
    for message in messages:
        if not is_small(ring, message):
            message = frame.plan(message)
            message.check(slot_bytes)
        plans.append(message)
    return plans


def put_all(Ring ring, list plans, timeout, tag, target):
    """Publish what planned() made, one after the other until `timeout` has passed, and return how many that were."""
    cdef uint64_t c_tag = tag_of(tag)
    cdef uint32_t c_target = target_of(target)
    cdef int64_t until = deadline_of(timeout)
    cdef Py_ssize_t done = 0
    cdef int rc
    for plan in plans:
        try:
            if type(plan) is bytes:
                rc = put_small(ring, plan, c_tag, c_target, until)
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


cdef bint holds_small(const rb_slot *slot) noexcept:
    """Is this the frame of a byte string? `slot.bytes` is our own copy; shared memory is only compared."""
    cdef uint64_t head[WORDS]
    if not HEAD + SCHEMA <= slot.bytes <= SMALL:
        return False
    fill_head(head, slot.bytes - HEAD - SCHEMA)
    return (memcmp(slot.data, head, HEAD) == 0
            and memcmp(<char *>slot.data + slot.bytes - SCHEMA, EMPTY + HEAD, SCHEMA) == 0)


cdef object take_message(Ring ring, const rb_filter *wanted, int64_t until, bint copy, bint imports, int *rc):
    """The oldest message; with *rc below 0, why there is none."""
    cdef Lease lease
    cdef rb_slot slot
    rc[0] = ring.take_slot(wanted, until, &slot)
    if rc[0] < 0:
        return None
    try:
        if holds_small(&slot):
            message = PyBytes_FromStringAndSize(<char *>slot.data + HEAD, slot.bytes - HEAD - SCHEMA)
            ring.release_slot(&slot)
            return message
        lease = Lease.__new__(Lease)
    except MemoryError:
        ring.release_slot(&slot)
        raise
    lease.holds(ring, &slot)
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
