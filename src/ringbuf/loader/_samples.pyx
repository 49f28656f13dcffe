# cython: language_level=3, embedsignature=True, embedsignature.format=python
"""The samples of a batch, by index: what is done once for each of them."""

cimport cython
from libc.stdint cimport int64_t

from ringbuf.telemetry._meter cimport WorkerMeter, now_ns

from ringbuf.loader.substitute import LEFT_OUT as _LEFT_OUT

cdef object LEFT_OUT = _LEFT_OUT


@cython.final
cdef class Samples:
    """An iterator over the samples of one batch after the other, without those that are left out.

    pause: called now and then between samples; returns how many may be made before the next call.
    substitute: called as substitute(index, error) when the making of a sample failed; returns what to use instead, which may be
        LEFT_OUT. None: errors are raised.
    meter: where the time that the dataset takes is noted.
    at: the index of the sample in hand; None before the first and after the last one.
    """

    cdef object dataset, pause, substitute, prepare
    cdef WorkerMeter meter
    cdef list indices
    cdef Py_ssize_t next, left
    cdef public object at

    def __init__(self, dataset, pause, substitute, WorkerMeter meter not None):
        self.dataset, self.pause, self.substitute, self.meter = dataset, pause, substitute, meter
        self.indices = []

    def begin(self, list indices not None, prepare=None):
        """Turn to the samples of a batch.

        prepare: called before each sample with its place in the batch.
        """
        self.indices, self.prepare = indices, prepare
        self.next, self.left, self.at = 0, 1, None
        return self

    def __iter__(self):
        return self

    def __next__(self):
        while True:
            if self.left == 0:
                self.left = self.pause()
            if self.next >= len(self.indices):
                self.at = None
                raise StopIteration
            sample = self.make()
            self.left -= 1
            if sample is not LEFT_OUT:
                return sample

    cdef object make(self):
        cdef Py_ssize_t place = self.next
        cdef int64_t began
        self.next = place + 1
        self.at = self.indices[place]
        if self.prepare is not None:
            self.prepare(place)
        self.meter.samples += 1
        try:
            if not self.meter.timing:
                return self.dataset[self.at]
            began = now_ns()
            try:
                return self.dataset[self.at]
            finally:
                self.meter.load_ns += now_ns() - began
        except StopIteration as stop:  # let through, it would end the batch in silence
            error = no_sample(self.at)
            if self.substitute is None:
                raise error from stop
            return self.substitute(self.at, error)
        except Exception as error:
            if self.substitute is None:
                raise
            return self.substitute(self.at, error)


def no_sample(index):
    """The error for a StopIteration where a sample should be."""
    return RuntimeError(f"StopIteration was raised for sample {index!r}; an index must give a sample")
