# What _messages.pyx and _watcher.pyx use of _core.pyx: slots that change hands without an object for each, and sleep.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from ringbuf cimport rb_filter, rb_ring, rb_slot, rb_wish


cdef int check(int rc, Ring ring=*, object timed_out=*, object timeout=*) except -1
cdef int64_t deadline_of(object timeout) except -1
cdef uint64_t tag_of(object tag) except? 0
cdef uint32_t target_of(object target) except? 0
cdef int filter_of(object tag, object target, rb_filter *wanted) except -1


cdef class Ring:
    cdef rb_ring *ring            # NULL before it is opened and after it is unmapped
    cdef Py_ssize_t waiting       # threads inside libringbuf without the GIL ...
    cdef unsigned long forks      # ... counted after so many forks: the threads of a parent do not come along
    cdef Py_ssize_t claims        # that live; they keep the mapping
    cdef Py_ssize_t leases        # likewise
    cdef readonly bint closed     # close() was called
    cdef readonly uint32_t slots
    cdef readonly uint64_t slot_bytes
    cdef readonly uint64_t total_bytes
    cdef readonly str name
    cdef readonly str mode
    cdef readonly str full

    cdef Ring opened(self)
    cdef rb_ring *open(self) except NULL
    cdef rb_ring *begin_wait(self) except NULL
    cdef void end_wait(self) noexcept
    cdef void forget_other_threads_after_fork(self) noexcept
    cdef void leave_if_over(self) noexcept
    cdef int must_broadcast(self) except -1

    # 0 or a negative errno. What was claimed or taken counts as held until it is handed back; each exactly once.
    cdef int claim_slot(self, uint64_t tag, uint32_t target, int64_t until, rb_slot *slot) except? -1
    cdef int commit_slot(self, const rb_slot *slot, uint64_t nbytes) except? -1
    cdef int take_slot(self, const rb_filter *wanted, int64_t until, rb_slot *slot) except? -1
    cdef void release_slot(self, const rb_slot *slot) noexcept

    cdef int await_change(self, rb_wish wish, uint32_t seen) noexcept nogil  # between begin_wait() and end_wait()
    cdef void wake(self) noexcept


cdef class Claim:
    cdef Ring ring          # None: nothing was claimed
    cdef rb_slot slot
    cdef bint pending       # neither committed nor aborted

    cdef void holds(self, Ring ring, const rb_slot *slot) noexcept
    cdef int must_be_pending(self) except -1


cdef class Window:
    cdef Ring ring          # None: there is no such slot
    cdef void *data


cdef class Lease:
    cdef readonly Ring ring # None: nothing was taken
    cdef rb_slot slot

    cdef void holds(self, Ring ring, const rb_slot *slot) noexcept
