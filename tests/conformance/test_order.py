"""Which batches come, in which order, and when the sampler is asked for them.

Of torch's own suite: TestDataLoader's sequential, shuffled, batched and unbatched passes, growing dataset and conversion
to lists; TestIndividualWorkerQueue; TestOutOfOrderDataLoader.
"""

import multiprocessing

import pytest
import torch

from conformance.data import (
    Counting,
    CountingStream,
    Numbers,
    Samples,
    SetsWhenDone,
    Stream,
    WaitsFor,
    WorkerIds,
    described,
)
from conformance.expect import many_workers, same


class CountsPulls:
    """A sampler that knows how many indices were asked of it."""

    def __init__(self, length):
        self.length, self.pulled = length, 0

    def __len__(self):
        return self.length

    def __iter__(self):
        for index in range(self.length):
            self.pulled += 1
            yield index


# ---- order ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 3, 10, 11])
def test_batches_come_in_order_and_the_last_may_be_short(Loader, num_workers, batch_size):
    batches = list(Loader(Numbers(10), batch_size, num_workers=num_workers))
    assert same(batches, list(torch.arange(10).split(batch_size)))


@pytest.mark.parametrize("batch_size, kept", [(3, 9), (5, 10), (11, 0)])
def test_drop_last_leaves_out_a_last_batch_that_is_short(Loader, num_workers, batch_size, kept):
    loader = Loader(Numbers(10), batch_size, drop_last=True, num_workers=num_workers)
    batches = list(loader)
    assert len(loader) == len(batches)
    assert same(batches, list(torch.arange(kept).split(batch_size)) if kept else [])


def test_without_batching_samples_come_as_they_are(Loader, num_workers):
    assert same(list(Loader(Numbers(5), None, num_workers=num_workers)), list(torch.arange(5)))


def test_a_shuffled_pass_has_every_sample_once(Loader, num_workers):
    torch.manual_seed(0)
    order = torch.cat(list(Loader(Numbers(100), 7, shuffle=True, num_workers=num_workers))).tolist()
    assert order != list(range(100)) and sorted(order) == list(range(100))


def test_samples_of_several_parts_stay_together(Loader, num_workers):
    data, labels = torch.randn(30, 2, 3), torch.arange(30)
    loader = Loader(Samples(list(zip(data, labels, strict=True))), 4, shuffle=True, num_workers=num_workers)
    seen = []
    for sample, label in loader:
        assert same(sample, data[label])
        seen += label.tolist()
    assert sorted(seen) == list(range(30))


