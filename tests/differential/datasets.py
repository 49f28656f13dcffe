"""Datasets, samplers and functions for both loaders, in a module that spawned workers can import."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, default_collate, get_worker_info

from differential.runner import FATAL

__all__ = [
    "COLLATES", "DRAWS", "ERRORS", "INITS", "Batch", "Drawing", "Eager", "Flow", "Indices", "Stream", "Table", "Tape",
    "TapeTogether", "Together", "TogetherInATuple", "Told",
]  # fmt: skip


# ---- samples of all kinds -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """One batch of samples that are all made like `recipe`, but those in `others`."""

    recipe: Any
    rows: int = 1
    others: dict = field(default_factory=dict)

    def sample(self, row: int, seed: int) -> Any:
        return self.others.get(row, self.recipe).make(np.random.default_rng((seed, row)))


class Table(Dataset):
    """Each batch has samples of a kind of its own; an index is (batch, row)."""

    def __init__(self, batches):
        self.batches = batches

    def __getitem__(self, index):
        number, row = index
        return self.batches[number].sample(row, number)

    def indices(self):
        return [[(number, row) for row in range(batch.rows)] for number, batch in enumerate(self.batches)]


class Together(Table):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class TogetherInATuple(Table):
    def __getitems__(self, indices):
        return tuple(self[index] for index in indices)


class Flow(IterableDataset):
    """The same as an iterable; worker k of n has every n-th batch."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, len(self.batches), step):
            for row in range(self.batches[number].rows):
                yield self.batches[number].sample(row, number)


# ---- samples that tell where they come from, and fail ---------------------------------------------------------------


