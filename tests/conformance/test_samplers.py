"""Samplers: torch's own and plain iterables, of anything that the dataset takes for an index.

Of torch's own suite: TestDataLoader's random samplers, samplers and batch samplers that are plain iterables, and bulk
loading; its distributed sampler.
"""

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from conformance.data import Counting, Numbers


def numbers(loader):
    return torch.cat(list(loader)).tolist()


# ---- plain iterables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampler",
    [[3, 1, 1, -1], (3, 1, 1, -1), torch.tensor([3, 1, 1, -1]), np.array([3, 1, 1, -1])],
    ids=lambda sampler: type(sampler).__name__,
)
def test_a_sampler_may_be_any_iterable_of_indices(Loader, num_workers, sampler):
    loader = Loader(list(range(5)), 3, sampler=sampler, num_workers=num_workers)
    assert len(loader) == 2
    assert [batch.tolist() for batch in loader] == [[3, 1, 1], [4]]


def test_a_generator_may_be_a_sampler_for_one_pass(Loader, num_workers):
    loader = Loader(Counting(9), 2, sampler=(index * 2 for index in range(3)), num_workers=num_workers)
    assert numbers(loader) == [0, 2, 4]
    assert list(loader) == []
    with pytest.raises(TypeError):
        len(loader)


@pytest.mark.parametrize(
    "batches",
    [
        [[0, 1], [2], [3, 4, 4]],
        ((0, 1), (2,), (3, 4, 4)),
        [torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3, 4, 4])],
        [range(2), [np.int64(2)], np.array([3, 4, 4])],
    ],
    ids=["lists", "tuples", "tensors", "ranges_and_arrays"],
)
def test_a_batch_sampler_may_be_any_iterable_of_iterables(Loader, num_workers, batches):
    loader = Loader([10, 11, 12, 13, 14], batch_sampler=batches, num_workers=num_workers)
    assert len(loader) == 3
    assert [batch.tolist() for batch in loader] == [[10, 11], [12], [13, 14, 14]]


def test_indices_may_be_keys(Loader, num_workers):
    table = {"a": 1.0, ("b", 2): 2.0, None: 3.0}
    loader = Loader(table, 2, sampler=[("b", 2), None, "a"], num_workers=num_workers)
    assert [batch.tolist() for batch in loader] == [[2.0, 3.0], [1.0]]


def test_a_sampler_of_ones_own_is_asked_anew_for_each_pass(Loader, num_workers):
    class Alternates(Sampler):
        turn = 0

        def __iter__(self):
            self.turn += 1
            return iter([self.turn, self.turn + 1])

    loader = Loader(Counting(9), 2, sampler=Alternates(), num_workers=num_workers)
    assert [numbers(loader), numbers(loader)] == [[1, 2], [2, 3]]


def test_a_sampler_without_a_length_gives_the_loader_none(Loader):
    class Some(Sampler):
        def __iter__(self):
            return iter([0])

    loader = Loader(Counting(9), sampler=Some())
    with pytest.raises(TypeError):
        len(loader)
    assert numbers(loader) == [0]


def test_a_batch_of_no_indices_is_an_error_of_that_batch(Loader, num_workers):
    iterator = iter(Loader(Counting(9), batch_sampler=[[1], [], [2]], num_workers=num_workers))
    assert next(iterator).tolist() == [1]
    with pytest.raises(IndexError):
        next(iterator)
    assert [batch.tolist() for batch in iterator] == [[2]]


def test_a_sampler_that_raises_ends_the_pass_with_its_error(Loader, num_workers):
    def broken():
        yield 0
        raise ValueError("no more indices")

    iterator = iter(Loader(Counting(9), sampler=Loud(broken), num_workers=0))
    assert next(iterator).tolist() == [0]
    with pytest.raises(ValueError, match="no more indices"):
        next(iterator)
    with pytest.raises(ValueError, match="no more indices"):
        list(Loader(Counting(9), sampler=Loud(broken), num_workers=num_workers))


class Loud:
    def __init__(self, function):
        self.function = function

    def __iter__(self):
        return self.function()


# ---- torch's samplers -------------------------------------------------------------------------------------------


def test_a_batch_sampler_as_sampler_gives_the_dataset_whole_lists(Loader, num_workers):
    data = torch.randn(10, 3)
    sampler = BatchSampler(SequentialSampler(data), 4, drop_last=False)
    batches = list(Loader(TensorDataset(data), None, sampler=sampler, num_workers=num_workers))
    assert [batch.shape for (batch,) in batches] == [(4, 3), (4, 3), (2, 3)]
    assert torch.equal(torch.cat([batch for (batch,) in batches]), data)


def test_random_samples_with_replacement_are_as_many_as_asked_for(Loader):
    sampler = RandomSampler(Numbers(10), replacement=True, num_samples=50, generator=seeded(1))
    drawn = numbers(Loader(Numbers(10), 7, sampler=sampler, num_workers=2))
    assert len(drawn) == 50 and set(drawn) <= set(range(10))
    sampler.generator.manual_seed(1)
    assert drawn == list(sampler)


def test_more_random_samples_than_there_are_go_round_again(Loader):
    sampler = RandomSampler(Numbers(10), num_samples=25, generator=seeded(2))
    drawn = numbers(Loader(Numbers(10), 5, sampler=sampler))
    assert sorted(drawn[:10]) == sorted(drawn[10:20]) == list(range(10)) and len(drawn) == 25


def test_a_random_subset_has_each_of_its_indices_once(Loader, num_workers):
    sampler = SubsetRandomSampler([1, 5, 7], generator=seeded(3))
    assert sorted(numbers(Loader(Numbers(10), 2, sampler=sampler, num_workers=num_workers))) == [1, 5, 7]


def test_weights_decide_how_often_an_index_comes(Loader, num_workers):
    sampler = WeightedRandomSampler([0.0, 1.0, 0.0], 20, generator=seeded(4))
    assert numbers(Loader(Numbers(3), 6, sampler=sampler, num_workers=num_workers)) == [1] * 20


def test_replicas_have_parts_that_make_up_the_whole(Loader):
    parts = []
    for rank in range(2):
        sampler = DistributedSampler(Numbers(10), num_replicas=2, rank=rank, shuffle=True, seed=5)
        loader = Loader(Numbers(10), 2, sampler=sampler)
        first = numbers(loader)
        assert numbers(loader) == first
        sampler.set_epoch(1)
        assert numbers(loader) != first
        parts += first
    assert sorted(parts) == list(range(10))


def seeded(seed):
    return torch.Generator().manual_seed(seed)
