# cython: language_level=3, embedsignature=True, embedsignature.format=python
"""The extension over ringbuf.h: it moves arguments, and it decides how long memory lives.

    ndarray  --base-->  Lease or Claim  -->  Ring  -->  the mapping

A Lease returns its slot when it dies, which is when the last view of it has died; a Claim that was not
committed gives its slot back. `Ring.close()` only says that nobody may begin anything any more; the mapping
goes when the last of these is over: threads that sleep in a call, leases, claims. So a view never
points into memory that is gone. All counting is done with the GIL held.

The GIL is let go for sleeping, for creating and attaching, and for copies. A claim or take that succeeds at once
keeps it (also while a slot that this process claims for the first time is brought into its page tables): giving it away can cost a switch interval (5 ms) when another thread computes.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals
from libc cimport errno
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from ringbuf cimport *

import os
from collections import namedtuple
from operator import index

from ringbuf import checks, memory
from ringbuf.errors import (
    BatchTooLarge, Closed, CorruptSegment, Empty, Full, PeerTableFull, RingbufError, VersionMismatch,
)

cdef extern from "pthread.h" nogil:
    int pthread_atfork(void *prepare, void *parent, void (*child)() noexcept nogil)


ANY = RB_ANY
SLOTS_MAX = RB_SLOTS_MAX

cdef dict MODES = {"queue": RB_QUEUE, "broadcast": RB_BROADCAST}
cdef dict FULLS = {"block": RB_BLOCK, "overwrite": RB_OVERWRITE}
cdef dict HUGEPAGES = {None: RB_HUGE_AUTO, False: RB_HUGE_NEVER, True: RB_HUGE_ALWAYS}

cdef dict STATES = {RB_WRITING: "writing", RB_READY: "ready", RB_READING: "reading"}

View = namedtuple("View", "index state pid tag target ticket word")
View.__doc__ = """A slot as Ring.look() or survey() found it. state: "writing", "ready" or "reading". pid: whose it is; 0: nobody's.
tag: None where it was not written yet. ticket: place in the order of commits; 0 while it is written.
word: the same in two looks: nobody has touched the slot between them."""

Peer = namedtuple("Peer", "pid alive joined_ns published consumed waits wait_ns writing reading owed row")
Peer.__doc__ = """A process that is attached to a ring, or died so, as survey() found it. joined_ns: nanoseconds since 1970.
published, consumed: messages; waits, wait_ns: times asleep and nanoseconds of them; all four include those who had its row before.
writing, reading: slots in its hands. owed: messages of a broadcast ring that it has not released. row: its place in the table."""

cdef enum:
    LOST_MAX = 64              # what rb_get_lost() gives at most
    WORTH_LETTING_GO = 1 << 16 # bytes; a shorter copy takes less time than handing the GIL over
    PAST_CACHE = 8 << 20       # bytes; what is larger is not in the cache any more when its consumer comes

cdef unsigned long forks = 0   # how many forks lie between this process and the one that loaded the module

cdef void count_fork() noexcept nogil:
    global forks
    forks += 1

def generation():
    """A number that a forked child does not share with its parent: how many forks lie behind it."""
    return forks

if pthread_atfork(NULL, NULL, count_fork) != 0:
    raise MemoryError("pthread_atfork")


# ---- errors and arguments -----------------------------------------------------------------------------------


cdef int check(int rc, Ring ring=None, object timed_out=None, object timeout=None) except -1:
    """Return rc, or raise what a negative errno from a call on a ring stands for."""
    if rc >= 0:
        return rc
    if rc == -errno.EAGAIN or rc == -errno.ETIMEDOUT:
        within = f"within {timeout} s" if timeout else "now"
        if timed_out is Full:
            raise Full(f"none of the {ring.slots} slots came free {within}; take messages faster, "
                       "drop batches that are held, or make the ring with more slots")
        raise Empty(f"no message came {within}; are producers alive, and do they send what was asked for?")
    if rc == -errno.EPIPE:
        if timed_out is Full:
            raise Closed("the ring is finished: no message may follow finish()")
        raise Closed("the ring is finished, and nothing is left to take")
    if rc == -errno.ESTALE:
        raise RingbufError("this slot was handed back before, or belongs to the process that this one was forked from")
    if rc == -errno.EBUSY:
        raise RingbufError(f"{ring.held} messages from before unsubscribe() are still held; drop them and read again")
    if rc == -errno.EUSERS:
        raise PeerTableFull("no place for one more reader or process on this ring; let one leave, or make another ring")
    if rc == -errno.EBADMSG:
        raise CorruptSegment("a message claims to be larger than its slot, and was dropped; "
                             "does something else write to this memory?")
    raise OSError(-rc, os.strerror(-rc))


cdef int check_opened(int rc, object name, int fd=-1, uint64_t needed_bytes=0) except -1:
    """Return rc, or raise what a negative errno from creating or attaching stands for."""
    if rc >= 0:
        return rc
    called = "the ring behind this descriptor" if name is None else f"the ring {name!r}"
    if needed_bytes != 0 and (rc == -errno.ENOSPC or rc == -errno.ENOMEM):
        raise memory.shortage(-rc, needed_bytes, named=name is not None)
    if rc == -errno.EFBIG:
        raise OSError(-rc, f"a ring of {needed_bytes} bytes is above the limit on file sizes (ulimit -f)")
    if rc == -errno.EEXIST:
        raise FileExistsError(-rc, "a living process uses this name; attach to its ring or choose another name", name)
    if rc == -errno.ENOENT and needed_bytes == 0 and name is not None:
        raise FileNotFoundError(-rc,
                                "no ring has this name; did its creator start, and is it still there? Where systemd's logind "
                                "has RemoveIPC=yes, names go at their user's log-out", name)
    if rc == -errno.EACCES and needed_bytes == 0:
        raise PermissionError(-rc, f"{called} is another user's, or others may write to it")
    if rc == -errno.EPROTO:
        raise VersionMismatch(f"{called} {other_layout(name, fd)}; use the version that made it, or make it anew")
    if rc == -errno.EBADMSG:
        raise CorruptSegment(f"{called} is no ring, or cut short, or its header contradicts itself; it is as before")
    if rc == -errno.EUSERS:
        raise PeerTableFull(f"{called} has as many processes attached as it has room for; let one leave")
    done = "attach to" if needed_bytes == 0 else "make"
    what = called if needed_bytes == 0 else ("a ring" if name is None else called)
    raise OSError(-rc, f"cannot {done} {what}: {os.strerror(-rc)}{memory.hint(-rc)}")


cdef int check_plan(int rc) except -1:
    """Return rc, or raise what the options of a ring are refused with."""
    if rc == -errno.EOVERFLOW:
        raise ValueError("slots times slot_bytes must stay below 2**63; ask for fewer or smaller slots")
    if rc < 0:
        raise ValueError("the options do not agree: full='overwrite' needs mode='queue'")
    return rc


cdef object other_layout(object name, int fd):
    """Say how the layout of a segment differs from ours."""
    cdef uint32_t theirs = RB_LAYOUT_VERSION
    if name is None:
        rb_peek_version(fd, &theirs)
    else:
        with open(memory.path_of(name), "rb") as segment:
            rb_peek_version(segment.fileno(), &theirs)
    if theirs != RB_LAYOUT_VERSION:
        return f"has layout version {theirs}, this library reads version {RB_LAYOUT_VERSION}"
    return "was made by a build with another byte order or another RINGBUF_WAIT"


cdef int64_t deadline_of(object timeout) except -1:
    """The moment `timeout` seconds from now on rb_now_ns()'s clock."""
    if timeout is None:
        return RB_FOREVER
    cdef double seconds = timeout
    if not seconds >= 0:
        raise ValueError(f"timeout must be None (wait), 0 (do not wait) or a positive number; got {timeout!r} seconds")
    if seconds == 0:
        return RB_NOW
    cdef int64_t now = rb_now_ns()
    if seconds * 1e9 >= <double>(INT64_MAX - now):
        return RB_FOREVER
    return now + max(<int64_t>(seconds * 1e9), 1)


