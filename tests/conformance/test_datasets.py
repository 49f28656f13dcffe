"""torch's own datasets, memory maps, and datasets that fetch whole batches.

Of torch's own suite: TestTensorDataset, TestStackDataset, TestConcatDataset, TestDatasetRandomSplit, as far as a loader is
concerned, and TestDataLoader's memory maps and bulk loading.
"""

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset, random_split

from conformance.data import Numbers, Stream, Table, Together, TogetherButNot, TogetherLess, as_list
from conformance.expect import same


def test_tensors_come_in_rows(Loader, num_workers):
    x, y = torch.randn(10, 3), torch.arange(10)
    batches = list(Loader(TensorDataset(x, y), 4, num_workers=num_workers))
    assert same(batches, [[x[at : at + 4], y[at : at + 4]] for at in (0, 4, 8)])


@pytest.mark.parametrize("by_name", [False, True])
def test_stacked_datasets_come_side_by_side(Loader, num_workers, by_name):
    x, y = Numbers(6), TensorDataset(torch.arange(6) * 10)
    stack = StackDataset(x=x, y=y) if by_name else StackDataset(x, y)
    batches = list(Loader(stack, 4, num_workers=num_workers))
    columns = [(torch.arange(4), [torch.arange(4) * 10]), (torch.arange(4, 6), [torch.arange(4, 6) * 10])]
    assert same(batches, [{"x": x, "y": y} if by_name else [x, y] for x, y in columns])


def test_a_stack_asks_its_parts_for_whole_batches(Loader, num_workers):
    batches = list(Loader(StackDataset(Together(6), Numbers(6)), 3, num_workers=num_workers))
    assert [x.tolist() for x, _ in batches] == [[100, 101, 102], [103, 104, 105]]


def test_concatenated_datasets_come_one_after_the_other(Loader, num_workers):
    both = ConcatDataset([Numbers(3), Numbers(0), Numbers(2)])
    assert torch.cat(list(Loader(both, 2, num_workers=num_workers))).tolist() == [0, 1, 2, 0, 1]
    assert torch.cat(list(Loader(Numbers(2) + Numbers(1), 2, num_workers=num_workers))).tolist() == [0, 1, 0]


def test_iterables_cannot_be_concatenated(Loader):
    with pytest.raises(AssertionError, match="ConcatDataset does not support IterableDataset"):
        Loader(ConcatDataset([Stream(2)]))


@pytest.mark.parametrize("lengths", [[7, 3], [0.5, 0.25, 0.25]])
def test_a_random_split_comes_in_disjoint_parts(Loader, num_workers, lengths):
    parts = random_split(Numbers(10), lengths, generator=torch.Generator().manual_seed(0))
    loaded = [torch.cat(list(Loader(part, 2, num_workers=num_workers))).tolist() for part in parts]
    assert [len(part) for part in loaded] == [len(part) for part in parts]
    assert sorted(number for part in loaded for number in part) == list(range(10))


def test_a_subset_of_a_subset_is_fetched_in_whole_batches(Loader, num_workers):
    subset = Subset(Subset(Together(10), [9, 8, 7, 6]), [3, 1])
    assert torch.cat(list(Loader(subset, 2, num_workers=num_workers))).tolist() == [106, 108]


def test_a_memory_map_comes_like_an_array(Loader, num_workers, tmp_path):
    table = np.memmap(tmp_path / "table", np.float32, "w+", shape=(10, 4))
    table[:] = np.arange(40).reshape(10, 4)
    batches = list(Loader(table, 4, num_workers=num_workers))
    assert same(batches, [torch.from_numpy(np.array(table[at : at + 4])) for at in (0, 4, 8)])


# ---- whole batches ----------------------------------------------------------------------------------------------


def test_a_dataset_that_fetches_whole_batches_is_asked_for_them(Loader, num_workers):
    assert torch.cat(list(Loader(Together(5), 2, num_workers=num_workers))).tolist() == [100, 101, 102, 103, 104]


def test_whole_batches_are_for_batches_only(Loader, num_workers):
    assert [int(sample) for sample in Loader(Together(3), None, num_workers=num_workers)] == [0, 1, 2]


def test_a_method_that_is_none_is_not_used(Loader, num_workers):
    assert torch.cat(list(Loader(TogetherButNot(3), 2, num_workers=num_workers))).tolist() == [0, 1, 2]


def test_a_batch_may_come_with_fewer_samples_than_were_asked_for(Loader, num_workers):
    assert [batch.tolist() for batch in Loader(TogetherLess(7), 4, num_workers=num_workers)] == [[1, 2], [4, 5]]


def test_a_batch_may_come_as_anything_that_collate_knows_what_to_do_with(Loader, num_workers):
    loader = Loader(Table(4), 2, collate_fn=as_columns, num_workers=num_workers)
    assert list(loader) == [[0, 1], [2, 3]]
    assert same(list(Loader(Together(2), 2, collate_fn=as_list)), [[torch.tensor(100), torch.tensor(101)]])


def as_columns(table):
    return table["rows"]
