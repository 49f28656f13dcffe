"""Iterable datasets: each worker iterates a copy of its own."""

import itertools
import time

import numpy as np
import pytest
from loader_data import Stream, StreamAskedTooOften, StreamOfOneBuffer, ToldStream, listed

import ringbuf
from ringbuf import RingLoader

torch = pytest.importorskip("torch", reason="the oracle of some of these tests is torch")


class TorchStream(torch.utils.data.IterableDataset):
    """As Stream, for torch's loader; asks torch for the worker that it is in."""

    def __init__(self, length, lengths=None):
        self.length, self.lengths = length, lengths

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        if self.lengths is not None:
            return iter(range(100 * first, 100 * first + self.lengths[first]))
        return iter(range(first, self.length, step))


def values(loader):
    return [np.asarray(batch).tolist() for batch in loader]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_partial_batches_are_each_workers_own(drop_last, method):
    with RingLoader(
        Stream(10), 3, num_workers=2, drop_last=drop_last, multiprocessing_context=method
    ) as loader:
        want = [[0, 2, 4], [1, 3, 5]] + ([] if drop_last else [[6, 8], [7, 9]])
        assert values(loader) == want


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("batch_size", "drop_last"), [(1, False), (3, False), (3, True), (4, True), (20, False), (20, True), (None, False)]
)
@pytest.mark.parametrize("length", [0, 12, 13])
def test_batches_equal_torchs(num_workers, batch_size, drop_last, length):
    options = {"batch_size": batch_size, "drop_last": drop_last, "num_workers": num_workers}
    with RingLoader(TorchStream(length), **options) as loader:
        assert values(loader) == values(torch.utils.data.DataLoader(TorchStream(length), **options))


@pytest.mark.filterwarnings("ignore:This .*Loader .*cores|This DataLoader will create:UserWarning")
@pytest.mark.parametrize("lengths", [(0, 0, 0), (0, 7, 0), (1, 30, 2), (9, 0, 3)])
@pytest.mark.parametrize("persistent", [False, True])
def test_uneven_workers_are_taken_in_turn_as_torch_does(lengths, persistent):
    options = {"batch_size": 2, "num_workers": 3, "persistent_workers": persistent}
    theirs = torch.utils.data.DataLoader(TorchStream(None, lengths), **options)
    with RingLoader(TorchStream(None, lengths), **options) as loader:
        for _ in range(2):
            assert values(loader) == values(theirs)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_out_of_order_everything_comes_once(num_workers):
    with RingLoader(Stream(31), 2, num_workers=num_workers, in_order=False) as loader:
        assert sorted(itertools.chain(*values(loader))) == list(range(31))


def test_what_is_not_shared_out_comes_from_every_worker():
    with RingLoader(Stream(4, shared_out=False), 2, num_workers=2) as loader:
        assert values(loader) == [[0, 1], [0, 1], [2, 3], [2, 3]]


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_every_pass_starts_over(num_workers):
    with RingLoader(Stream(7), 2, num_workers=num_workers, persistent_workers=num_workers > 0) as loader:
        passes = [values(loader) for _ in range(3)]
    assert passes[0] == passes[1] == passes[2]
    assert sorted(itertools.chain(*passes[0])) == list(range(7))


@pytest.mark.parametrize("taken", range(6))
def test_starting_over_about_the_end_of_a_stream(taken):
    with RingLoader(Stream(8), 2, num_workers=2, persistent_workers=True, prefetch_factor=4) as loader:
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator, None)
        assert values(loader) == [[0, 2], [1, 3], [4, 6], [5, 7]]


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("collate_fn", [None, listed])
def test_an_iterator_is_not_asked_again_after_its_end(num_workers, collate_fn):
    with RingLoader(StreamAskedTooOften(), 2, num_workers=num_workers, collate_fn=collate_fn) as loader:
        assert values(loader) == [[1, 2], [3]]


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("batch_size", [4, None])
def test_a_stream_may_hand_out_one_buffer(num_workers, batch_size):
    with RingLoader(StreamOfOneBuffer(), batch_size, num_workers=num_workers, slots=16) as loader:
        rows = [row.tolist() for batch in list(loader) for row in np.atleast_2d(batch)]
    assert rows == [[value] * 3 for value in range(10)]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_batch_size_that_means_everything_takes_no_more_memory_than_there_are_samples(num_workers):
    with RingLoader(StreamOfOneBuffer(), 10**9, num_workers=num_workers) as loader:
        (batch,) = loader
        assert batch.tolist() == [[value] * 3 for value in range(10)]
        assert loader.stats().slot_bytes < 1 << 20


def test_an_idle_worker_takes_no_processor_time():
    with RingLoader(Stream(1), 1, num_workers=2, persistent_workers=True) as loader:
        iterator = iter(loader)
        list(iterator)
        psutil = pytest.importorskip("psutil", reason="reads the workers' processor time")
        workers = [psutil.Process(process.pid) for process in iterator._workers]
        before = [sum(worker.cpu_times()[:2]) for worker in workers]
        time.sleep(1)
        used = [sum(worker.cpu_times()[:2]) - start for worker, start in zip(workers, before, strict=True)]
    assert max(used) <= 0.05


# ---- length -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch_size", "drop_last", "length"), [(3, False, 7), (3, True, 6), (20, True, 1), (None, False, 20), (1, False, 20)]
)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_length_follows_from_the_datasets_own(batch_size, drop_last, length, num_workers):
    loader = RingLoader(ToldStream(20, told=20), batch_size, drop_last=drop_last, num_workers=num_workers)
    assert len(loader) == length


def test_no_length_without_the_datasets_own():
    with pytest.raises(TypeError):
        len(RingLoader(Stream(3)))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_more_than_was_promised_is_warned_about_each_time(num_workers):
    with RingLoader(ToldStream(6, told=4, shared_out=True), num_workers=num_workers) as loader:
        assert len(loader) == 4
        with pytest.warns(UserWarning, match="Length of IterableDataset .* was reported to be 4") as warned:
            assert len(values(loader)) == 6
    assert len(warned) == 2
    assert ("get_worker_info" in str(warned[0].message)) == (num_workers > 0)


def test_a_promise_that_nobody_asked_for_is_not_held():
    with RingLoader(ToldStream(6, told=4)) as loader:
        assert len(values(loader)) == 6


def test_no_worker_here():
    assert ringbuf.get_worker_info() is None
