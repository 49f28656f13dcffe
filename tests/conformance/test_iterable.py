"""Iterable datasets: who iterates what, what is dropped, how long it is said to be, and the warning when that is wrong.

Of torch's own suite: TestDataLoader's iterable-style datasets with uneven workers and drop_last, length warnings, and chained
iterables.
"""

import warnings

import pytest
import torch
from torch.utils.data import ChainDataset, IterableDataset

from conformance.data import CountingStream, Numbers, PulledTooOften, Stream, ToldStream, Uneven
from conformance.expect import many_workers


def as_lists(batches):
    return [batch.tolist() for batch in batches]


# ---- what comes -------------------------------------------------------------------------------------------------


def test_in_process_an_iterable_is_batched_in_its_own_order(Loader):
    assert as_lists(Loader(Stream(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert as_lists(Loader(Stream(7), 3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    assert as_lists(Loader(Stream(3), None)) == [0, 1, 2]


def test_workers_take_turns_with_batches_of_their_share(Loader):
    loader = Loader(Stream(10), 3, num_workers=2)
    assert as_lists(loader) == [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]]
    assert as_lists(loader) == [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]]


def test_the_last_batch_of_each_worker_is_dropped(Loader):
    assert as_lists(Loader(Stream(10), 3, num_workers=2, drop_last=True)) == [[0, 2, 4], [1, 3, 5]]
    assert as_lists(Loader(Stream(12), 3, num_workers=2, drop_last=True)) == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]


def test_without_batching_workers_take_turns_with_samples(Loader):
    assert as_lists(Loader(Stream(5), None, num_workers=2)) == [0, 1, 2, 3, 4]


def test_what_is_not_shared_out_comes_from_every_worker(Loader):
    loader = Loader(Stream(4, shared_out=False), 2, num_workers=2)
    assert as_lists(loader) == [[0, 1], [0, 1], [2, 3], [2, 3]]


@many_workers
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("lengths", [(0, 4, 20), (20, 0, 5), (0, 0, 0), (1, 1, 1)])
def test_workers_with_unequal_shares_each_give_all_of_theirs_in_order(Loader, lengths, factor, drop_last):
    loader = Loader(Uneven(*lengths), 3, num_workers=3, prefetch_factor=factor, drop_last=drop_last)
    batches = as_lists(loader)
    by_worker = {worker_id: [] for worker_id in range(3)}
    for batch in batches:
        (worker_id,) = {worker_id for worker_id, _ in batch}
        by_worker[worker_id].append([number for _, number in batch])
    for worker_id, length in enumerate(lengths):
        expected = as_lists(torch.arange(length).split(3)) if length else []
        if drop_last:
            expected = [batch for batch in expected if len(batch) == 3]
        assert by_worker[worker_id] == expected


@pytest.mark.parametrize("persistent", [False, True])
def test_a_worker_without_data_does_not_hold_up_the_others(Loader, persistent):
    loader = Loader(Uneven(0, 50), 1, num_workers=2, prefetch_factor=2, persistent_workers=persistent)
    for _ in range(2):
        assert torch.cat(list(loader))[:, 1].tolist() == list(range(50))


def test_the_kind_is_decided_by_the_base_class_alone(Loader):
    class HasIterOnly:
        def __iter__(self):
            return iter([1, 2])

    class HasBoth(IterableDataset):
        def __iter__(self):
            return iter([1, 2])

        def __getitem__(self, index):
            raise AssertionError("it is to be iterated")

    with pytest.raises(TypeError, match="len"):
        list(Loader(HasIterOnly()))
    assert as_lists(Loader(HasBoth())) == [[1], [2]]


def test_an_iterator_that_has_ended_is_not_asked_again(Loader, num_workers):
    batches = torch.cat(list(Loader(PulledTooOften(), 2, num_workers=num_workers))).tolist()
    assert sorted(batches) == sorted([1, 2, 3] * max(1, num_workers))


def test_chained_iterables_come_one_after_the_other(Loader, num_workers):
    chained = Stream(4) + Stream(2) + Stream(3)
    assert isinstance(chained, ChainDataset)
    numbers = torch.cat(list(Loader(chained, 2, num_workers=num_workers))).tolist()
    assert sorted(numbers) == sorted([*range(4), *range(2), *range(3)])
    if num_workers == 0:
        assert numbers == [0, 1, 2, 3, 0, 1, 0, 1, 2]


def test_only_iterables_can_be_chained(Loader):
    with pytest.raises(AssertionError, match="ChainDataset only supports IterableDataset"):
        list(Loader(ChainDataset([Stream(2), Numbers(2)])))


# ---- how long it is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, length",
    [
        ({"batch_size": 3}, 4),
        ({"batch_size": 3, "drop_last": True}, 3),
        ({"batch_size": 5}, 2),
        ({"batch_size": None}, 10),
        ({"batch_size": 3, "num_workers": 2}, 4),
        ({}, 10),
    ],
)
def test_the_length_is_what_the_dataset_says_in_batches(Loader, options, length):
    assert len(Loader(ToldStream(99, told=10), **options)) == length


def test_an_iterable_without_a_length_has_none(Loader):
    with pytest.raises(TypeError):
        len(Loader(Stream(10)))


def test_a_chain_has_the_sum_of_the_lengths(Loader):
    assert len(Loader(ChainDataset([ToldStream(2, told=2), ToldStream(5, told=5)]), 2)) == 4


def test_asking_for_the_length_is_recorded(Loader):
    loader = Loader(ToldStream(10, told=10), 3)
    assert loader._IterableDataset_len_called is None
    len(loader)
    assert loader._IterableDataset_len_called == 10


def warnings_of(loader):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in loader:
            pass
    return [str(warning.message) for warning in told]


def test_each_batch_beyond_the_promised_length_is_warned_of(Loader, num_workers):
    loader = Loader(ToldStream(8, told=5), 1, num_workers=num_workers)
    assert len(loader) == 5
    told = warnings_of(loader)
    assert len(told) == 3
    for text, fetched in zip(told, (6, 7, 8), strict=True):
        assert "Length of IterableDataset" in text
        assert "reported to be 5" in text and f"but {fetched} samples have been fetched" in text


def test_with_workers_the_warning_says_that_each_has_a_replica(Loader):
    for workers in (0, 2):
        loader = Loader(ToldStream(3, told=2, shared_out=False), 1, num_workers=workers)
        len(loader)
        for text in warnings_of(loader):
            assert ("worker" in text) == (workers > 0)


def test_batches_are_counted_against_the_number_of_samples(Loader):
    """So that 10 batches of 2 of a dataset that promised 10 samples are not warned of."""
    loader = Loader(ToldStream(20, told=10), 2)
    len(loader)
    assert warnings_of(loader) == []


def test_who_did_not_ask_for_the_length_is_not_warned(Loader, num_workers):
    assert warnings_of(Loader(ToldStream(4, told=1), num_workers=num_workers)) == []


def test_the_promise_is_that_of_the_last_time_before_the_pass(Loader):
    dataset = ToldStream(3, told=1)
    loader = Loader(dataset, num_workers=1, persistent_workers=True)
    assert warnings_of(loader) == []
    len(loader)
    assert len(warnings_of(loader)) == 2
    dataset.told = 3
    len(loader)
    assert warnings_of(loader) == []


def test_plain_iterators_of_python_objects_work(Loader, num_workers):
    assert sorted(Loader(CountingStream(3), None, num_workers=num_workers)) == sorted([0, 1, 2] * max(1, num_workers))
