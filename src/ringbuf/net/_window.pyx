# cython: language_level=3, embedsignature=True, embedsignature.format=python
"""A client's view of a server's memory.

    ndarray  --base-->  Window  -->  Segment (the mapping)
                           |
                           +------>  Doorbell: says to the server, when the last view has died, that its slot is free

A window dies in whatever thread drops the last view, perhaps while the garbage collector runs: so all that is done then
is one send() that never waits; what there is no room for is kept and sent later.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc cimport errno
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

import fcntl
import os
from collections import deque

from ringbuf.errors import CorruptSegment

cdef extern from "sys/mman.h" nogil:
    void *mmap(void *address, size_t nbytes, int protection, int flags, int fd, long offset)
    int munmap(void *address, size_t nbytes)
    int madvise(void *address, size_t nbytes, int advice)
    void *MAP_FAILED
    int PROT_READ, PROT_WRITE, MAP_SHARED

cdef extern from "sys/socket.h" nogil:
    Py_ssize_t send(int fd, const void *data, size_t nbytes, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef extern from "unistd.h" nogil:
    int getpid()

cdef enum:
    POPULATE_READ = 22   # MADV_POPULATE_READ of Linux 5.14; older kernels refuse it, and pages come one by one
    MESSAGE = 64
    SEQ_AT = 8           # where a message has its number


@cython.final
@cython.no_gc
cdef class Segment:
    """The memory of a ring, mapped from a descriptor, which stays the caller's.

    writable: whether batches in it may be changed. Where not, the mapping itself is for reading alone.
    Raises CorruptSegment for memory that could shrink under its readers, or is smaller than it is said to be.
    """

    cdef unsigned char *base
    cdef readonly uint64_t nbytes
    cdef readonly bint writable
    cdef set seen

    def __cinit__(self, int fd, uint64_t nbytes, bint writable):
        self.base = NULL
        size = os.fstat(fd).st_size
        if nbytes == 0 or size < nbytes:
            raise CorruptSegment(f"the server's memory has {size} bytes, and should have {nbytes}")
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        except OSError:
            seals = 0
        if not seals & fcntl.F_SEAL_SHRINK:
            raise CorruptSegment("the server's memory could shrink while it is read; a ring's memory cannot")
        cdef void *base = mmap(NULL, nbytes, PROT_READ | PROT_WRITE if writable else PROT_READ, MAP_SHARED, fd, 0)
        if base == MAP_FAILED:
            raise OSError(errno.errno, f"cannot map {nbytes} bytes of the server: {os.strerror(errno.errno)}")
        self.base = <unsigned char *>base
        self.nbytes = nbytes
        self.writable = writable
        self.seen = set()

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, self.nbytes)

    cdef void populate(self, uint64_t offset, uint64_t nbytes):
        """Bring a slot into the page tables when it is first looked at: all at once takes a quarter of the time."""
        cdef uint64_t start = offset & ~<uint64_t>4095
        if offset in self.seen:
            return
        self.seen.add(offset)
        with nogil:
            madvise(self.base + start, offset + nbytes - start, POPULATE_READ)


@cython.final
cdef class Doorbell:
    """How a client tells its server which batches it has let go of.

    sock: the connection, a socket for whole messages.
    message: of 64 bytes; the number of the batch is put in.
    """

    cdef object sock
    cdef object unsent
    cdef bytes goodbye               # to be said still
    cdef bint parted
    cdef unsigned char message[MESSAGE]
    cdef int fd
    cdef int pid
    cdef readonly Py_ssize_t held    # windows that live

    def __init__(self, sock, bytes message not None):
        if len(message) != MESSAGE:
            raise ValueError(f"a message has {MESSAGE} bytes, got {len(message)}")
        memcpy(self.message, <const unsigned char *>message, MESSAGE)
        self.sock, self.fd, self.pid = sock, sock.fileno(), getpid()
        self.unsent = deque()

    cdef void ring(self, uint64_t seq):
        # The batch of a forked child is its parent's.
        if self.fd < 0 or getpid() != self.pid:
            return
        if (self.unsent or self.goodbye is not None) and not self.flush() or not self.sent(seq):
            self.unsent.append(seq)
        if self.parted and self.held == 0:
            self.hang_up()

    cdef bint sent(self, uint64_t seq) noexcept:
        cdef unsigned char message[MESSAGE]
        memcpy(message, self.message, MESSAGE)
        memcpy(message + SEQ_AT, &seq, 8)  # Linux on 64 bits is little endian wherever this is built
        return self.said(message, MESSAGE)

    cdef bint said(self, const unsigned char *message, size_t nbytes) noexcept:
        if send(self.fd, message, nbytes, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0:
            return True
        # To a server that is gone there is nothing to say.
        return errno.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)

    def flush(self):
        """Send what there was no room for before. Returns whether nothing is left."""
        if self.goodbye is not None:
            if not self.said(<const unsigned char *>self.goodbye, len(self.goodbye)):
                return False
            self.goodbye = None
        while self.unsent:
            if not self.sent(self.unsent[0]):
                return False
            self.unsent.popleft()
        return True

    def part(self, bytes goodbye not None):
        """Say goodbye, and close the connection as soon as the last window is gone: what lies under it would be used again."""
        if self.fd < 0:
            return
        self.parted = True
        self.goodbye = goodbye
        if self.held:
            self.flush()
        else:
            if not self.unsent:  # or closing tells the server all
                self.flush()
            self.hang_up()

    def hang_up(self):
        """Close the connection, which tells the server all. Idempotent; in a forked child it ends the child's part alone."""
        if self.fd >= 0:
            self.fd = -1
            self.unsent.clear()
            self.sock.close()


@cython.final
@cython.no_gc
cdef class Window:
    """A batch in a segment: a buffer over its bytes. Once it is `owned`, the server has its slot back when the last view of
    it is gone.

    Raises CorruptSegment where it would lie outside of the segment.
    """

    cdef Segment segment
    cdef Doorbell bell
    cdef bint is_owned
    cdef uint64_t offset
    cdef readonly uint64_t nbytes
    cdef readonly uint64_t seq

    def __init__(self, Segment segment not None, uint64_t offset, uint64_t nbytes, Doorbell bell not None, uint64_t seq):
        if offset > segment.nbytes or nbytes > segment.nbytes - offset:
            raise CorruptSegment(f"a batch of {nbytes} bytes at {offset} is outside of {segment.nbytes} bytes")
        segment.populate(offset, nbytes)
        self.segment, self.offset, self.nbytes, self.seq, self.bell = segment, offset, nbytes, seq, bell

    @property
    def owned(self):
        """Whether its end gives the slot back. Set it last: who is interrupted before can look at the batch again."""
        return self.is_owned

    @owned.setter
    def owned(self, bint value):
        self.bell.held += value - self.is_owned
        self.is_owned = value

    def __dealloc__(self):
        if self.is_owned:
            self.bell.held -= 1
            self.bell.ring(self.seq)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.segment.base + self.offset, self.nbytes, not self.segment.writable, flags)
