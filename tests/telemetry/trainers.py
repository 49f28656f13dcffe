"""Datasets, and trainers in processes of their own, for whoever looks at them from outside."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys

import numpy as np

import ringbuf

DEADLINE_S = 30.0

names = (f"seen-{os.getpid()}-{number}" for number in itertools.count())


class Rows(ringbuf.Dataset):
    def __init__(self, length=64):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return np.full(8, index, np.float32)


class Gate(Rows):
    """A sample of index `closed` is made only when something is written into the pipe."""

    def __init__(self, length, closed):
        super().__init__(length)
        self.closed = closed
        self.reading, self.writing = os.pipe()

    def __getitem__(self, index):
        if index == self.closed:
            assert select.select([self.reading], [], [], DEADLINE_S)[0]
        return super().__getitem__(index)

    def open(self):
        os.write(self.writing, b"x")

    def close(self):
        os.close(self.reading)
        os.close(self.writing)


class Dying(Rows):
    """Kills its process at sample 21, as long as there is no such file."""

    def __init__(self, length, mark):
        super().__init__(length)
        self.mark = mark

    def __getitem__(self, index):
        if index == 21:
            try:
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return super().__getitem__(index)


class Failing(Rows):
    def __getitem__(self, index):
        if index == 5:
            raise LookupError("no sample 5")
        return super().__getitem__(index)


class Together(Rows):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class InPlace(Rows):
    def __getitem_into__(self, index, out):
        out[...] = index


class Stream(ringbuf.IterableDataset):
    def __iter__(self):
        info = ringbuf.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return (np.full(8, index, np.float32) for index in range(first, 64, step))


def run(loader):
    """Make a pass, and return how many batches it had. None is kept."""
    return sum(1 for _ in loader)


def listed(samples):
    return [np.stack(samples)]


ENDLESS = """
import itertools, sys, time
sys.path.insert(0, {here!r})
from trainers import Rows
import ringbuf
if __name__ == "__main__":
    loader = ringbuf.RingLoader(Rows(), 4, num_workers={workers}, {options})
    for number in itertools.count():
        for batch in loader:
            time.sleep(0.001)  # it is to be looked at, not to keep a processor busy
        if number == 0:
            print("running", flush=True)
"""


@contextlib.contextmanager
def trainer(workers, folder, **options):
    """A process that makes one pass after another, once it has made one."""
    path = folder / f"trainer_{next(names)}.py"
    arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
    path.write_text(ENDLESS.format(here=os.path.dirname(__file__), workers=workers, options=arguments))
    with subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            assert process.stdout.readline() == "running\n"
            yield process
        finally:
            process.kill()
