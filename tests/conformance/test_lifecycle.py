"""The life of a pass: several at a time, left early, kept, pickled, in a thread, in another process.

Of torch's own suite: TestDataLoader's partial iteration, interleaved loaders and multiple iterators.
"""

import copy
import gc
import multiprocessing
import pickle
import threading
import weakref

import pytest
import torch
from processes import eventually, process, succeeds

from conformance.data import Counting, Numbers, Samples, Stream
from conformance.expect import children, same


def rows(iterator):
    return torch.cat(list(iterator)).tolist()


def test_workers_are_processes_that_end_with_the_pass(Loader):
    iterator = iter(Loader(Numbers(6), 2, num_workers=2))
    assert len(children()) == 2 and all(child.daemon for child in children())
    assert rows(iterator) == list(range(6))
    assert eventually(lambda: not children())


def test_without_workers_there_are_no_processes(Loader):
    iterator = iter(Loader(Numbers(6), 2))
    next(iterator)
    assert children() == []


@pytest.mark.parametrize("dataset", [Numbers(1000), Stream(1000)], ids=["map", "iterable"])
def test_leaving_the_loop_ends_the_workers(Loader, dataset):
    loader = Loader(dataset, 2, num_workers=2)
    for _ in range(2):
        for batch in loader:
            assert batch.tolist() in ([0, 1], [0, 2])
            break
        assert eventually(lambda: not children())


def test_an_iterator_that_is_dropped_ends_its_workers(Loader):
    iterator = iter(Loader(Numbers(1000), num_workers=2))
    next(iterator)
    assert len(iterator._workers) == len(children()) == 2
    del iterator
    assert eventually(lambda: not children())


def test_an_iterator_can_be_told_to_end_its_workers(Loader):
    """By a private method, which other libraries call."""
    iterator = iter(Loader(Numbers(1000), num_workers=2))
    next(iterator)
    iterator._shutdown_workers()
    iterator._shutdown_workers()
    assert eventually(lambda: not children())


def test_two_loaders_can_be_iterated_in_turn(Loader, num_workers):
    first = Loader(Numbers(5), 1, num_workers=num_workers)
    second = Loader(Samples([torch.tensor(-number) for number in range(5)]), 1, num_workers=min(num_workers, 1))
    pairs = [(one.item(), other.item()) for one, other in zip(first, second, strict=True)]
    assert pairs == [(number, -number) for number in range(5)]


def test_two_passes_of_one_loader_do_not_know_of_each_other(Loader, num_workers):
    loader = Loader(Numbers(5), 1, num_workers=num_workers)
    first = iter(loader)
    assert next(first).item() == 0
    second = iter(loader)
    assert [next(second).item(), next(first).item(), next(second).item()] == [0, 1, 1]
    assert (rows(first), rows(second)) == ([2, 3, 4], [2, 3, 4])


def test_a_loader_can_be_iterated_inside_its_own_loop(Loader, num_workers):
    loader = Loader(Counting(3), None, num_workers=min(num_workers, 1))
    assert [(outer, list(loader)) for outer in loader] == [(number, [0, 1, 2]) for number in range(3)]


def test_an_iterator_keeps_its_loaders_dataset_alive_and_no_cycle_holds_it(Loader):
    iterator = iter(Loader(Numbers(3), num_workers=1))
    gone = weakref.ref(iterator)
    assert rows(iterator) == [0, 1, 2]
    assert not gc.isenabled()
    del iterator
    assert gone() is None


def test_a_subclass_may_go_round_for_ever(Loader, num_workers):
    """As libraries for training do it: one iterator, whose batch sampler never ends."""

    class Repeats:
        def __init__(self, sampler):
            self.sampler = sampler

        def __iter__(self):
            while True:
                yield from iter(self.sampler)

    class Infinite(Loader):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            object.__setattr__(self, "batch_sampler", Repeats(self.batch_sampler))
            self.iterator = super().__iter__()

        def __len__(self):
            return len(self.batch_sampler.sampler)

        def __iter__(self):
            for _ in range(len(self)):
                yield next(self.iterator)

        def begin_anew(self):
            self.iterator = self._get_iterator()

    loader = Infinite(Numbers(5), 2, num_workers=num_workers)
    assert [rows(loader), rows(loader)] == [[0, 1, 2, 3, 4]] * 2
    assert next(iter(loader)).tolist() == [0, 1]
    loader.begin_anew()
    assert rows(loader) == [0, 1, 2, 3, 4]


# ---- copies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_of_a_loader_is_a_loader_with_the_same_settings(Loader, num_workers, copied):
    loader = Loader(Numbers(7), 3, num_workers=num_workers, drop_last=True)
    iterator = iter(loader)
    next(iterator)
    twin = copied(loader)
    assert type(twin) is Loader
    assert (twin.batch_size, twin.num_workers, twin.drop_last) == (3, num_workers, True)
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        twin.batch_size = 4
    assert rows(twin) == list(range(6))
    assert rows(iterator) == [3, 4, 5]


def test_an_iterator_cannot_be_pickled(Loader, num_workers):
    iterator = iter(Loader(Numbers(3), num_workers=num_workers))
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(iterator)
    assert rows(iterator) == [0, 1, 2]


# ---- threads and processes --------------------------------------------------------------------------------------


def test_a_pass_can_be_made_in_a_thread(Loader, num_workers):
    found = []
    thread = threading.Thread(target=lambda: found.append(rows(Loader(Numbers(5), 2, num_workers=num_workers))))
    thread.start()
    thread.join(30)
    assert found == [[0, 1, 2, 3, 4]]


def load_in(Loader, num_workers, queue):
    queue.put(rows(Loader(Numbers(5), 2, num_workers=num_workers)))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_pass_can_be_made_in_a_forked_process(Loader, workers):
    queue = multiprocessing.SimpleQueue()
    child = multiprocessing.get_context("fork").Process(target=load_in, args=(Loader, workers, queue))
    child.start()
    assert succeeds(child)
    assert queue.get() == [0, 1, 2, 3, 4]


def test_a_daemonic_process_may_load_without_workers(Loader):
    queue = multiprocessing.SimpleQueue()
    with process(load_in, Loader, 0, queue) as child:
        assert succeeds(child)
    assert queue.get() == [0, 1, 2, 3, 4]


class ReturnsBatches:
    """A dataset whose samples are batches of a loader of its own."""

    def __init__(self, Loader):
        self.Loader = Loader

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return next(iter(self.Loader(Numbers(4), 4))) + index


def test_a_dataset_may_use_a_loader(Loader, num_workers):
    batches = list(Loader(ReturnsBatches(Loader), 2, num_workers=num_workers))
    assert same(batches, [torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])])