cdef uint64_t tag_of(object tag) except? 0:
    cdef uint64_t number
    try:
        number = tag if type(tag) is int else index(tag)
        if number != RB_TAG_UNKNOWN:
            return number
    except (TypeError, OverflowError):
        pass
    return checks.whole("tag", tag, at_least=0, at_most=RB_TAG_UNKNOWN - 1)  # knows the words for it


cdef uint32_t target_of(object target) except? 0:
    try:
        return target if type(target) is int else index(target)
    except (TypeError, OverflowError):
        return checks.whole("target", target, at_least=0, at_most=RB_ANY)  # knows the words for it


cdef uint64_t nbytes_of(object nbytes) except? 0:
    cdef int64_t number = -1
    try:
        if type(nbytes) is int:
            number = nbytes
    except OverflowError:
        pass
    return number if number >= 0 else checks.whole("nbytes", nbytes, at_least=0, at_most=INT64_MAX)


cdef int filter_of(object tag, object target, rb_filter *wanted) except -1:
    memset(wanted, 0, sizeof(wanted[0]))
    if tag is not None:
        wanted.by_tag = True
        wanted.tag = tag_of(tag)
    if target is not None:
        wanted.by_target = True
        wanted.target = target_of(target)
    return 0


cdef int stop_waiting(void *arg) noexcept nogil:
    """Leave the C loop whenever a signal came or 100 ms passed; ours looks at signals and at close()."""
    return -errno.EINTR


