"""Slots take memory when a worker first needs them, and what becomes of a pass when there is none."""

import errno
import os
import resource

import numpy as np
import pytest

from ringbuf import RingLoader

MIB = 1 << 20


class Limited:
    """Batches of 2 MiB; while index 1 is made, no file may be that large."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB if index == 1 else most, most))
        return np.full(2 * MIB, index, np.uint8)


class Sized:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.full(MIB, index, np.uint8)


def memory_of(iterator):
    """Bytes behind the newest ring of a pass."""
    rings = iterator._rings
    return os.fstat(rings.ring(rings.newest).fileno()).st_blocks * 512


def test_slots_that_are_never_used_take_no_memory():
    with RingLoader(Sized(), batch_size=1, num_workers=1, slots=32) as loader:
        batches = iter(loader)
        assert [batch[0, 0] for batch in batches] == [0, 1, 2, 3]
        assert MIB < memory_of(batches) < 8 * MIB


def test_a_slot_that_no_memory_is_left_for_is_that_batchs_error_and_the_pass_goes_on():
    with RingLoader(Limited(), batch_size=1, num_workers=1, slots=4, multiprocessing_context="fork") as loader:
        batches = iter(loader)
        first = next(batches)
        with pytest.raises(OSError) as caught:
            next(batches)
        assert caught.value.errno == errno.EFBIG
        assert "Caught OSError in DataLoader worker process 0" in str(caught.value.__cause__)
        assert "[1]" in str(caught.value.__cause__)
        assert next(batches)[0, 0] == 2
        assert first[0, 0] == 0
