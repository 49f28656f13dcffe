# cython: language_level=3
"""The course of a pass: which batches it is made of, how far it has come, and how its jobs travel.

In Cython, since every batch goes through here; all but pack() and unpack() could as well be Python.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memcpy

import pickle
from collections import deque
from itertools import islice
from typing import Any, NamedTuple, Sequence

__all__ = ["Course", "Job", "Progress", "pack", "unpack"]

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1


class Job(NamedTuple):
    """What makes one batch, as it travels to whoever makes it."""

    batch: int
    """Its number in the pass, from 0."""
    index: Any
    """What the sampler gave."""
    seed: "int | None" = None
    """What the pass's samples are seeded from, one by one; None where workers are seeded instead."""
    epoch: "int | None" = None
    """What `set_epoch` was told last."""
    shared_seed: "int | None" = None
    """What torch's data pipes shuffle by in this pass."""


class Progress(NamedTuple):
    """How far a pass is.

    position, owed: all batches before the position were delivered, except the owed ones.
    pulled: how often the sampler was asked for a batch. It may draw random numbers each time, also when it has no more.
    by_worker: delivered batches of each worker, where batches have no numbers and come from several.
    """

    position: int = 0
    owed: Sequence[int] = ()
    pulled: int = 0
    by_worker: Sequence[int] = ()


cdef object new_tuple = tuple.__new__


@cython.final
cdef class Course:
    """The jobs of one pass, as an iterator, and an account of those that were delivered.

    indices: what the sampler gives.
    numbered: whether a batch is known by its number. Those of an iterable dataset are only counted, since which
        worker ends when is not known before.
    resumed: where to begin, if not at the beginning. Batches that were delivered already are left out; where they are only
        counted, they have to be made again: see `to_skip`.
    constants: what all jobs have in common.
    to_skip: how many batches of each worker were delivered before.
    """

    cdef public bint finished
    cdef public object handed # (number, worker_id) of the batch that was handed out last, until it is counted
    cdef readonly dict constants
    cdef readonly object to_skip
    cdef bint numbered
    cdef object indices
    cdef tuple common      # the constants as the end of a Job
    cdef object kept       # (number, index) that the sampler gave before, and that are to be done still
    cdef Py_ssize_t number # of what the sampler gives next
    cdef Py_ssize_t top, pulled
    cdef set owed
    cdef list by_worker

    def __init__(self, indices, *, numbered=True, resumed=None, **constants):
        self.constants = constants
        self.common = tuple(Job(0, None, **constants))[2:]
        self.numbered = numbered
        self.indices = iter(indices)
        self.kept = deque()
        self.owed = set()
        self.by_worker = []
        self.to_skip = ()
        if resumed is not None and numbered:
            self.go_to(resumed)
        elif resumed is not None:
            self.top, self.by_worker = resumed.position, list(resumed.by_worker)
            self.to_skip = tuple(resumed.by_worker)

    cdef int go_to(self, object resumed) except -1:
        """Have the sampler give once more what it gave; it moves on at once, since it may draw random numbers."""
        self.top, self.owed = resumed.position, set(resumed.owed)
        self.pulled = resumed.pulled
        for index in islice(self.indices, resumed.pulled):
            if self.number in self.owed or self.number >= resumed.position:
                self.kept.append((self.number, index))
            self.number += 1
        return 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.kept:
            number, index = self.kept.popleft()
        else:
            self.pulled += 1
            index = next(self.indices)
            number = self.number
            self.number += 1
        if self.numbered:
            self.owed.add(number)
        return new_tuple(Job, (number, index, *self.common))

    def settle(self):
        """Count the batch that was handed out last."""
        cdef object handed = self.handed
        self.handed = None
        if handed is not None:
            self.deliver(handed[0], handed[1])

    def deliver(self, number, worker_id=0):
        """A batch was handed out, or an error in its place."""
        if self.numbered:
            self.owed.discard(number)
            self.top = max(self.top, <Py_ssize_t>number + 1)
        else:
            self.by_worker += [0] * (worker_id + 1 - len(self.by_worker))
            self.by_worker[worker_id] += 1
            self.top += 1

    def progress(self):
        self.settle()
        # Another thread may be about to ask for the next batch: nothing is owed below the position that was not so when that was
        # read, and the set is copied in one step.
        cdef Py_ssize_t top = self.top
        owed = sorted([number for number in list(self.owed) if number < top])
        return Progress(top, owed, self.pulled if self.numbered else 0, list(self.by_worker))