# ---- the ring -----------------------------------------------------------------------------------------------


@cython.final
cdef class Ring:
    """One process's handle on a ring of raw slots. Made by `create`, `attach` or `attach_fd`.

    Any thread may call. `close()` makes other threads' waits end with Closed.
    """

    @staticmethod
    def create(*, slots, slot_bytes, name=None, mode="queue", full="block", hugepages=None, redeliver=True,
               supervised=False, unsecured=False):
        """Make a ring and attach to it. ValueError before any system call, OSError when memory is short.

        supervised: whether what the dead hold stays as it is until somebody calls recover(); see look().
        unsecured: whether all but the first page of each slot is left to `Claim.secure()`.
        """
        cdef Ring self = Ring.__new__(Ring)
        cdef rb_options options
        cdef uint64_t needed = 0
        cdef int rc
        memset(&options, 0, sizeof(options))
        encoded = None if name is None else checks.ring_name(name).encode("ascii")
        if encoded is not None:
            options.name = encoded
        options.slots = checks.whole("slots", slots, at_least=1, at_most=RB_SLOTS_MAX)
        options.slot_bytes = checks.whole("slot_bytes", slot_bytes, at_least=1, at_most=INT64_MAX)
        options.mode = checks.choice("mode", mode, MODES)
        options.full = checks.choice("full", full, FULLS)
        options.hugepages = checks.choice("hugepages", hugepages, HUGEPAGES)
        options.redeliver = bool(redeliver)
        options.supervised = bool(supervised)
        options.unsecured = bool(unsecured)
        check_plan(rb_segment_bytes(&options, &needed))
        memory.refuse_beyond_control_groups(needed, named=name is not None)
        with nogil:
            rc = rb_create(&options, &self.ring)
        check_opened(rc, name, -1, needed)
        return self.opened()

    @staticmethod
    def attach(name):
        """Attach to a named ring.
        FileNotFoundError, PermissionError, VersionMismatch, CorruptSegment or PeerTableFull when that cannot be."""
        cdef Ring self = Ring.__new__(Ring)
        cdef int rc
        encoded = checks.ring_name(name).encode("ascii")
        cdef const char *c_name = encoded
        with nogil:
            rc = rb_attach(c_name, &self.ring)
        check_opened(rc, name)
        return self.opened()

    @staticmethod
    def attach_fd(int fd, *, bint supervised=False, bint unsecured=False):
        """Attach to the ring behind a descriptor from `fileno()`; the descriptor stays the caller's.

        supervised, unsecured: as the ring was created; all of its participants have to say it.
        """
        cdef Ring self = Ring.__new__(Ring)
        cdef int rc
        with nogil:
            rc = rb_attach_fd_supervised(fd, &self.ring) if supervised else rb_attach_fd(fd, &self.ring)
        check_opened(rc, None, fd)
        if unsecured:
            rb_is_unsecured(self.ring)
        return self.opened()

    cdef Ring opened(self):
        cdef rb_info info
        rb_on_pause(self.ring, stop_waiting, NULL)
        rb_get_info(self.ring, &info)
        self.forks = forks
        self.slots = info.slots
        self.slot_bytes = info.slot_bytes
        self.total_bytes = info.total_bytes
        self.name = None if info.name == NULL else info.name.decode("ascii")
        self.mode = "broadcast" if info.mode == RB_BROADCAST else "queue"
        self.full = "overwrite" if info.full == RB_OVERWRITE else "block"
        return self

    # -- lifetime

    cdef rb_ring *open(self) except NULL:
        """The handle, for a call that begins now."""
        if self.closed or self.ring == NULL:
            self.leave_if_over()  # closed while we slept: the last one out does it
            raise Closed("this handle on the ring is closed")
        return self.ring

    cdef rb_ring *begin_wait(self) except NULL:
        cdef rb_ring *ring = self.open()
        self.forget_other_threads_after_fork()
        self.waiting += 1
        return ring

    cdef void end_wait(self) noexcept:
        self.forget_other_threads_after_fork()
        self.waiting -= self.waiting > 0
        self.leave_if_over()

    cdef void forget_other_threads_after_fork(self) noexcept:
        if self.forks != forks:
            self.forks = forks
            self.waiting = 0

    cdef void leave_if_over(self) noexcept:
        """Once it is closed: leave the ring when nothing of it is held, and until then stop being a reader."""
        cdef rb_ring *ring = self.ring
        self.forget_other_threads_after_fork()
        if not self.closed or ring == NULL or self.waiting != 0:
            return
        if self.claims == 0 and self.leases == 0:
            self.ring = NULL
            rb_detach(ring)
        else:
            rb_unsubscribe(ring)

    def close(self):
        """Begin nothing more through this handle. Idempotent; the mapping stays until the last lease is gone."""
        self.closed = True
        if self.ring != NULL and self.waiting:
            rb_wake(self.ring)
        self.leave_if_over()

    def __dealloc__(self):
        self.closed = True
        self.leave_if_over()

    # -- messages

    def claim(self, *, tag=0, target=ANY, timeout=None):
        """Take a free slot for writing. Full after `timeout` seconds, Closed when the ring is finished."""
        cdef uint64_t c_tag = tag_of(tag)
        cdef uint32_t c_target = target_of(target)
        cdef int64_t until = deadline_of(timeout)
        cdef Claim claim = Claim.__new__(Claim)
        cdef rb_slot slot
        check(self.claim_slot(c_tag, c_target, until, &slot), self, Full, timeout)
        claim.holds(self, &slot)
        return claim

    cdef int claim_slot(self, uint64_t tag, uint32_t target, int64_t until, rb_slot *slot) except? -1:
        cdef rb_ring *ring
        cdef int rc
        while True:
            # First without waiting: that keeps the GIL, and it looks for the dead, to which a wait that signals
            # interrupt again and again never comes.
            rc = rb_claim(self.open(), tag, target, RB_NOW, slot)
            if rc == -errno.EAGAIN and until != RB_NOW:
                PyErr_CheckSignals()
                ring = self.begin_wait()
                with nogil:
                    rc = rb_claim(ring, tag, target, until, slot)
                self.waiting -= 1
            if rc != -errno.EINTR:
                break
        if rc == 0:
            self.claims += 1
        self.leave_if_over()
        return rc

    cdef int commit_slot(self, const rb_slot *slot, uint64_t nbytes) except? -1:
        cdef int rc = rb_commit(self.ring, slot, nbytes)
        self.claims -= 1
        self.leave_if_over()
        return rc

    def try_claim(self, *, tag=0, target=ANY):
        """As claim(), or None where no slot is free now."""
        cdef Claim claim = Claim.__new__(Claim)
        cdef rb_slot slot
        cdef int rc = self.claim_slot(tag_of(tag), target_of(target), RB_NOW, &slot)
        if rc == -errno.EAGAIN:
            return None
        check(rc, self, Full)
        claim.holds(self, &slot)
        return claim

    def commit_all(self, list claims not None, list sizes not None):
        """Publish several claims, in order, each the first so many bytes of its slot; whoever waits is woken once, after the
        last. Those that cannot be are aborted."""
        cdef Py_ssize_t i, n = len(claims)
        cdef rb_slot *slots = <rb_slot *>malloc(n * (sizeof(rb_slot) + sizeof(uint64_t)))
        cdef uint64_t *nbytes = <uint64_t *>(slots + n)
        cdef Claim claim
        cdef int rc
        if slots == NULL and n:
            raise MemoryError
        try:
            for i in range(n):
                claim = claims[i]
                nbytes[i] = nbytes_of(sizes[i])
                claim.must_be_pending()
                slots[i] = claim.slot
            rc = rb_commit_all(self.open(), slots, nbytes, n)
            for i in range(n):
                claim = claims[i]
                claim.pending = False
                if rc < 0:
                    rb_abort(self.ring, &claim.slot)  # -ESTALE: it is published
            check(rc, self)
        finally:
            free(slots)

    def check_claim(self, *, tag=0, target=ANY, timeout=None):
        """Refuse what claim() would refuse before it looks at the ring."""
        tag_of(tag)
        target_of(target)
        deadline_of(timeout)

    def send(self, tag, target, bytes head not None, bytes content not None):
        """Publish `content` behind `head`, in one step and without waiting. False where no slot is free.
        Closed when the ring is finished."""
        cdef uint64_t nbytes = len(head) + len(content)
        cdef rb_slot slot
        if nbytes > self.slot_bytes:
            raise BatchTooLarge(f"{nbytes} bytes were to be published, a slot holds {self.slot_bytes}",
                                needed_bytes=nbytes, available_bytes=self.slot_bytes)
        cdef int rc = self.claim_slot(tag_of(tag), target_of(target), RB_NOW, &slot)
        if rc == -errno.EAGAIN:
            return False
        check(rc, self, Full)
        memcpy(slot.data, <const char *>head, len(head))
        memcpy(<char *>slot.data + len(head), <const char *>content, len(content))
        check(self.commit_slot(&slot, nbytes), self)
        return True

    def take(self, *, timeout=None, tag=None, target=None):
        """Take the oldest message, of this tag and for this target if given. Empty after `timeout` seconds,
        Closed when the ring is finished and nothing is left."""
        cdef rb_filter wanted
        filter_of(tag, target, &wanted)
        cdef int64_t until = deadline_of(timeout)
        cdef Lease lease = Lease.__new__(Lease)
        cdef rb_slot slot
        check(self.take_slot(&wanted, until, &slot), self, Empty, timeout)
        lease.holds(self, &slot)
        return lease

    def take_into(self, list box, *, timeout=None, tag=None, target=None):
        """As take(), but append the message to `box` and return True, or return False after `timeout` seconds. The handler
        of a signal finds it either in the ring or in the box."""
        cdef rb_filter wanted
        filter_of(tag, target, &wanted)
        cdef int64_t until = deadline_of(timeout)
        cdef Lease lease = Lease.__new__(Lease)
        cdef rb_slot slot
        cdef int rc = self.take_slot(&wanted, until, &slot)
        if rc == -errno.EAGAIN or rc == -errno.ETIMEDOUT:
            return False
        check(rc, self, Empty, timeout)
        lease.holds(self, &slot)
        box.append(lease)
        return True

    cdef int take_slot(self, const rb_filter *wanted, int64_t until, rb_slot *slot) except? -1:
        cdef rb_ring *ring
        cdef int rc
        while True:
            rc = rb_take(self.open(), wanted, RB_NOW, slot)  # why: see claim_slot()
            if rc == -errno.EAGAIN and until != RB_NOW:
                PyErr_CheckSignals()
                ring = self.begin_wait()
                with nogil:
                    rc = rb_take(ring, wanted, until, slot)
                self.waiting -= 1
            if rc != -errno.EINTR:
                break
        if rc == 0:
            self.leases += 1
        self.leave_if_over()
        return rc

    cdef void release_slot(self, const rb_slot *slot) noexcept:
        rb_release(self.ring, slot)  # -ESTALE in a forked child: the slot is the parent's
        self.leases -= 1
        self.leave_if_over()

    def finish(self):
        """Refuse new messages; consumers drain what is there, then get Closed."""
        check(rb_finish(self.open()), self)

    def subscribe(self):
        """Broadcast: be a reader from now on."""
        self.must_broadcast()
        check(rb_subscribe(self.open()), self)

    def unsubscribe(self):
        """Broadcast: be a reader no more; what was not taken yet is given up."""
        self.must_broadcast()
        check(rb_unsubscribe(self.open()), self)

    cdef int must_broadcast(self) except -1:
        if self.mode != "broadcast":
            raise ValueError(f"only a ring with mode='broadcast' has readers, this one has mode={self.mode!r}")
        return 0

    # -- waiting in the place of others

    def watch(self, bint to_claim):
        """Announce a wait that begins after one more look; what this returns is what a Watcher sleeps on."""
        return rb_watch(self.open(), RB_TO_CLAIM if to_claim else RB_TO_TAKE)

    def would_find(self, bint to_claim, tag=None, target=None):
        """Whether a claim, or a take of this kind, would end at once, be it with an error."""
        cdef rb_filter wanted
        if self.closed or self.ring == NULL:
            return True
        filter_of(tag, target, &wanted)
        return (rb_can_claim(self.ring) if to_claim else rb_can_take(self.ring, &wanted)) != 0

    cdef int await_change(self, rb_wish wish, uint32_t seen) noexcept nogil:
        return rb_await(self.ring, wish, seen, RB_FOREVER)

    cdef void wake(self) noexcept:
        if self.ring != NULL:
            rb_wake(self.ring)

    def await_no_tag(self, first, last, *, timeout=None):
        """Wait until no slot holds anything under a tag from `first` to `last`; say how many do when that is so, when `timeout`
        seconds or 100 ms have passed."""
        cdef int64_t until = min(deadline_of(timeout), rb_now_ns() + 100_000_000)
        cdef uint64_t c_first = tag_of(first), c_last = tag_of(last)
        cdef rb_ring *ring = self.begin_wait()
        cdef uint32_t seen
        cdef int n
        with nogil:
            while True:
                seen = rb_watch(ring, RB_TO_CLAIM)
                n = rb_count_tags(ring, c_first, c_last)
                if n == 0 or rb_now_ns() >= until:
                    break
                rb_await(ring, RB_TO_CLAIM, seen, until)
        self.end_wait()
        PyErr_CheckSignals()
        return n

    def window(self, uint32_t index):
        """A buffer over slot `index`, to be written by leave of whose it is; see Window."""
        cdef Window window = Window.__new__(Window)
        window.data = rb_payload_of(self.open(), index)
        if window.data == NULL:
            raise IndexError(f"a ring of {self.slots} slots has no slot {index}")
        window.ring = self
        self.claims += 1
        return window

    # -- looking after it

    def recover(self):
        """Return the slots of dead processes now, and say how many came back."""
        return check(rb_recover(self.open()), self)

    def ready(self):
        """Messages waiting to be taken (in broadcast: by this handle)."""
        return check(rb_ready(self.open()), self)

    def look(self):
        """Every slot that is not free, as a View. Exact for what the dead hold, as long as nobody reaps them; of the living
        a picture, without what changes hands at the moment."""
        cdef rb_ring *ring = self.open()
        cdef rb_view view
        cdef uint32_t i
        views = []
        for i in range(self.slots):
            if rb_look(ring, i, &view) == 0 and view.state != RB_FREE:
                tag = None if view.tag == RB_TAG_UNKNOWN else view.tag
                views.append(View(i, STATES[<int>view.state], view.pid, tag, view.target, view.ticket, view.word))
        return views

    def stats(self):
        """The ring's counters as a dict, under the names of `struct rb_stats`."""
        cdef rb_stats stats
        rb_get_stats(self.open(), &stats)
        return stats

    def lost(self):
        """The latest lost messages, newest first, as (tag, pid of the producer); tag None: never written."""
        cdef rb_lost losses[LOST_MAX]
        cdef int n = check(rb_get_lost(self.open(), losses, LOST_MAX), self)
        return [(None if losses[i].tag == RB_TAG_UNKNOWN else losses[i].tag, losses[i].pid) for i in range(n)]

    def fileno(self):
        """A descriptor of the segment, to hand to another process. It stays the handle's."""
        return check(rb_fd(self.open()), self)

    @property
    def held(self):
        """Messages taken through this handle that are still alive."""
        return self.leases


