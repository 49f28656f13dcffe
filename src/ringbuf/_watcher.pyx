# cython: language_level=3, embedsignature=True, embedsignature.format=python
"""One thread that sleeps on a ring in the place of event loops, which must not.

    loop                                                    the watcher's thread
    look; announce (Ring.watch); look again; arm(bell)  ->  sleep until something has changed since
    look                                                <-  ring the bell, an eventfd that the loop listens to

It holds the GIL only when it begins and when it ends: while it sleeps, wakes and rings, Python runs undisturbed. It sleeps on the
ring only while somebody waits, so that a producer's commits cost no system call for nobody's sake; else it sleeps on a
condition.

All fields behind the mutex. Who holds the GIL may wait for the mutex, never the other way round.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from ringbuf._core cimport Ring
from ringbuf cimport RB_TO_CLAIM, RB_TO_TAKE, rb_wish

import threading

from ringbuf._core import generation

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_cond_init(pthread_cond_t *condition, void *attributes)
    int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
    int pthread_cond_signal(pthread_cond_t *condition)

cdef extern from "unistd.h" nogil:
    ssize_t write(int fd, const void *bytes, size_t count)


cdef struct Bell:
    int fd
    bint wanted     # its loop waits to hear it


cdef class Watcher:
    """For all waits for one thing, messages or free slots, through one handle in one process.

    to_claim: whether they are for slots. Raises Closed, or RuntimeError where no thread can be had.
    """

    cdef Ring ring
    cdef rb_wish wish
    cdef object thread
    cdef object generation
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t told
    cdef bint armed         # it sleeps on the ring, or will
    cdef bint stopping
    cdef uint32_t seen      # what it sleeps on
    cdef Bell *bells
    cdef Py_ssize_t count

    def __cinit__(self, Ring ring not None, *, bint to_claim):
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.told, NULL)
        self.ring = ring
        self.wish = RB_TO_CLAIM if to_claim else RB_TO_TAKE
        self.generation = generation()
        self.thread = threading.Thread(target=self.run, name="ringbuf watcher", daemon=True)
        ring.begin_wait()  # the mapping stays for as long as the thread may look at it
        try:
            self.thread.start()
        except BaseException:
            ring.end_wait()
            raise

    def __dealloc__(self):
        free(self.bells)

    def run(self):
        """What the thread does."""
        cdef Ring ring = self.ring
        with nogil:
            pthread_mutex_lock(&self.mutex)
            while not self.stopping:
                if self.armed:
                    self.sleep(ring)
                else:
                    pthread_cond_wait(&self.told, &self.mutex)
            self.ring_bells(True)
            pthread_mutex_unlock(&self.mutex)
        ring.end_wait()

    cdef void sleep(self, Ring ring) noexcept nogil:
        cdef uint32_t seen = self.seen
        cdef int rc
        pthread_mutex_unlock(&self.mutex)
        rc = ring.await_change(self.wish, seen)
        pthread_mutex_lock(&self.mutex)
        if rc == 0:
            self.armed = False
            self.ring_bells(False)

    cdef void ring_bells(self, bint all) noexcept nogil:
        cdef uint64_t once = 1
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.bells[i].wanted or all:
                self.bells[i].wanted = False
                while write(self.bells[i].fd, &once, sizeof(once)) < 0 and errno == EINTR:
                    pass

    def arm(self, int fd, uint32_t seen):
        """Ring this bell when something changes after `seen`, which was announced before the caller's last look."""
        cdef Py_ssize_t i
        pthread_mutex_lock(&self.mutex)
        for i in range(self.count):
            if self.bells[i].fd == fd:
                self.bells[i].wanted = True
        if not self.armed:  # else it sleeps on an older announcement, and what moves ours moves that too
            self.armed = True
            self.seen = seen
            pthread_cond_signal(&self.told)
        pthread_mutex_unlock(&self.mutex)

    def hang(self, int fd):
        """Know a bell, an eventfd that stays its owner's until take_down(fd)."""
        cdef Bell *bells
        pthread_mutex_lock(&self.mutex)
        bells = <Bell *>realloc(self.bells, (self.count + 1) * sizeof(Bell))
        if bells != NULL:
            self.bells = bells
            self.bells[self.count].fd = fd
            self.bells[self.count].wanted = False
            self.count += 1
        pthread_mutex_unlock(&self.mutex)
        if bells == NULL:
            raise MemoryError

    def take_down(self, int fd):
        """Never ring this bell again."""
        cdef Py_ssize_t i
        if self.is_a_parents():
            return
        pthread_mutex_lock(&self.mutex)
        for i in range(self.count):
            if self.bells[i].fd == fd:
                self.count -= 1
                self.bells[i] = self.bells[self.count]
                break
        pthread_mutex_unlock(&self.mutex)

    def is_a_parents(self):
        """Whether a fork lies between it and us: then its thread is not here, and its mutex may be locked for ever."""
        return generation() != self.generation

    def stop(self):
        """End the thread, after it has rung all bells. Idempotent; does nothing in a forked child."""
        if self.is_a_parents():
            return
        pthread_mutex_lock(&self.mutex)
        self.stopping = True
        pthread_cond_signal(&self.told)
        pthread_mutex_unlock(&self.mutex)
        if self.thread.is_alive():
            self.ring.wake()
            if self.thread is not threading.current_thread():
                self.thread.join()
