"""Datasets for the field's failures, without torch, so that a spawned worker imports them quickly."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time

import numpy as np

import ringbuf


class Filled:
    """Sample i: an array full of i."""

    def __init__(self, length=40, shape=(3, 4), dtype=np.float32):
        self.length, self.shape, self.dtype = length, shape, dtype

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return np.full(self.shape, index, self.dtype)


class Given:
    """The samples of a list, as they are."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


class Raises:
    """Sample i is i, but for one index, where `make` is called and its result raised."""

    def __init__(self, make, at=0, length=4):
        self.make, self.at, self.length = make, at, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.at:
            raise self.make()
        return np.int64(index)


class OneBuffer:
    """Hands out one array, rewritten for each sample; or one tensor over the same memory."""

    def __init__(self, length=20, tensor=False):
        self.length, self.array = length, np.zeros(5)
        self.buffer = self.array
        if tensor:
            self.buffer = sys.modules["torch"].from_numpy(self.array)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.array[:] = index
        return self.buffer


class Stream:
    """Iterable style: numbers from each worker's share, `count` for each shard; shard k belongs to worker k mod n."""

    def __init__(self, counts, shared_out=True, told=None):
        self.counts, self.shared_out, self.told = counts, shared_out, told

    def __iter__(self):
        info = ringbuf.get_worker_info()
        first, step = (0, 1) if info is None or not self.shared_out else (info.id, info.num_workers)
        for shard in range(first, len(self.counts), step):
            yield from (np.int64(1000 * shard + number) for number in range(self.counts[shard]))


class ToldStream(Stream):
    def __len__(self):
        return self.told


class AskedTooOften:
    """An iterator that would go on after its end."""

    def __init__(self):
        self.asked = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.asked += 1
        if self.asked == 4:
            raise StopIteration
        return np.int64(self.asked)


class StopsInside:
    """A generator in which a StopIteration gets loose."""

    def __iter__(self):
        yield np.int64(0)
        next(iter(()))


class Draws:
    """Numbers from every stream that a sample may draw from."""

    def __init__(self, length=8):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        info = ringbuf.get_worker_info()
        own = np.random.default_rng(None if info is None else info.seed)
        drawn = [random.getrandbits(60), int(np.random.randint(1 << 60)), int(np.random.default_rng().integers(1 << 60))]
        torch = sys.modules.get("torch")
        drawn.append(random.getrandbits(60) if torch is None else int(torch.randint(1 << 60, ())))
        return np.array([*drawn, own.integers(1 << 60)])


class Dies:
    """Ends its worker at one index, in one of several ways, once `gate` is open."""

    def __init__(self, how, at=3, length=12, gate=None):
        self.how, self.at, self.length, self.gate = how, at, length, gate

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.at:
            if self.gate is not None:
                assert self.gate.wait(30)
            die(self.how)
        return np.int64(index)


def die(how):
    import faulthandler

    if isinstance(how, signal.Signals):
        faulthandler.disable()  # which the test runner left on, and which has nothing to tell
        os.kill(os.getpid(), how)
        time.sleep(60)
    elif how == "null":
        import ctypes

        faulthandler.disable()
        ctypes.string_at(0)
    elif how == "os._exit":
        os._exit(3)
    else:
        sys.exit(how)


def die_while_starting(worker_id):
    if worker_id == 1:
        os._exit(4)


class Waits:
    """Sample `at` waits for an event; it says when it was reached."""

    def __init__(self, event, at=0, length=12, reached=None):
        self.event, self.at, self.length, self.reached = event, at, length, reached

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.at:
            if self.reached is not None:
                self.reached.set()
            assert self.event.wait(30)
        return np.int64(index)


class TakesLock:
    """Each sample takes a lock that the fork copied, held or not."""

    def __init__(self, lock):
        self.lock = lock

    def __len__(self):
        return 4

    def __getitem__(self, index):
        with self.lock:
            return np.int64(index)


class Loads:
    """A loader inside each sample."""

    def __init__(self, Loader):
        self.Loader = Loader

    def __len__(self):
        return 2

    def __getitem__(self, index):
        with self.Loader(Filled(4, (1,)), 2, num_workers=1) as loader:
            return np.array([np.asarray(batch)[:, 0] for batch in loader]) + 100 * index


def listed(samples):
    return list(samples)


def become_nobody(worker_id):
    """A worker that gives up what it does not need."""
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)


@contextlib.contextmanager
def uncollected():
    """No collection of cycles meanwhile: what ends does so with its last reference."""
    import gc

    gc.disable()
    try:
        yield
    finally:
        gc.enable()