@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class Claim:
    """A slot for writing: a writable buffer over all of it. As a context manager it aborts what was not committed."""

    cdef void holds(self, Ring ring, const rb_slot *slot) noexcept:
        """Answer for a slot from claim_slot()."""
        self.ring = ring
        self.slot = slot[0]
        self.pending = True

    def __dealloc__(self):
        if self.ring is None:
            return
        if self.pending:
            rb_abort(self.ring.ring, &self.slot)
        self.ring.claims -= 1
        self.ring.leave_if_over()

    def commit(self, nbytes):
        """Publish the first `nbytes` of the slot."""
        cdef uint64_t bytes = nbytes_of(nbytes)
        self.must_be_pending()
        if bytes > self.slot.bytes:
            raise BatchTooLarge(
                f"{bytes} bytes were to be published, a slot holds {self.slot.bytes}; make it with larger slots",
                needed_bytes=bytes, available_bytes=self.slot.bytes)
        self.pending = False
        check(rb_commit(self.ring.ring, &self.slot, bytes), self.ring)

    def secure(self):
        """Of a slot of an unsecured ring: have memory behind all of it, before more than its first page is written to.
        OSError when memory is short; the slot stays claimed."""
        cdef int rc
        self.must_be_pending()
        with nogil:
            rc = rb_secure(self.ring.ring, &self.slot)
        if rc == -errno.ENOMEM or rc == -errno.ENOSPC:
            raise memory.shortage(-rc, self.slot.bytes, named=self.ring.name is not None)
        check(rc, self.ring)

    def abort(self):
        """Give the slot back unpublished."""
        self.must_be_pending()
        self.pending = False
        check(rb_abort(self.ring.ring, &self.slot), self.ring)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        if self.pending:
            self.pending = False
            rb_abort(self.ring.ring, &self.slot)

    cdef int must_be_pending(self) except -1:
        if not self.pending:
            raise RingbufError("this claim was committed or aborted before; claim another slot")
        return 0

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.must_be_pending()
        PyBuffer_FillInfo(view, self, self.slot.data, self.slot.bytes, False, flags)

    @property
    def nbytes(self):
        """Bytes that the slot holds."""
        return self.slot.bytes

    @property
    def tag(self):
        return self.slot.tag

    @property
    def index(self):
        """Which slot this is."""
        return self.slot.index


