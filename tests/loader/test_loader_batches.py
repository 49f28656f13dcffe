"""What comes out of a loader: the same, whoever makes it."""

import errno
import time

import numpy as np
import pytest
from loader_data import Growing, Numbered, OneBuffer, Together, listed, numbers_in
from test_collate import AGREED, CONTAINERS, assert_same

from ringbuf import BatchTooLarge, RingLoader

WORKERS = [(0, None), (1, "fork"), (2, "fork"), (2, "spawn"), (2, "forkserver")]


@pytest.fixture(params=WORKERS, ids=lambda param: f"{param[0]}-{param[1]}")
def by(request):
    """Arguments for a number of workers and a way to start them."""
    num_workers, method = request.param
    return {"num_workers": num_workers, "multiprocessing_context": method}


@pytest.fixture(params=[0, 1, 2])
def num_workers(request):
    return request.param


def test_batches_come_complete_and_in_order(by):
    with RingLoader(Numbered(23), 4, **by) as loader:
        batches = [numbers_in(batch) for batch in loader]
    assert batches == [list(range(start, min(start + 4, 23))) for start in range(0, 23, 4)]


def test_a_short_last_batch_is_dropped_on_demand(num_workers):
    with RingLoader(Numbered(10), 4, drop_last=True, num_workers=num_workers) as loader:
        assert [len(numbers_in(batch)) for batch in loader] == [4, 4]
        assert len(loader) == 2


def test_shuffling_gives_each_sample_once_and_the_same_order_for_any_number_of_workers():
    orders = []
    for num_workers in (0, 1, 2):
        with RingLoader(Numbered(30), 4, shuffle=True, generator=3, num_workers=num_workers) as loader:
            orders.append([[number for batch in loader for number in numbers_in(batch)] for _ in range(2)])
    assert sorted(orders[0][0]) == list(range(30))
    assert orders[0][0] != orders[0][1] != list(range(30))
    assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize("index_batches", [[[3, 1], (2,), np.array([0, 0, 5])], [[7]]])
def test_a_batch_sampler_decides(num_workers, index_batches):
    with RingLoader(Numbered(), batch_sampler=index_batches, num_workers=num_workers) as loader:
        assert [numbers_in(batch) for batch in loader] == [list(batch) for batch in index_batches]
        assert len(loader) == len(index_batches)


def test_a_batch_of_no_indices_is_an_index_error_at_its_place(num_workers):
    with RingLoader(Numbered(), batch_sampler=[[1], [], [2]], num_workers=num_workers) as loader:
        iterator = iter(loader)
        assert numbers_in(next(iterator)) == [1]
        with pytest.raises(IndexError, match="gave no indices"):
            next(iterator)
        assert numbers_in(next(iterator)) == [2]


def test_a_sampler_decides(num_workers):
    with RingLoader(Numbered(), 2, sampler=[5, 4, 3], num_workers=num_workers) as loader:
        assert [numbers_in(batch) for batch in loader] == [[5, 4], [3]]


def test_without_batching_samples_come_as_they_are(num_workers):
    with RingLoader(Numbered(3), batch_size=None, num_workers=num_workers) as loader:
        samples = list(loader)
    assert [sample["y"] for sample in samples] == [0, 1, 2]
    assert [sample["s"] for sample in samples] == ["sample 0", "sample 1", "sample 2"]
    assert all(sample["x"].shape == (3, 4) and (sample["x"] == sample["y"]).all() for sample in samples)


def test_without_batching_the_samplers_item_goes_whole_to_the_dataset(num_workers):
    data = np.arange(10)
    with RingLoader(data, None, sampler=[[1, 2], slice(4, 7)], num_workers=num_workers) as loader:
        assert [sample.tolist() for sample in loader] == [[1, 2], [4, 5, 6]]


def test_a_custom_collate_fn_gets_the_samples(num_workers):
    with RingLoader(Numbered(5), 2, collate_fn=listed, num_workers=num_workers) as loader:
        batches = list(loader)
    assert [[sample["y"] for sample in batch] for batch in batches] == [[0, 1], [2, 3], [4]]
    assert batches[1][1]["x"].tolist() == np.full((3, 4), 3).tolist()


