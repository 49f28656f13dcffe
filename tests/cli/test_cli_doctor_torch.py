"""What a DataLoader of torch is run as: a RingLoader of the same arguments, with the same batches."""

import copy

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from ringbuf.torch.likeness import like

ROWS = TensorDataset(torch.arange(20.0))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(20.0))


def summed(samples):
    return sum(row for (row,) in samples)


CASES = {
    "RingLoader(dataset)": lambda: DataLoader(ROWS),
    "RingLoader(dataset, batch_size=3, drop_last=True)": lambda: DataLoader(ROWS, batch_size=3, drop_last=True),
    "RingLoader(dataset, batch_size=None)": lambda: DataLoader(ROWS, batch_size=None),
    "RingLoader(dataset, batch_size=4, shuffle=True)": lambda: DataLoader(ROWS, batch_size=4, shuffle=True),
    "RingLoader(dataset, shuffle=True, generator=Generator(...))": lambda: DataLoader(
        ROWS, shuffle=True, generator=torch.Generator().manual_seed(3)
    ),
    "RingLoader(dataset, batch_size=4, sampler=RandomSampler(...))": lambda: DataLoader(
        ROWS, batch_size=4, sampler=RandomSampler(ROWS, num_samples=8, generator=torch.Generator().manual_seed(3))
    ),
    "RingLoader(dataset, sampler=WeightedRandomSampler(...))": lambda: DataLoader(
        ROWS, sampler=WeightedRandomSampler([1.0] * 20, 7, generator=torch.Generator().manual_seed(3))
    ),
    "RingLoader(dataset, batch_sampler=list(...))": lambda: DataLoader(ROWS, batch_sampler=[[3, 1], [2]]),
    "RingLoader(dataset, batch_sampler=BatchSampler(...))": lambda: DataLoader(
        ROWS, batch_sampler=BatchSampler(SequentialSampler(ROWS), 5, False)
    ),
    "RingLoader(dataset, batch_size=8, collate_fn=summed)": lambda: DataLoader(ROWS, batch_size=8, collate_fn=summed),
    "RingLoader(dataset, batch_size=6) of a stream": lambda: DataLoader(Stream(), batch_size=6),
    "RingLoader(dataset, num_workers=1, timeout=30, prefetch_factor=3)": lambda: DataLoader(
        ROWS, num_workers=1, timeout=30, prefetch_factor=3
    ),
}


@pytest.mark.parametrize("call", CASES)
def test_it_gives_the_same_batches_and_says_how_it_would_be_called(call):
    torch.manual_seed(7)
    expected = list(CASES[call]())
    ring, text = like(CASES[call]())
    assert text == call.removesuffix(" of a stream")
    torch.manual_seed(7)
    with ring:
        found = [copy.deepcopy(batch) for batch in ring]  # it would warn of batches that are kept
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