@cython.final
@cython.no_gc
cdef class Window:
    """A writable buffer over a slot that another process has claimed and lets us write to. Keeps the mapping, and nothing else: when
    one may write is for the two to agree."""

    def __dealloc__(self):
        if self.ring is not None:
            self.ring.claims -= 1
            self.ring.leave_if_over()

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.ring.slot_bytes, False, flags)


@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class Lease:
    """A message: a buffer over its bytes, read-only in broadcast. Its slot returns to the ring when this object dies;
    every view of the buffer keeps it alive."""

    cdef void holds(self, Ring ring, const rb_slot *slot) noexcept:
        """Answer for a slot from take_slot()."""
        self.ring = ring
        self.slot = slot[0]

    def __dealloc__(self):
        if self.ring is not None:
            self.ring.release_slot(&self.slot)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.slot.data, self.slot.bytes, self.ring.mode == "broadcast", flags)

    @property
    def nbytes(self):
        """Bytes that were committed."""
        return self.slot.bytes

    @property
    def tag(self):
        return self.slot.tag

    @property
    def ticket(self):
        """Place in the order of commits, from 1, with gaps."""
        return self.slot.ticket

    @property
    def target(self):
        return self.slot.target

    @property
    def index(self):
        """Which slot this is."""
        return self.slot.index

    @property
    def offset(self):
        """Where its bytes begin in the memory behind `ring.fileno()`: payloads lie at the end of it, one after another."""
        cdef rb_info info
        rb_get_info(self.ring.ring, &info)
        return info.total_bytes - (info.slots - self.slot.index) * info.slot_stride