def test_whole_batches_are_fetched_where_the_dataset_can(num_workers):
    with RingLoader(Together(), 4, num_workers=num_workers) as loader:
        assert [batch[:, 0].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("batch_size", [3, None])
def test_a_dataset_may_hand_out_the_same_buffer_each_time(num_workers, batch_size):
    with RingLoader(OneBuffer(), batch_size, num_workers=num_workers, slots=32) as loader:
        rows = [row for batch in loader for row in np.atleast_2d(batch)]
    assert [row.tolist() for row in rows] == [[value] * 5 for value in range(20)]


def test_batches_are_writable_and_private(num_workers):
    with RingLoader(Numbered(8), 2, num_workers=num_workers, slots=16) as loader:
        batches = list(loader)
        for batch in batches:
            batch["x"] += 100
        again = list(loader)
    assert [batch["x"][0, 0, 0] for batch in batches] == [100, 102, 104, 106]
    assert [numbers_in(batch) for batch in again] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_arrays_in_slots_are_aligned(num_workers):
    with RingLoader(Numbered(4, shape=(3,)), 2, num_workers=num_workers) as loader:
        for batch in loader:
            if num_workers:
                assert batch["x"].ctypes.data % 64 == 0
            assert batch["x"].flags.c_contiguous


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_fewer_batches_than_are_prefetched(by, length):
    with RingLoader(Numbered(length), 1, **by, prefetch_factor=8 if by["num_workers"] else None) as loader:
        assert [numbers_in(batch) for batch in loader] == [[index] for index in range(length)]


def test_an_ended_pass_stays_ended(num_workers):
    with RingLoader(Numbered(2), 1, num_workers=num_workers) as loader:
        iterator = iter(loader)
        assert len(list(iterator)) == 2
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(iterator)


def test_out_of_order_each_batch_comes_once():
    with RingLoader(Numbered(40), 2, num_workers=2, in_order=False) as loader:
        numbers = sorted(number for batch in loader for number in numbers_in(batch))
    assert numbers == list(range(40))


def test_tasks_are_pulled_as_far_ahead_as_torch_does():
    pulled = []

    def sampler():
        for index in range(100):
            pulled.append(index)
            yield index

    with RingLoader(Numbered(100), 4, sampler=sampler(), num_workers=2, prefetch_factor=3) as loader:
        iterator = iter(loader)
        ahead = [len(pulled)]
        for _ in range(3):
            next(iterator)
            ahead.append(len(pulled))
    assert ahead == [24, 28, 32, 36]


def test_a_samplers_error_comes_after_the_batches_before_it(num_workers):
    def sampler():
        yield from range(3)
        raise LookupError("no more")

    with RingLoader(Numbered(), 1, sampler=sampler(), num_workers=num_workers) as loader:
        iterator = iter(loader)
        assert [numbers_in(next(iterator)) for _ in range(3)] == [[0], [1], [2]]
        with pytest.raises(LookupError, match="no more"):
            next(iterator)


def test_indices_that_need_more_than_a_task_slot(num_workers):
    big = [list(range(start, start + 9000)) for start in range(4)]
    with RingLoader(np.arange(10_000), batch_sampler=big, num_workers=num_workers) as loader:
        assert [batch.tolist() for batch in loader] == big


def test_many_oversized_tasks_at_once():
    big = [list(range(start, start + 4000)) for start in range(300)]
    with RingLoader(np.arange(5000), batch_sampler=big, num_workers=1, prefetch_factor=200, slots=8) as loader:
        assert [batch[0] for batch in loader] == list(range(300))


ALL_SAMPLES = {**AGREED, **CONTAINERS}


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 2}, {"batch_size": None}, {"batch_size": 2, "collate_fn": listed}],
    ids=["batches", "samples", "collate_fn"],
)
@pytest.mark.parametrize("samples", ALL_SAMPLES.values(), ids=ALL_SAMPLES.keys())
def test_a_worker_makes_what_this_process_would_make(samples, options):
    here = list(RingLoader(samples, **options))
    with RingLoader(samples, **options, num_workers=1, slots=8) as loader:
        there = list(loader)
    assert len(here) == len(there)
    for one, other in zip(here, there, strict=True):
        assert nested_types(one) == nested_types(other)
        assert_same(other, one)


def nested_types(batch):
    if isinstance(batch, dict):
        return type(batch), [nested_types(value) for value in batch.values()]
    if isinstance(batch, (list, tuple)):
        return type(batch), [nested_types(value) for value in batch]
    return type(batch)


# ---- sizes ------------------------------------------------------------------------------------------------------


def test_slots_grow_to_the_first_batch(by):
    with RingLoader(Numbered(12, shape=(64, 64, 3)), 4, **by) as loader:
        assert [numbers_in(batch)[0] for batch in loader] == [0, 4, 8]
        stats = loader.stats()
    assert stats.copies == 0
    if by["num_workers"]:
        assert stats.generations == 2
        assert 1 <= stats.slot_bytes / (4 * 64 * 64 * 3 * 4) < 1.2


@pytest.mark.parametrize("collate_fn", [None, listed])
def test_batches_may_outgrow_the_slots_again_and_again(collate_fn):
    with RingLoader(Growing(60, 1000, 9000), 1, collate_fn=collate_fn, num_workers=2) as loader:
        for index, batch in enumerate(loader):
            assert batch[0].shape == (1000 + 9000 * index,)
            assert (batch[0] == index).all()
        assert 3 < loader.stats().generations < 40


def test_batches_may_outgrow_the_slots_out_of_order():
    with RingLoader(Growing(60, 1000, 9000), 1, num_workers=2, in_order=False) as loader:
        sizes = sorted(batch.shape[1] for batch in loader)
    assert sizes == [1000 + 9000 * index for index in range(60)]


