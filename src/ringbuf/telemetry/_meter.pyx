# cython: language_level=3, embedsignature=True, embedsignature.format=python
"""A loader's page: where each number lies, and the two who write them, the consumer and a worker.

The page is made of 64-bit words, each with one writer at a time: the header is the trainer's and does not change, a row and a
log belong to the consumer or to one worker. So nobody locks, and a reader in another process sees each word as it was at some
moment; numbers that belong together may be a batch apart.

    | header | the consumer's row | row of worker 0 | ... | the consumer's log | log of worker 0 | ...

A log is a head, the number of all records so far, and the last of them in a circle. A record is written after the head has
come to it and before the head goes on: so while the head is h, the records from h - records + 1 to h - 1 stand still.

    record   | sequence << 24 | (worker + 1) << 8 | kind |  pass << 40 | (batch + 1)  |  began, ns  |  took, ns |

In Cython since this is done for every batch: at the "small" setting of the benchmarks a worker spends 9 us on one in all.
All times are CLOCK_MONOTONIC, the same for all processes.

Loading and collating take turns, sample by sample. Two looks at the clock for each sample would cost more than a sample that is
quick. So samples are timed one by one where a batch takes a millisecond and more, and else in one batch of 64; the others are
divided into loading and collating as the last one that was timed.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc cimport errno
from libc.stdint cimport int64_t

import os

cdef extern from "sys/mman.h" nogil:
    void *mmap(void *address, size_t nbytes, int protection, int flags, int fd, long offset)
    int munmap(void *address, size_t nbytes)
    void *MAP_FAILED
    int PROT_READ, PROT_WRITE, MAP_SHARED, MAP_ANONYMOUS

cdef extern from *:
    """
    #include <time.h>
    static inline void put_word(int64_t *at, int64_t value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
    static inline void publish_word(int64_t *at, int64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
    static inline void fence_before_stores(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
    static inline void fence_after_loads(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
    static inline int64_t clock_ns(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000000000LL + now.tv_nsec;
    }
    static inline int bits_of(int64_t value) { return value > 0 ? 64 - __builtin_clzll((unsigned long long)value) : 0; }
    """
    void put_word(int64_t *at, int64_t value) noexcept nogil
    void publish_word(int64_t *at, int64_t value) noexcept nogil
    void fence_before_stores() noexcept nogil
    void fence_after_loads() noexcept nogil
    int64_t clock_ns() noexcept nogil
    int bits_of(int64_t value) noexcept nogil


# ---- where things lie ------------------------------------------------------------------------------------------------

LAYOUT_VERSION = 1
PREFIX = "ringbuf-loader:"     # before its name, where descriptors are listed
MAGIC = int.from_bytes(b"ringpage", "little")

cpdef enum Sizes:
    """In words."""
    HEADER = 64
    CONSUMER_ROW = 128
    WORKER_ROW = 32
    LOG_HEAD = 8
    RECORD = 4
    BUCKETS = 48

cpdef enum Header:
    MAGIC_AT
    VERSION_AT
    PAGE_WORDS
    ROWS            # of workers
    RECORDS         # of each log; a power of two
    PID
    STARTED_NS
    STARTED_WALL_NS
    NAME_AT = 16    # 256 bytes, ended by a zero
    PROGRAM_AT = 48 # 128 bytes, likewise

cpdef enum Consumer:
    STATE
    SINCE_NS
    BATCHES
    NBYTES
    COPIES
    WAIT_NS
    USE_NS
    BATCH           # the last one that was handed out, + 1
    PASSES          # begun
    EPOCH           # what set_epoch said, + 1
    LENGTH          # batches of the pass, + 1
    WORKERS         # of the pass
    SLOTS
    SLOT_BYTES
    HELD            # these three as they were at GAUGED_NS
    READY
    OUT
    GAUGED_NS
    RESTARTS
    ERRORS
    WAITS = 64      # BUCKETS counts of waits: in bucket b those of less than 2**b ns, and not of less than half of that

cpdef enum Worker:
    W_STATE
    W_SINCE_NS
    W_BATCHES
    W_NBYTES
    W_SAMPLES
    W_LOAD_NS
    W_COLLATE_NS
    W_WAIT_TASK_NS
    W_WAIT_SLOT_NS
    W_BATCH         # in hand, or the last one, + 1
    W_PASS          # that it is of
    W_PID

cpdef enum State:
    ABSENT
    IDLE            # no pass is under way; with no workers, no batch
    WAITING         # the consumer, in next()
    USING           # the consumer, between two calls of next()
    WAITING_FOR_TASK
    WAITING_FOR_SLOT
    LOADING
    COLLATING
    ENDED

cpdef enum Kind:
    NO_KIND
    WAIT            # the consumer's, for a batch, in next()
    USE             # the consumer's, of a batch, until it asks for the next one
    READY_SLOTS     # how many batches are ready, in place of the batch's number; takes no time
    WAIT_TASK
    WAIT_SLOT
    LOAD
    COLLATE

cdef enum:
    NO_BATCH = -1
    SLOW_NS = 1000000
    TIMED = 63                  # one batch of so many, and one, is timed; a power of two
    GAUGE_NS = 1000000


def page_words(int64_t rows, int64_t records):
    """The size of a page, in words."""
    return HEADER + CONSUMER_ROW + rows * WORKER_ROW + (rows + 1) * (LOG_HEAD + records * RECORD)


def row_at(int64_t row):
    """Where the row of the consumer (-1) or of a worker begins."""
    return HEADER if row < 0 else HEADER + CONSUMER_ROW + row * WORKER_ROW


def log_at(int64_t row, int64_t rows, int64_t records):
    """Where the log of the consumer (-1) or of a worker begins."""
    return HEADER + CONSUMER_ROW + rows * WORKER_ROW + (row + 1) * (LOG_HEAD + records * RECORD)


def fence():
    """What was read before, was read before what is read after."""
    fence_after_loads()


cdef int64_t now_ns() noexcept nogil:
    return clock_ns()


@cython.final
@cython.no_gc
cdef class Memory:
    """A page's memory, as a buffer of bytes; a mapping of a descriptor that stays the caller's, or of nothing (None).

    Not an mmap.mmap: that keeps a descriptor of its own, by which a page would be found for as long.
    """

    cdef int64_t *words
    cdef readonly Py_ssize_t nbytes
    cdef bint writable

    def __cinit__(self, descriptor, Py_ssize_t nbytes, *, bint writable=True):
        if nbytes < 1:
            raise ValueError(f"{nbytes} bytes")
        cdef int flags = MAP_SHARED if descriptor is not None else MAP_SHARED | MAP_ANONYMOUS
        cdef int fd = -1 if descriptor is None else descriptor
        cdef void *at = mmap(NULL, nbytes, PROT_READ | PROT_WRITE if writable else PROT_READ, flags, fd, 0)
        if at == MAP_FAILED:
            raise OSError(errno.errno, f"a loader's page of {nbytes} bytes: {os.strerror(errno.errno)}")
        self.words, self.nbytes, self.writable = <int64_t *>at, nbytes, writable

    def __dealloc__(self):
        if self.words != NULL:
            munmap(self.words, self.nbytes)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.words, self.nbytes, not self.writable, flags)


# ---- who writes ------------------------------------------------------------------------------------------------------


cdef class Meter:
    """One row and its log.

    row: the number of a worker, or -1 for the consumer, of so many rows of workers.
    records: of each log.
    """

    def __cinit__(self, Memory memory not None, int64_t row, int64_t rows, int64_t records, **_):
        if not memory.writable or memory.nbytes // 8 < page_words(rows, records) or row >= rows or records & (records - 1):
            raise ValueError(f"{memory.nbytes} bytes, row {row} of {rows}, logs of {records}")
        self.memory = memory
        self.passes = memory.words + <int64_t>row_at(-1) + <int>PASSES
        self.row = memory.words + <int64_t>row_at(row)
        self.log = memory.words + <int64_t>log_at(row, rows, records)
        self.records = records

    cdef void increase(self, int word, int64_t number) noexcept:
        put_word(self.row + word, self.row[word] + number)

    cdef void enter(self, int64_t state, int64_t now) noexcept:
        put_word(self.row + <int>STATE, state)      # these two are the first ones of both kinds of rows
        put_word(self.row + <int>SINCE_NS, now)

    cdef void note(self, int64_t kind, int64_t worker, int64_t batch, int64_t began, int64_t took) noexcept:
        cdef int64_t head = self.log[0]
        cdef int64_t *record = self.log + <int>LOG_HEAD + (head & (self.records - 1)) * <int>RECORD
        fence_before_stores()
        put_word(record, head << 24 | (worker + 1) << 8 | kind)
        put_word(record + 1, batch)
        put_word(record + 2, began)
        put_word(record + 3, took)
        publish_word(self.log, head + 1)


@cython.final
cdef class ConsumerMeter(Meter):
    """The consumer's side: next() begins with wait() and ends with got()."""

    cdef int64_t batch, worker, this_pass

    def __init__(self, memory, row, rows, records):
        self.batch, self.worker = NO_BATCH, -1
        self.set(BATCH, 0)

    def begin_pass(self, epoch=None, length=None):
        """A pass begins, of so many batches, if that is known."""
        self.this_pass = self.passes[0]
        put_word(self.passes, self.this_pass + 1)
        self.set(EPOCH, 0 if epoch is None else clipped(epoch) + 1)
        self.set(LENGTH, 0 if length is None else clipped(length) + 1)
        self.rest()

    def rest(self):
        """No pass is under way, or it is over."""
        put_word(self.row + <int>READY, 0)
        put_word(self.row + <int>OUT, 0)
        self.enter(IDLE, now_ns())

    def wait(self):
        """next() was called. Returns whether it is time to gauge()."""
        cdef int64_t now = now_ns(), since = self.row[<int>SINCE_NS]
        if self.row[<int>STATE] == USING:
            self.increase(USE_NS, now - since)
            self.note(USE, self.worker, self.which(), since, now - since)
        self.batch, self.worker = NO_BATCH, -1
        self.enter(WAITING, now)
        return now - self.row[<int>GAUGED_NS] >= GAUGE_NS

    def take(self, int64_t batch, worker=None):
        """What next() waits for is this batch, or an error in its place, of this worker, if that is known."""
        self.batch = batch
        self.worker = -1 if worker is None else worker

    def received(self, int64_t nbytes, bint copied=False):
        """The batch has so many bytes."""
        self.increase(NBYTES, nbytes)
        if copied:
            self.increase(COPIES, 1)

    def got(self, bint handed_out):
        """next() returns, with a batch or without."""
        cdef int64_t now = now_ns(), since = self.row[<int>SINCE_NS]
        cdef int64_t took = now - since
        cdef int64_t *bucket = self.row + <int>WAITS + min(bits_of(took), <int>BUCKETS - 1)
        self.increase(WAIT_NS, took)
        put_word(bucket, bucket[0] + 1)
        self.note(WAIT, self.worker, self.which(), since, took)
        if handed_out:
            self.increase(BATCHES, 1)
            put_word(self.row + <int>BATCH, self.batch + 1)
        if self.batch != NO_BATCH:
            self.enter(USING, now)
        else:
            self.rest()

    cdef int64_t which(self) noexcept:
        return self.this_pass << 40 | (self.batch + 1)

    def gauge(self, int64_t held, int64_t ready, int64_t out):
        """How many slots the consumer holds, how many batches are ready in others, how many tasks are out."""
        cdef int64_t now = now_ns()
        put_word(self.row + <int>HELD, held)
        put_word(self.row + <int>READY, ready)
        put_word(self.row + <int>OUT, out)
        put_word(self.row + <int>GAUGED_NS, now)
        self.note(READY_SLOTS, -1, self.this_pass << 40 | (ready + 1), now, 0)

    def add(self, int word, int64_t number):
        """Count, in a word of the row."""
        self.check(word)
        self.increase(word, number)

    def set(self, int word, number):
        self.check(word)
        put_word(self.row + word, clipped(number))

    cdef int check(self, int word) except -1:
        if not 0 <= word < <int>CONSUMER_ROW:
            raise ValueError(f"word {word} of a row of {<int>CONSUMER_ROW}")
        return 0

    @property
    def logged(self):
        """Records so far."""
        return self.log[0]


cdef int64_t clipped(object number) except? -1:
    return min(max(number, 0), (1 << 62) - 1)


cdef class WorkerMeter(Meter):
    """A worker's side: a batch begins with begin() and ends with end().

    waits: whether the time between batches is spent waiting for tasks; not where the consumer makes batches itself.
    """

    def __init__(self, memory, row, rows, records, *, bint waits=True):
        self.waits = waits
        put_word(self.row + <int>W_PID, os.getpid())
        put_word(self.row + <int>W_BATCH, 0)
        self.rest()

    @staticmethod
    def unseen():
        """One that nobody looks at."""
        return WorkerMeter(Memory(None, 8 * page_words(1, 1)), 0, 1, 1)

    def rest(self):
        """Begin to wait, for no longer than since now."""
        self.enter(self.resting(), now_ns())

    cdef int64_t resting(self) noexcept:
        return WAITING_FOR_TASK if self.waits else IDLE

    def begin(self, int64_t batch):
        """A batch is begun with, by its number in the pass."""
        cdef int64_t now = now_ns(), since = self.row[<int>W_SINCE_NS]
        cdef int64_t this_pass = max(self.passes[0] - 1, 0)     # the next one begins when all batches of this one are answered
        put_word(self.row + <int>W_BATCH, batch + 1)
        put_word(self.row + <int>W_PASS, this_pass)
        self.batch = this_pass << 40 | (batch + 1)
        if self.waits:
            self.increase(W_WAIT_TASK_NS, now - since)
            self.note(WAIT_TASK, -1, self.batch, since, now - since)
        self.timing = self.last_ns >= SLOW_NS or self.count < 4 or self.count & TIMED == 0
        self.busy, self.gathered = True, False
        self.load_ns = self.samples = self.slot_ns = 0
        self.begun = now
        self.enter(LOADING, now)

    def loaded(self):
        """All samples are loaded, and nothing of them is collated."""
        self.loaded_at = now_ns()
        self.gathered = True
        self.enter(COLLATING, self.loaded_at)

    def load(self, function, *arguments):
        """Call what loads samples, whatever it takes; `count` says how many they were."""
        cdef int64_t began = now_ns()
        self.timing = True
        try:
            return function(*arguments)
        finally:
            self.load_ns += now_ns() - began

    def count_samples(self, int64_t number):
        self.samples += number

    def wait_for_slot(self):
        self.slot_since = now_ns()
        self.enter(WAITING_FOR_SLOT, self.slot_since)

    def has_slot(self):
        cdef int64_t now = now_ns()
        self.slot_ns += now - self.slot_since
        self.enter(COLLATING if self.busy else self.resting(), now)

    def end(self, int64_t nbytes=-1):
        """The batch is made, in so many bytes, and goes out now; or, by default, it will not. Nothing where there is none in hand."""
        if not self.busy:
            return
        cdef int64_t now = now_ns()
        cdef int64_t own = now - self.begun - self.slot_ns
        cdef int64_t load
        if self.gathered:
            load = min(self.loaded_at - self.begun, own)
        elif self.timing:
            load = min(self.load_ns, own)
            self.share = <double>load / <double>max(own, 1)
        else:
            load = <int64_t>(self.share * <double>own)
        self.increase(W_LOAD_NS, load)
        self.increase(W_COLLATE_NS, own - load)
        self.increase(W_WAIT_SLOT_NS, self.slot_ns)
        self.increase(W_SAMPLES, self.samples)
        if nbytes >= 0:
            self.increase(W_BATCHES, 1)
            self.increase(W_NBYTES, nbytes)
        self.note(LOAD, -1, self.batch, self.begun, load)
        if self.slot_ns:
            self.note(WAIT_SLOT, -1, self.batch, self.begun + load, self.slot_ns)
        self.note(COLLATE, -1, self.batch, self.begun + load + self.slot_ns, own - load)
        self.busy = False
        self.last_ns = own
        self.count += 1
        self.enter(self.resting(), now)


@cython.final
cdef class Loads:
    """The samples of an iterator, timed where that is called for, and counted."""

    cdef object samples
    cdef WorkerMeter meter

    def __init__(self, samples, WorkerMeter meter not None):
        self.samples, self.meter = samples, meter

    def __iter__(self):
        return self

    def __next__(self):
        cdef int64_t began
        if self.meter.timing:
            began = now_ns()
            sample = next(self.samples)
            self.meter.load_ns += now_ns() - began
        else:
            sample = next(self.samples)
        self.meter.samples += 1
        return sample