def test_each_pass_begins_anew(Loader, num_workers):
    loader = Loader(Numbers(4), 2, num_workers=num_workers)
    assert same([list(loader), list(loader)], [list(torch.arange(4).split(2))] * 2)


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("dataset", [Counting(20), CountingStream(20)], ids=["map", "iterable"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_converts_to_a_list_or_tuple(Loader, kind, dataset, workers):
    assert kind(Loader(dataset, batch_size=None, num_workers=workers)) == kind(range(20))


def test_the_length_follows_a_dataset_that_grows(Loader):
    dataset = [torch.ones(4) for _ in range(4)]
    ordered, shuffled = Loader(dataset), Loader(dataset, shuffle=True)
    dataset.append(torch.ones(4))
    assert (len(ordered), len(shuffled)) == (5, 5)
    assert (len(list(ordered)), len(list(shuffled))) == (5, 5)


def test_an_exhausted_iterator_stays_exhausted(Loader, num_workers):
    iterator = iter(Loader(Numbers(2), num_workers=num_workers))
    assert len(list(iterator)) == 2
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)


def test_an_iterator_has_the_length_of_its_sampler(Loader, num_workers):
    iterator = iter(Loader(Numbers(10), 3, num_workers=num_workers))
    next(iterator)
    assert len(iterator) == 4
    with pytest.raises(TypeError):
        len(iter(Loader(Stream(10), 3, num_workers=num_workers)))


def test_collate_gets_the_list_of_samples(Loader, num_workers):
    loader = Loader(Counting(3), 2, collate_fn=described, num_workers=num_workers)
    assert list(loader) == [("list", [0, 1]), ("list", [2])]


def test_without_batching_collate_gets_one_sample(Loader, num_workers):
    loader = Loader(Counting(2), None, collate_fn=described, num_workers=num_workers)
    assert list(loader) == [("int", 0), ("int", 1)]


# ---- prefetching ------------------------------------------------------------------------------------------------


def test_a_pass_begins_with_as_many_batches_as_are_prefetched_and_each_next_pulls_one(Loader):
    sampler = CountsPulls(100)
    iterator = iter(Loader(Numbers(100), 4, sampler=sampler, num_workers=2, prefetch_factor=3))
    pulled = [sampler.pulled]
    for _ in range(3):
        next(iterator)
        pulled.append(sampler.pulled)
    assert pulled == [24, 28, 32, 36]


def test_a_sampler_shorter_than_the_prefetching_is_exhausted_at_once(Loader):
    sampler = CountsPulls(3)
    iterator = iter(Loader(Numbers(3), sampler=sampler, num_workers=2, prefetch_factor=8))
    assert sampler.pulled == 3
    assert same(list(iterator), list(torch.arange(3).split(1)))


def test_without_workers_nothing_is_pulled_before_it_is_asked_for(Loader):
    sampler = CountsPulls(100)
    iterator = iter(Loader(Numbers(100), 4, sampler=sampler))
    pulled = [sampler.pulled]
    for _ in range(2):
        next(iterator)
        pulled.append(sampler.pulled)
    assert pulled == [0, 4, 8]


@pytest.mark.parametrize("workers, factor", [(1, None), (1, 5), (2, 2)])
def test_workers_make_what_is_prefetched_and_no_more(Loader, workers, factor):
    made = multiprocessing.Semaphore(0)
    loader = Loader(SetsWhenDone(made, 30), 1, num_workers=workers, prefetch_factor=factor)
    iterator = iter(loader)
    ahead = workers * (factor or 2)
    for _ in range(ahead):
        assert made.acquire(timeout=30)
    assert not made.acquire(block=False)
    for _ in range(3):
        next(iterator)
        assert made.acquire(timeout=30)
    assert not made.acquire(block=False)


# ---- who does what ----------------------------------------------------------------------------------------------


@many_workers
@pytest.mark.parametrize("workers, batch_size", [(1, 8), (2, 8), (2, 64), (5, 16)])
def test_task_k_is_worker_k_modulo_n(Loader, workers, batch_size):
    loader = Loader(WorkerIds(batch_size * (2 * workers + 1)), batch_size, num_workers=workers)
    for number, batch in enumerate(loader):
        assert batch[:, 0].tolist() == list(range(number * batch_size, (number + 1) * batch_size))
        assert set(batch[:, 1].tolist()) == {number % workers}


@pytest.mark.parametrize("persistent", [False, True])
def test_each_pass_begins_with_worker_0(Loader, persistent):
    for length in (3, 4):
        loader = Loader(WorkerIds(length), num_workers=2, persistent_workers=persistent)
        for _ in range(3):
            assert torch.cat(list(loader)).tolist() == [[0, 0], [1, 1], [2, 0], [3, 1]][:length]


# ---- out of order -----------------------------------------------------------------------------------------------


def test_in_order_a_finished_batch_waits_for_the_one_before(Loader):
    event, made = multiprocessing.Event(), multiprocessing.Semaphore(0)

    class Watched(WaitsFor):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            made.release()
            return sample

    iterator = iter(Loader(Watched(event), num_workers=2))
    assert made.acquire(timeout=30) and made.acquire(timeout=30)  # 1 and 3, by worker 1
    event.set()
    assert torch.cat(list(iterator)).tolist() == [0, 1, 2, 3]


def test_out_of_order_a_slow_batch_does_not_hold_up_the_others(Loader):
    event = multiprocessing.Event()
    iterator = iter(Loader(WaitsFor(event, length=6), num_workers=2, in_order=False))
    first = [next(iterator).item(), next(iterator).item()]
    assert 0 not in first
    event.set()
    assert sorted(first + [batch.item() for batch in iterator]) == [0, 1, 2, 3, 4, 5]


def test_out_of_order_every_sample_comes_once(Loader):
    for _ in range(2):
        loader = Loader(Numbers(40), 3, shuffle=True, num_workers=2, in_order=False)
        assert sorted(torch.cat(list(loader)).tolist()) == list(range(40))


def test_out_of_order_an_iterable_comes_whole(Loader):
    loader = Loader(Stream(41), 3, num_workers=2, in_order=False)
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(41))


def test_out_of_order_means_nothing_without_workers(Loader):
    assert torch.cat(list(Loader(Numbers(7), 2, in_order=False))).tolist() == list(range(7))