class ThirdSizeFirst:
    """While the worker of index 1 is busy, the other one needs larger slots twice; then it needs the first enlargement."""

    SIZES = (100_000, 90_000, 1_000_000, 95_000, 10, 99_000)

    def __len__(self):
        return len(self.SIZES)

    def __getitem__(self, index):
        if index == 1:
            time.sleep(1)
        return np.full(self.SIZES[index], index, np.uint8)


@pytest.mark.parametrize("in_order", [True, False])
def test_a_worker_may_skip_or_use_sizes_that_others_asked_for(in_order):
    with RingLoader(ThirdSizeFirst(), 1, num_workers=2, prefetch_factor=3, in_order=in_order) as loader:
        batches = [(int(batch[0, 0]), batch.shape[1]) for batch in loader]
        assert loader.stats().generations == 3
    assert sorted(batches) == list(enumerate(ThirdSizeFirst.SIZES))


def test_views_of_an_outgrown_ring_stay_valid():
    with RingLoader(Growing(30, 10, 20_000), 1, num_workers=2, slots=64) as loader:
        batches = list(loader)
        assert loader.stats().copies == 0
    assert all((batch == index).all() for index, batch in enumerate(batches))


def test_a_batch_that_widens_under_way_finds_a_larger_slot():
    class Widening:
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return np.full(5000, index, np.int8 if index % 2 == 0 else np.float64)

    with RingLoader(Widening(), 2, num_workers=1) as loader:
        for start, batch in zip((0, 2, 4), loader, strict=True):
            assert batch.dtype == np.float64
            assert batch[:, 0].tolist() == [start, start + 1]


def test_long_texts_after_a_short_one_find_a_larger_slot():
    class Texts:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return "x" * (200_000 * index), np.zeros(3)

    with RingLoader(Texts(), 2, num_workers=1) as loader:
        assert [[len(text) for text in texts] for texts, _ in loader] == [[0, 200_000], [400_000, 600_000]]


def test_a_given_slot_size_is_kept():
    with RingLoader(Numbered(8), 2, num_workers=2, slot_bytes=1 << 20, slots=5) as loader:
        assert [numbers_in(batch)[0] for batch in loader] == [0, 2, 4, 6]
        stats = loader.stats()
    assert (stats.slot_bytes, stats.slots, stats.generations) == (1 << 20, 5, 1)


def test_a_batch_above_max_bytes_is_too_large_and_names_its_indices_and_both_sizes():
    with RingLoader(Growing(8, 50_000, 50_000), 1, num_workers=2, slots=6, max_bytes=6 * 210_000) as loader:
        iterator = iter(loader)
        got = [next(iterator).shape[1] for _ in range(4)]
        for index in range(4, 8):
            with pytest.raises(BatchTooLarge) as caught:
                next(iterator)
            assert caught.value.available_bytes == 210_000
            assert caught.value.needed_bytes >= 50_000 * (index + 1)
            for part in (f"[{index}]", "max_bytes=1260000", "210000", str(caught.value.needed_bytes)):
                assert part in str(caught.value)
        with pytest.raises(StopIteration):
            next(iterator)
    assert got == [50_000, 100_000, 150_000, 200_000]


class OneIsEnormous:
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return np.broadcast_to(np.uint8(index), (1 << 44 if index == 2 else 10,))


def test_a_batch_that_no_memory_can_hold_is_an_os_error_at_its_place():
    with RingLoader(OneIsEnormous(), 1, num_workers=2) as loader:
        iterator = iter(loader)
        assert [next(iterator)[0, 0] for _ in range(2)] == [0, 1]
        with pytest.raises(OSError, match=r"indices \[2\].* bytes .* free") as caught:
            next(iterator)
        assert caught.value.errno == errno.ENOMEM
        assert [batch[0, 0] for batch in iterator] == [3, 4, 5]


def test_the_next_pass_begins_with_the_slots_of_the_last():
    with RingLoader(Numbered(8, shape=(100, 100)), 4, num_workers=2) as loader:
        for _ in range(3):
            assert [numbers_in(batch)[0] for batch in loader] == [0, 4]
        assert loader.stats().generations == 2


# ---- accounts ---------------------------------------------------------------------------------------------------


def test_the_account_adds_up(num_workers):
    with RingLoader(Numbered(12, shape=(10,)), 4, num_workers=num_workers) as loader:
        for _ in range(2):
            for _ in loader:
                pass
        stats = loader.stats()
    assert stats.batches == 6
    assert stats.copies == 0
    assert stats.bytes >= 2 * 12 * (10 * 4 + 8)
    assert stats.wait_ns > 0
    assert stats.workers == num_workers
    assert stats.slots == (2 * num_workers + 2 if num_workers else 0)
    lines = str(stats).splitlines()
    table, workers = lines[: lines.index("")], lines[lines.index("") + 1 :]
    assert table[0].split() == ["batches", "6"]
    assert len({len(line) for line in table}) == len({len(line) for line in workers}) == 1
    assert len(workers) == 1 + max(1, num_workers)