# ---- a job on its way -------------------------------------------------------------------------------------------
#
#     0          8            16       24             24 + common
#     what it is  common bytes  batch    the constants  the index
#
# A list of indices, which is what it nearly always is, travels as numbers; everything else, and what all jobs of a pass have in
# common, as a pickle.

cdef enum:
    PICKLED = 0
    NUMBERS = 1
    HEAD = 24

cdef tuple packed_common = ()
cdef bytes packed_bytes = pickle.dumps((), 5)
cdef bytes unpacked_bytes = packed_bytes
cdef tuple unpacked_common = ()


def pack(job):
    """A job as it travels. Raises whatever an index raises that cannot be pickled."""
    global packed_common, packed_bytes
    batch, index = job[0], job[1]
    cdef tuple common = job[2:]
    if not are_the_same(common, packed_common):
        packed_bytes = pickle.dumps(common, 5)
        packed_common = common
    cdef bytes constants = packed_bytes
    cdef bytes content = numbers_of(index, HEAD + PyBytes_GET_SIZE(constants)) if type(index) is list else None
    cdef int64_t what = NUMBERS
    if content is None:
        what = PICKLED
        content = bytes(HEAD + PyBytes_GET_SIZE(constants)) + pickle.dumps(index, 5)
    # Nobody has seen these bytes yet.
    cdef char *at = PyBytes_AS_STRING(content)
    cdef int64_t[3] head = [what, PyBytes_GET_SIZE(constants), batch]
    memcpy(at, head, HEAD)
    memcpy(at + HEAD, PyBytes_AS_STRING(constants), PyBytes_GET_SIZE(constants))
    return content


cdef bint are_the_same(tuple one, tuple other):
    """The very same objects: equal ones may be of another type."""
    cdef Py_ssize_t i
    if len(one) != len(other):
        return False
    for i in range(len(one)):
        if one[i] is not other[i]:
            return False
    return True


cdef bytes numbers_of(list index, Py_ssize_t at):
    """The numbers as bytes, behind so many others; None if they are no numbers, or too large."""
    cdef int overflow = 0
    cdef int64_t number
    cdef bytes content = PyBytes_FromStringAndSize(NULL, at + 8 * len(index))
    for item in index:
        if type(item) is not int:
            return None
        number = PyLong_AsLongLongAndOverflow(item, &overflow)
        if overflow:
            return None
        memcpy(PyBytes_AS_STRING(content) + at, &number, 8)
        at += 8
    return content


def unpack(bytes content not None):
    """The job that pack() packed, in another process: nothing else is to be given to this."""
    global unpacked_common, unpacked_bytes
    cdef int64_t[3] head
    cdef char *at = PyBytes_AS_STRING(content)
    memcpy(head, at, HEAD)
    cdef bytes constants = content[HEAD:HEAD + head[1]]
    if constants != unpacked_bytes:
        unpacked_common = pickle.loads(constants)
        unpacked_bytes = constants
    cdef Py_ssize_t begin = HEAD + head[1]
    if head[0] == PICKLED:
        index = pickle.loads(content[begin:])
    else:
        index = numbers_in(at + begin, (PyBytes_GET_SIZE(content) - begin) // 8)
    return new_tuple(Job, (head[2], index, *unpacked_common))


cdef list numbers_in(const char *at, Py_ssize_t count):
    cdef int64_t number
    cdef Py_ssize_t i
    cdef list numbers = [None] * count
    for i in range(count):
        memcpy(&number, at + 8 * i, 8)
        numbers[i] = number
    return numbers
