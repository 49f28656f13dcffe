# What _samples.pyx uses of _meter.pyx: a clock, and the account of a worker while a batch is in hand.
from libc.stdint cimport int64_t


cdef int64_t now_ns() noexcept nogil


cdef class Meter:
    cdef object memory           # keeps the row and the log
    cdef int64_t *row
    cdef int64_t *log            # its head, and LOG_HEAD words after it the records
    cdef int64_t records
    cdef int64_t *passes         # in the consumer's row: how many were begun

    cdef void increase(self, int word, int64_t number) noexcept
    cdef void enter(self, int64_t state, int64_t now) noexcept
    cdef void note(self, int64_t kind, int64_t worker, int64_t batch, int64_t began, int64_t took) noexcept


cdef class WorkerMeter(Meter):
    cdef readonly bint timing    # whether each sample's making is timed
    cdef int64_t load_ns         # of the samples so far, where it is timed
    cdef int64_t samples         # so far
    cdef bint waits              # whether the time between two batches is spent waiting for a task
    cdef bint busy, gathered
    cdef int64_t begun, loaded_at, slot_ns, slot_since, last_ns, count, batch
    cdef double share            # of loading, in the last batch that was timed

    cdef int64_t resting(self) noexcept