def copy_into(destination, source, *, streaming=None):
    """Copy the bytes of `source` to the beginning of `destination`, both contiguous buffers that do not overlap.

    The GIL is free meanwhile. streaming: whether to copy past the processor's caches, which is faster for a slot that
    is larger than they are, also when it is filled in small pieces; None goes by the size of `source`.
    """
    cdef Py_buffer to, from_
    cdef bint past_cache
    PyObject_GetBuffer(destination, &to, PyBUF_WRITABLE | PyBUF_ANY_CONTIGUOUS)
    try:
        PyObject_GetBuffer(source, &from_, PyBUF_ANY_CONTIGUOUS)
        try:
            if from_.len > to.len:
                raise ValueError(f"{from_.len} bytes do not fit into {to.len}")
            past_cache = from_.len >= PAST_CACHE if streaming is None else streaming
            copy(to.buf, from_.buf, from_.len, past_cache)
        finally:
            PyBuffer_Release(&from_)
    finally:
        PyBuffer_Release(&to)


cdef void copy(void *to, const void *source, Py_ssize_t nbytes, bint past_cache) noexcept:
    if nbytes < WORTH_LETTING_GO:
        copy_bytes(to, source, nbytes, past_cache)
    else:
        with nogil:
            copy_bytes(to, source, nbytes, past_cache)