class TwoArguments(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


class WithMessage(Exception):
    def __init__(self, message=""):
        super().__init__(message)
        self.message = message


class Unpicklable(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.function = lambda: None


class Mute(Exception):
    def __str__(self):
        return ""


ERRORS = {
    "ValueError": lambda index: ValueError(f"bad {index}"),
    "KeyError": lambda index: KeyError(f"key {index}"),
    "IndexError": lambda index: IndexError(index),
    "StopIteration": lambda index: StopIteration(f"planted {index}"),
    "OSError": lambda index: OSError(2, "no such file", f"{index}.png"),
    "two arguments": lambda index: TwoArguments(index, "wrong"),
    "with a message": lambda index: WithMessage(f"message {index}"),
    "unpicklable": lambda index: Unpicklable(f"of {index}"),
    "mute": lambda index: Mute(),
    "assertion": lambda index: AssertionError(),
    "unicode": lambda index: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
}

DRAWS = {
    "nothing": lambda: 0,
    "random": random.random,
    "numpy": np.random.random,
    "torch": lambda: torch.rand(2),
    "all": lambda: (random.getrandbits(40), np.random.randint(1 << 30, size=3), torch.randint(1 << 40, (2,)), torch.randn(())),
}


@dataclass
class Told:
    """What a sample does besides being a number.

    fails: {index: name of an error}. draws: which random streams it uses. where: whether it says in which worker.
    """

    fails: dict = field(default_factory=dict)
    draws: str = "nothing"
    where: bool = False

    def sample(self, dataset: Any, index: Any) -> Any:
        drawn = DRAWS[self.draws]()
        if index in self.fails:
            raise ERRORS[self.fails[index]](index)
        sample = {"index": index, "drawn": drawn, "name": f"sample {index}", "x": torch.full((3,), float(index))}
        if self.where:
            sample["where"] = _whereabouts(dataset)
        return sample


def _whereabouts(dataset: Any) -> Any:
    info = get_worker_info()
    common = [torch.initial_seed(), torch.get_num_threads(), torch.get_default_dtype().itemsize]
    if info is None:
        return common
    process = multiprocessing.current_process()
    return [*common, info.id, info.num_workers, info.seed, info.dataset is dataset, type(info).__name__, process.daemon]


class Tape(Dataset):
    """Map-style."""

    def __init__(self, length, told):
        self.length, self.told = length, told

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if isinstance(index, (list, tuple)):  # a batch of its own
            return [self[one] for one in index]
        return self.told.sample(self, int(index))


class TapeTogether(Tape):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Cursor:
    """An iterator that goes on after an error, as a generator does not."""

    def __init__(self, dataset, numbers):
        self.dataset, self.numbers = dataset, numbers

    def __iter__(self):
        return self

    def __next__(self):
        return self.dataset.told.sample(self.dataset, next(self.numbers))


class Stream(IterableDataset):
    """Iterable."""

    def __init__(self, length, told, *, shared_out=True, generator=False, claims=None):
        self.length, self.told, self.shared_out, self.generator, self.claims = length, told, shared_out, generator, claims

    def __repr__(self):
        return f"<a stream of {self.length}>"

    def __iter__(self):
        if self.claims == "broken":
            raise RuntimeError(FATAL)
        info = get_worker_info()
        first, step = (0, 1) if info is None or not self.shared_out else (info.id, info.num_workers)
        numbers = iter(range(first, self.length, step))
        if self.generator:
            return (self.told.sample(self, number) for number in numbers)
        return Cursor(self, numbers)

    def __len__(self):
        if self.claims is None:
            raise TypeError("a stream of unknown length")
        return self.claims if isinstance(self.claims, int) else self.length


class Drawing(Sampler):
    """Draws from every stream of the program with each index, and may fail."""

    def __init__(self, length, fails_at=None):
        self.length, self.fails_at = length, fails_at

    def __iter__(self) -> Iterator[int]:
        for step in range(self.length):
            if step == self.fails_at:
                raise LookupError(f"no index at step {step}")
            drawn = random.randrange(self.length) + np.random.randint(self.length) + int(torch.randint(self.length, ()))
            yield drawn % self.length

    def __len__(self):
        return self.length


class Eager(Sampler):
    """Draws all its indices, or batches of them, when it is begun with, not with the first of them."""

    def __init__(self, length, rows=None):
        self.length, self.rows = length, rows

    def __iter__(self) -> Iterator:
        drawn = torch.randperm(self.length).tolist()
        if self.rows is None:
            return iter(drawn)
        return iter([drawn[start : start + self.rows] for start in range(0, self.length, self.rows)])

    def __len__(self):
        return self.length if self.rows is None else -(-self.length // self.rows)


class Indices:
    """A sampler that is only iterable: over what a container of `kind` holds."""

    def __init__(self, content, kind=list):
        self.content, self.kind = content, kind

    def __iter__(self):
        return iter([self.kind(part) for part in self.content])

    def __len__(self):
        return len(self.content)


# ---- functions ------------------------------------------------------------------------------------------------------


def as_they_are(samples):
    return samples


def with_a_note(samples):
    return {"batch": default_collate(samples), "kind": type(samples).__name__, "drawn": DRAWS["all"](), "rows": len(samples)}


def permuted(samples):
    """Images with their channels last, as some models want them."""
    images = torch.stack([sample["x"].expand(2, 4, 3).clone() for sample in samples])
    channels_last = images.contiguous(memory_format=torch.channels_last)
    return images.permute(0, 2, 1, 3), images.permute(3, 0, 1, 2).to(torch.bfloat16), channels_last


def sometimes_failing(samples):
    if len(samples) > 2:
        raise ValueError(f"cannot collate {len(samples)} samples")
    return default_collate(samples)


def shared(samples):
    return torch.stack([sample["x"] for sample in samples]).share_memory_()


def nothing(samples):
    return None


COLLATES = {
    "default": None,
    "given": default_collate,
    "as they are": as_they_are,
    "with a note": with_a_note,
    "permuted": permuted,
    "sometimes failing": sometimes_failing,
    "shared": shared,
    "nothing": nothing,
}


def init_draws(worker_id):
    random.random(), np.random.random(worker_id + 1), torch.rand(worker_id)


def init_seeds(worker_id):
    random.seed(worker_id)
    np.random.seed(worker_id)
    torch.manual_seed(worker_id)


def init_fails(worker_id):
    raise OSError(f"{FATAL}: worker {worker_id}")


def init_marks(worker_id):
    get_worker_info().dataset.told.draws = "all"


INITS = {"none": None, "draws": init_draws, "seeds": init_seeds, "fails": init_fails, "marks": init_marks}
