"""Datasets and other functions that workers need, in a module of their own so that spawned ones find them."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

import ringbuf


class Numbered:
    """Sample i: arrays and values that all say i."""

    def __init__(self, length=40, shape=(3, 4), dtype=np.float32):
        self.length, self.shape, self.dtype = length, shape, dtype
        self.first = 0

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        number = self.first + index
        return {"x": np.full(self.shape, number, self.dtype), "y": number, "s": f"sample {number}"}


def numbers_in(batch):
    """The indices of the samples that a batch of Numbered was made of, having checked all its parts."""
    numbers = batch["y"].tolist()
    assert batch["s"] == [f"sample {number}" for number in numbers]
    for number, row in zip(numbers, batch["x"], strict=True):
        assert (row == number).all()
    return numbers


class OneBuffer:
    """Hands out the same array each time."""

    def __init__(self, length=20):
        self.buffer = np.zeros(5)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.buffer[:] = index
        return self.buffer


class Growing:
    """Samples whose size grows with the index."""

    def __init__(self, length, first, step):
        self.length, self.first, self.step = length, first, step

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return np.full(self.first + index * self.step, index, np.uint8)


def listed(samples):
    return list(samples)


class Together:
    """Fetches whole batches."""

    def __len__(self):
        return 10

    def __getitems__(self, indices):
        assert type(indices) is list
        return [np.full(2, index) for index in indices]

    def __getitem__(self, index):
        raise AssertionError("__getitems__ comes first")


class Stream:
    """Iterates `length` samples, shared out between the workers by their ids, or not."""

    def __init__(self, length, *, shared_out=True, told=None):
        self.length, self.shared_out, self.told = length, shared_out, told

    def __iter__(self):
        info = ringbuf.get_worker_info()
        first, step = (0, 1) if info is None or not self.shared_out else (info.id, info.num_workers)
        return iter([np.int64(value) for value in range(first, self.length, step)])


class ToldStream(Stream):
    """The same with a length, true or not."""

    def __len__(self):
        return self.told


class StreamOfOneBuffer:
    def __iter__(self):
        buffer = np.zeros(3)
        for value in range(10):
            buffer[:] = value
            yield buffer


class StreamAskedTooOften:
    """An iterator that would go on after its end."""

    def __iter__(self):
        return self

    def __init__(self):
        self.given = 0

    def __next__(self):
        self.given += 1
        if self.given in (4, 5):
            raise StopIteration
        return self.given


class Raises:
    """Raises `error` for one index."""

    def __init__(self, error, at=5, length=12):
        self.error, self.at, self.length = error, at, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.at:
            raise self.error
        return np.int64(index)


class TwoArguments(Exception):
    """Pickles, but cannot be made again from its args."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")


class KeywordOnly(Exception):
    def __init__(self, *, code):
        super().__init__(code)


class Dies:
    """Ends its worker at one index, in one of several ways."""

    def __init__(self, how, at=9, length=24, workers=2):
        self.how, self.at, self.length = how, at, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.at:
            time.sleep(0.1)  # so that others are finished
            if isinstance(self.how, signal.Signals):
                faulthandler.disable()  # which the test runner left on, and which has nothing to tell
                os.kill(os.getpid(), self.how)
                time.sleep(60)
            elif self.how == "os._exit":
                os._exit(3)
            else:
                sys.exit(self.how)
        return np.int64(index)


class Sleeps:
    """Sleeps for so many seconds at one index."""

    def __init__(self, seconds, at=0, length=8):
        self.seconds, self.at, self.length = seconds, at, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.at:
            time.sleep(self.seconds)
        return np.int64(index)


class Drowsy:
    """Takes its time for every sample."""

    def __init__(self, seconds, length):
        self.seconds, self.length = seconds, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return np.int64(index)


class Handles:
    """Holds what can be pickled only while a process starts: a lock, and pipes, whose descriptors differ."""

    def __init__(self, method):
        context = multiprocessing.get_context(method)
        self.lock = context.Lock()
        self.reader, self.writer = context.Pipe(duplex=False)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        with self.lock:
            self.writer.send(index)
        return index


class Draws:
    """Random numbers from every stream that a worker has."""

    def __init__(self, length=8):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        info = ringbuf.get_worker_info()
        return random.getrandbits(60), np.random.randint(1 << 60), -1 if info is None else info.seed


class Whoami:
    """Each sample says who made it."""

    def __init__(self, length=8):
        self.length = length
        self.made_by = None

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        info = ringbuf.get_worker_info()
        same = info.dataset is self
        return {"id": info.id, "workers": info.num_workers, "same": same, "pid": os.getpid(), "mark": self.made_by}


def mark_dataset(worker_id):
    ringbuf.get_worker_info().dataset.made_by = worker_id


def fail_to_init(worker_id):
    raise ValueError(f"no luck in worker {worker_id}")


class CannotBeLoaded:
    """Pickles, but fails where it is unpickled."""

    def __reduce__(self):
        return refuse_to_load, ()

    def __len__(self):
        return 4


def refuse_to_load():
    raise ImportError("some library is missing here")


class Loads:
    """A loader in each worker."""

    def __init__(self, num_workers=1):
        self.num_workers = num_workers

    def __len__(self):
        return 4

    def __getitem__(self, index):
        with ringbuf.RingLoader(Numbered(4), 2, num_workers=self.num_workers) as loader:
            return np.array([numbers_in(batch) for batch in loader]) + 100 * index


def load_all(num_workers, queue):
    """In a process of its own: a pass with workers, what it gave into a queue."""
    with ringbuf.RingLoader(Numbered(8), 2, num_workers=num_workers) as loader:
        queue.put([numbers_in(batch) for batch in loader])


class FailsBesideADeath:
    """Sample 0 kills its worker once sample 1, which is another worker's, has failed with a large error."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        if index == 1:
            raise ValueError("x" * 1_000_000)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)


def load_until_killed(report, dataset, options):
    """In a process of its own: load, write the pids of the workers to a file, and go on until killed."""
    loader = ringbuf.RingLoader(dataset, 1, **options)
    iterator = iter(loader)
    Path(report).write_text(" ".join(str(process.pid) for process in iterator._workers))
    for _ in iterator:
        pass
    time.sleep(60)


def load_in_thread_until_killed(report, dataset, options):
    import threading

    thread = threading.Thread(target=load_until_killed, args=(report, dataset, options))
    thread.start()
    thread.join()
