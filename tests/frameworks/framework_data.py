"""Datasets that workers need, and what a framework must do with them alike for torch's loader and ours."""

import numpy as np
import torch

import ringbuf.torch

LOADERS = {"theirs": torch.utils.data.DataLoader, "ours": ringbuf.torch.RingLoader}

# One value of each option of the ring, none of them the default.
RING_OPTIONS = {
    "slots": 9,
    "slot_bytes": 1 << 16,
    "max_bytes": 1 << 22,
    "max_restarts": 7,
    "seed_by": "sample",
    "on_error": "skip",
}


def options_of(loader):
    return {name: getattr(loader, name) for name in RING_OPTIONS}


def flat(batches):
    return [sample for batch in batches for sample in batch]


class Line(torch.utils.data.Dataset):
    """Points near y = 2x + 1; the noise is drawn in the worker."""

    def __init__(self, length=26):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        x = torch.tensor([index / self.length])
        return x, 2 * x + 1 + 0.1 * torch.rand(1)


class Epochs(Line):
    """Sample i: i, and the epoch that this copy of the dataset was told of."""

    epoch = -1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return index, self.epoch


class Stream(torch.utils.data.IterableDataset):
    """0 to 25, shared out between the workers."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(np.arange(first, 26, step))
