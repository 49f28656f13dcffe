"""The random streams of workers, as they must be: made a second time, from the rules."""

import random

import numpy as np
import torch

SEED = 1234


def next_number(generator=None):
    return torch.empty((), dtype=torch.int64).random_(generator=generator).item()


def generator(seed=SEED):
    return torch.Generator().manual_seed(seed)


def first_base_seed(seed=SEED):
    return next_number(generator(seed))


class Streams:
    """The streams of one worker, as they must be: a second set of generators."""

    def __init__(self, base_seed, worker_id):
        self.seed = base_seed + worker_id
        self.id = worker_id
        words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
        self.random = random.Random(self.seed)
        self.numpy = np.random.RandomState(np.random.SeedSequence(words).generate_state(4))
        self.torch = generator(self.seed)

    def draw(self):
        return {
            "random": self.random.getrandbits(60),
            "numpy": self.numpy.randint(1 << 60),
            "torch": torch.randint(1 << 60, (), generator=self.torch),
            "initial": self.seed,
            "seed": self.seed,
            "id": self.id,
        }


def drawn(loader):
    """What the samples of a pass say, all columns by name."""
    return [{name: int(value) for name, value in sample.items()} for sample in loader]
