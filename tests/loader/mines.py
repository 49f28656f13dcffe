"""Deaths at chosen moments of a worker's life, and datasets whose every batch tells of the random streams."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal

import numpy as np
from loader_data import Numbered, Stream
from processes import DEADLINE_S

import ringbuf


class Once:
    """Says yes the first time that anybody asks about a name, in whatever process; knows by files in a folder."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, name):
        try:
            os.close(os.open(os.path.join(self.folder, str(name)), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


class Mine:
    """Kills a worker that steps on it. Laid before workers are forked.

    nths: at which step the worker dies; then at which step of its own whoever takes its place; and so on.
    """

    def __init__(self, tmp_path, *nths, worker_id=1):
        self._once, self.worker_id, self._nths = Once(tmp_path), worker_id, nths
        self._steps = 0  # of this process
        self.stepped_on = multiprocessing.get_context("fork").Event()

    def step(self):
        info = ringbuf.get_worker_info()
        if info is None or info.id != self.worker_id:
            return
        self._steps += 1
        lives = sum(os.path.exists(os.path.join(self._once.folder, str(life))) for life in range(len(self._nths)))
        if lives < len(self._nths) and self._steps == self._nths[lives]:
            self._once(lives)
            self.stepped_on.set()
            die()

    def lay(self, monkeypatch, owner, name, *, before):
        """At every call of this function of that object, or at every return from it."""
        function = getattr(owner, name)

        def mined(*args, **options):
            if before:
                self.step()
            result = function(*args, **options)
            if not before:
                self.step()
            return result

        monkeypatch.setattr(owner, name, mined)


def die():
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead, and goes on")


def drawn():
    return random.getrandbits(40), np.random.randint(1 << 40)


class Draws:
    """Sample i: i, and a number from each stream. The samples in `fatal` kill their worker once, half-way."""

    def __init__(self, length=24, *, folder=None, fatal=(), how=die):
        self.length, self.once, self.fatal, self.how = length, Once(folder), frozenset(fatal), how

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        first = drawn()
        if index in self.fatal and self.once(index):
            self.how()
        return index, first, drawn()


class DrawingStream(Stream):
    """The same from an iterator, which draws when it begins, too."""

    def __init__(self, length=24, *, folder=None, fatal=()):
        super().__init__(length)
        self.once, self.fatal = Once(folder), frozenset(fatal)

    def __iter__(self):
        begun = drawn()
        for value in super().__iter__():
            if int(value) in self.fatal and self.once(value):
                die()
            yield value, begun, drawn()


class DrawsFromTorch(Draws):
    def __getitem__(self, index):
        import torch

        return *super().__getitem__(index), torch.rand(1).item()


class Patient(Numbered):
    """Only the worker that is to die makes samples from 8 on before it has done so: so it has a part in any case."""

    def __init__(self, length, mine):
        super().__init__(length)
        self.mine = mine

    def __getitem__(self, index):
        if index >= 8 and ringbuf.get_worker_info().id != self.mine.worker_id:
            assert self.mine.stepped_on.wait(DEADLINE_S)
        return super().__getitem__(index)


def plain(batch):
    """A batch as lists, to compare."""
    if hasattr(batch, "tolist"):
        return batch.tolist()
    return [plain(part) for part in batch]


def leave():
    raise SystemExit(0)