cdef void copy_bytes(void *to, const void *source, size_t nbytes, bint past_cache) noexcept nogil:
    if past_cache:
        rb_copy_streaming(to, source, nbytes)
    else:
        memcpy(to, source, nbytes)


# ---- from outside -------------------------------------------------------------------------------------------


cdef list views_of(const rb_view *slots, uint32_t n):
    """Those that are not free."""
    return [
        View(i, STATES[<int>slots[i].state], slots[i].pid, None if slots[i].tag == RB_TAG_UNKNOWN else slots[i].tag,
             slots[i].target, slots[i].ticket, slots[i].word)
        for i in range(n) if slots[i].state in STATES
    ]


cdef list peers_of(const rb_peer *peers, uint32_t n):
    return [
        Peer(peers[i].pid, bool(peers[i].alive), peers[i].joined_ns, peers[i].published, peers[i].consumed, peers[i].waits,
             peers[i].wait_ns, peers[i].writing, peers[i].reading, peers[i].owed, peers[i].row)
        for i in range(n)
    ]


cdef object named(dict names, int number):
    return next(name for name, known in names.items() if known == number)


def survey(name):
    """Look at a named ring from outside: nothing is written, joined or locked, and nobody has to answer.

    Returns a dict. Of everything under a ring's name: problem (an errno that attach() would be refused with, 0: none), alive
    (whether somebody is attached; None: not to be told from here), uid, version (of the layout; 0: it is no ring), file_bytes,
    changed_ns (since 1970), readable. Of what is readable also: id (text that tells two rings of one name apart), created_ns,
    message_bytes (of latest messages, on average), mode, full, slots, slot_bytes, total_bytes, room (for participants),
    stats (as `Ring.stats()`), peers (a list of Peer), views (a list of View, of slots that are not free).
    FileNotFoundError where there is none of that name; other OSErrors as from the system.
    """
    cdef rb_survey_result *seen = NULL
    cdef int rc
    encoded = checks.ring_name(name).encode("ascii")
    cdef const char *c_name = encoded
    with nogil:
        rc = rb_survey(c_name, &seen)
    if rc == -errno.ENOENT:
        raise FileNotFoundError(-rc, "no ring has this name", name)
    if rc < 0:
        raise OSError(-rc, f"cannot look at the ring {name!r}: {os.strerror(-rc)}{memory.hint(-rc)}")
    try:
        found = {
            "problem": -seen.problem,
            "alive": None if seen.alive < 0 else bool(seen.alive),
            "uid": seen.uid,
            "version": seen.version,
            "file_bytes": seen.file_bytes,
            "changed_ns": seen.changed_ns,
            "readable": bool(seen.readable),
        }
        if seen.readable:
            found.update(
                id=f"{seen.id[0]:016x}{seen.id[1]:016x}",
                created_ns=seen.created_ns,
                message_bytes=seen.message_bytes,
                mode=named(MODES, seen.info.mode),
                full=named(FULLS, seen.info.full),
                slots=seen.info.slots,
                slot_bytes=seen.info.slot_bytes,
                total_bytes=seen.info.total_bytes,
                room=seen.info.participants,
                stats=seen.stats,
                peers=peers_of(seen.peers, seen.stats.participants),
                views=views_of(seen.slots, seen.info.slots),
            )
        return found
    finally:
        rb_survey_free(seen)


def unlink(name):
    """Remove the name of a ring whose processes are all dead, or of what is left of one.

    BlockingIOError: somebody is attached; the name is theirs still. FileNotFoundError, PermissionError, other OSErrors."""
    cdef int rc
    encoded = checks.ring_name(name).encode("ascii")
    cdef const char *c_name = encoded
    with nogil:
        rc = rb_unlink(c_name)
    if rc == -errno.EBUSY:
        raise BlockingIOError(-rc, "a living process is attached to this ring; it stays", name)
    if rc == -errno.EACCES:
        raise PermissionError(-rc, "this is another user's, or no ring; it stays", name)
    if rc < 0:
        raise OSError(-rc, "no ring has this name" if rc == -errno.ENOENT else os.strerror(-rc), name)
