"""Workers that live on from one pass to the next.

Of torch's own suite: TestDataLoaderPersistentWorkers.
"""

import gc

import pytest
import torch

from conformance.data import CountsInits, CountsPasses, Numbers, Raises, Stream, ToldStream, Uneven, count_init
from conformance.expect import children, drain


@pytest.fixture
def persistent(Loader):
    def make(dataset, *arguments, num_workers=2, **options):
        return Loader(dataset, *arguments, num_workers=num_workers, persistent_workers=True, **options)

    return make


def rows(iterator):
    return torch.cat(list(iterator)).tolist()


def test_there_is_one_iterator_which_begins_anew(persistent):
    loader = persistent(Numbers(5), 2)
    first = iter(loader)
    assert loader._iterator is first
    assert rows(first) == [0, 1, 2, 3, 4]
    assert iter(loader) is first
    assert rows(first) == [0, 1, 2, 3, 4]


def test_workers_stay_the_same_processes(persistent):
    loader = persistent(Numbers(4))
    pids = []
    for _ in range(3):
        list(loader)
        pids.append(sorted(child.pid for child in children()))
    assert pids[0] == pids[1] == pids[2] and len(pids[0]) == 2


def test_workers_end_with_the_loader(persistent):
    loader = persistent(Numbers(4))
    list(loader)
    assert len(children()) == 2
    del loader
    gc.collect()
    assert children() == []


def test_what_was_prefetched_for_a_pass_that_was_left_is_thrown_away(persistent):
    loader = persistent(Numbers(20), 2, prefetch_factor=4)
    for _ in range(3):
        iterator = iter(loader)
        assert [next(iterator).tolist(), next(iterator).tolist()] == [[0, 1], [2, 3]]
    assert rows(loader) == list(range(20))


def test_an_iterable_that_was_left_begins_anew(persistent):
    loader = persistent(Stream(12), 2, prefetch_factor=2)
    for _ in range(2):
        assert [batch.tolist() for _, batch in zip(range(2), loader, strict=False)] == [[0, 2], [1, 3]]
    assert [batch.tolist() for batch in loader] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11]]


def test_an_iterable_is_iterated_again_for_each_pass_by_the_same_copy(persistent):
    loader = persistent(CountsPasses(), None, num_workers=1)
    for number in (1, 2, 3):
        assert [sample.tolist() for sample in loader] == [[number, 0], [number, 1], [number, 2]]


def test_workers_whose_share_is_empty_are_asked_again(persistent):
    loader = persistent(Uneven(0, 3), 2)
    for _ in range(3):
        assert rows(loader) == [[1, 0], [1, 1], [1, 2]]


def test_an_exhausted_iterator_stays_exhausted_until_it_is_reset(persistent):
    loader = persistent(Numbers(2))
    iterator = iter(loader)
    assert rows(iterator) == [0, 1]
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)
    assert rows(iter(loader)) == [0, 1]


def test_worker_init_fn_runs_once_and_its_effects_stay(persistent):
    loader = persistent(CountsInits(), None, worker_init_fn=count_init)
    made = [[sample.tolist()[:2] for sample in loader] for _ in range(2)]
    assert made == [[[1, 1], [1, 1], [1, 2], [1, 2]], [[1, 3], [1, 3], [1, 4], [1, 4]]]


def test_changes_of_the_dataset_do_not_reach_the_workers(persistent):
    told = ToldStream(4, told=4)
    loader = persistent(told, None, num_workers=1)
    assert [sample.item() for sample in loader] == [0, 1, 2, 3]
    told.length = 2
    assert [sample.item() for sample in loader] == [0, 1, 2, 3]


def test_changes_of_the_sampler_are_seen(persistent):
    sampler = [3, 1]
    loader = persistent(Numbers(4), sampler=sampler)
    assert rows(loader) == [3, 1]
    sampler.append(0)
    assert rows(loader) == [3, 1, 0]


def test_without_persistence_changes_of_the_dataset_are_seen(Loader):
    dataset = Numbers(2)
    loader = Loader(dataset, num_workers=1)
    assert rows(loader) == [0, 1]
    dataset.length = 3
    assert rows(loader) == [0, 1, 2]


def test_a_pass_with_an_error_leaves_the_next_one_whole(persistent):
    loader = persistent(Raises(ValueError("bad"), at=1, length=4))
    for _ in range(2):
        found = drain(iter(loader))
        assert [type(part) if isinstance(part, Exception) else part.item() for part in found] == [0, ValueError, 2, 3]
    for _ in range(2):
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(ValueError):
            next(iterator)


def test_each_pass_is_shuffled_anew(persistent):
    torch.manual_seed(3)
    loader = persistent(Numbers(50), shuffle=True)
    first, second = rows(loader), rows(loader)
    assert first != second and sorted(first) == sorted(second) == list(range(50))


def test_the_length_is_that_of_the_loader(persistent):
    loader = persistent(Numbers(5), 2)
    assert len(iter(loader)) == len(loader) == 3
