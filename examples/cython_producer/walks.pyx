# cython: language_level=3
"""A simulator in Cython: random walks, written into the ring without Python, so that other threads run meanwhile."""

from libc.stdint cimport uint64_t
from libc.string cimport strcpy

from ringbuf cimport (
    RB_ANY,
    RB_FOREVER,
    rb_abort,
    rb_array,
    rb_attach,
    rb_claim,
    rb_commit,
    rb_detach,
    rb_finish,
    rb_frame_lay_out,
    rb_ring,
    rb_slot,
)


def produce(str name, uint64_t walks, uint64_t steps, uint64_t seed=1):
    """Publish `walks` messages {"walk": float64 array of shape (steps, 2)} in the ring of that name, and finish it."""
    cdef rb_ring *ring
    cdef rb_slot slot
    cdef rb_array array
    cdef uint64_t walk, step, nbytes = 0
    cdef double *at
    cdef int rc = rb_attach(name.encode(), &ring)
    if rc:
        raise OSError(-rc, f"cannot attach to the ring {name!r}")
    array.name = "walk"
    strcpy(array.dtype, "<f8")
    array.ndim, array.shape[0], array.shape[1] = 2, steps, 2
    with nogil:
        for walk in range(walks):
            rc = rb_claim(ring, walk, RB_ANY, RB_FOREVER, &slot)
            if rc:
                break
            rc = rb_frame_lay_out(slot.data, slot.bytes, &array, 1, &nbytes)
            if rc:
                rb_abort(ring, &slot)
                break
            at = <double *> array.data
            at[0] = at[1] = 0
            for step in range(2, 2 * steps):
                seed ^= seed << 13  # xorshift64
                seed ^= seed >> 7
                seed ^= seed << 17
                at[step] = at[step - 2] + (1 if seed & 1 else -1)
            rc = rb_commit(ring, &slot, nbytes)
            if rc:
                break
        rb_finish(ring)  # whatever happened: the reader's loop ends
        rb_detach(ring)
    if rc:
        raise OSError(-rc, f"stopped at walk {walk}")
