"""Both loaders side by side: for the same arguments and seed the same batches, bit for bit, and the same streams afterwards."""

import importlib
import random

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from conformance.conftest import LOADERS
from conformance.data import Point, draw
from conformance.expect import same


def sample(index):
    return {
        "drawn": draw(),
        "image": torch.rand(3, 5) + index,
        "array": np.random.standard_normal(4).astype(np.float32),
        "point": Point(index, [f"sample {index}", random.random()]),
        "mask": np.bool_(index % 2),
    }


class Map:
    def __len__(self):
        return 23

    def __getitem__(self, index):
        return sample(index)


class Iterable(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return (sample(index) for index in range(first, 23, step))


def options_of(case):
    """Arguments, chosen by the number of the case."""
    choose = random.Random(case).choice
    dataset = choose([Map(), Map(), Iterable()])
    workers = case % 3
    options = {
        "dataset": dataset,
        "num_workers": workers,
        "batch_size": choose([None, 1, 4, 7]),
        "generator": choose([None, torch.Generator().manual_seed(case)]),
    }
    if isinstance(dataset, Map):
        options["shuffle"] = choose([True, False])
        if choose([True, False, False]):
            del options["shuffle"]
            options["sampler"] = torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=11)
    if options["batch_size"] is not None:
        options["drop_last"] = choose([True, False])
    if workers:
        options["prefetch_factor"] = choose([None, 1, 3])
        options["persistent_workers"] = choose([True, False])
    return options


def passes(which, case):
    module, name = LOADERS[which]
    options = options_of(case)
    random.seed(case)
    np.random.seed(case)
    torch.manual_seed(case)
    loader = getattr(importlib.import_module(module), name)(**options)
    batches = [list(loader), list(loader)]
    batches += [[batch for _, batch in zip(range(2), loader, strict=False)], list(loader)]  # one of them left early
    own = options["generator"]
    streams = [random.random(), np.random.random(), torch.rand(()), None if own is None else own.get_state()]
    return batches, streams


@pytest.mark.parametrize("case", range(18))
def test_batches_and_streams_are_the_same(case):
    expected, expected_streams = passes("torch", case)
    batches, streams = passes("ringbuf", case)
    assert sum(map(len, expected)) >= 4
    assert same(batches, expected)
    assert same(streams, expected_streams)
