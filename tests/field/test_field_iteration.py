"""Passes: left early, begun anew, uneven, short, out of order; and the random numbers that they draw."""

import random
import threading

import numpy as np
import pytest
from field_data import Draws, Filled, Raises, Stream, ToldStream, Waits, uncollected
from field_loaders import (
    COPIES,
    CORES,
    Theirs,
    TorchLoader,
    both,
    numbers,
    outcomes,
    rows,
    stream_for,
    torch,
    usage,
    workers,
    workers_or_none,
)

context = torch.multiprocessing.get_context("fork")

# ---- left early ---------------------------------------------------------------------------------------------------


@both
def test_two_hundred_loops_that_are_left_at_once_leave_nothing(Loader):
    with Loader(Filled(1000, (2,)), 2, num_workers=1) as loader:
        next(iter(loader))
        before = usage()
        for turn in range(200):
            for batch in loader:
                assert rows(batch) == [0, 1]
                break
            del batch
            if turn % 20 == 0:
                next(iter(loader))
        assert usage() == before


@both
def test_an_iterator_in_a_traceback_ends_with_it(Loader):
    with Loader(Filled(100), 2, num_workers=1) as loader, uncollected():

        def fails():
            iterator = iter(loader)
            next(iterator)
            raise ZeroDivisionError

        try:
            fails()
        except ZeroDivisionError as error:
            kept = error
        assert len(workers()) == 1
        del kept
        assert workers() == []


@both
def test_an_iterator_in_a_reference_cycle_ends_when_the_cycle_is_collected(Loader):
    with Loader(Filled(100), 2, num_workers=1) as loader:
        cycle = [iter(loader)]
        cycle.append(cycle)
        del cycle
        assert usage()[-1] == 0  # it collects first


# ---- begun anew ---------------------------------------------------------------------------------------------------


@both
def test_each_pass_of_persistent_workers_is_a_whole_epoch(Loader):
    with Loader(Filled(12), 2, num_workers=2, persistent_workers=True) as loader:
        assert [rows(next(iter(loader))) for _ in range(3)] == [[0, 1]] * 3
        for _ in range(3):
            assert numbers(loader) == list(range(12))


@both
@pytest.mark.parametrize("persistent", [True, False])
def test_two_iterators_are_one_that_starts_over_or_two_of_their_own(Loader, persistent):
    with Loader(Filled(8), 2, num_workers=1, persistent_workers=persistent) as loader:
        first = iter(loader)
        got = [rows(next(first))]
        second = iter(loader)
        got += [rows(next(one)) for one in (second, first, second, first)]
    if persistent:
        assert first is second
        assert got == [[0, 1], [0, 1], [2, 3], [4, 5], [6, 7]]
    else:
        assert got == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5]]


@both
def test_a_pass_after_an_error_is_whole(Loader):
    with Loader(Raises(ValueError, at=5, length=12), 2, num_workers=2, persistent_workers=True) as loader:
        for _ in range(3):
            iterator = iter(loader)
            next(iterator), next(iterator)
            with pytest.raises(ValueError):
                next(iterator)
            del iterator
        assert sum(isinstance(one, list) for one in outcomes(iter(loader))) == 5


# ---- uneven and short ---------------------------------------------------------------------------------------------


@both
@pytest.mark.filterwarnings(CORES, "ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("counts", [(5, 9, 1), (0, 0, 300), (0, 0, 0)], ids=str)
def test_workers_without_a_shard_yield_nothing_and_hold_up_nobody(Loader, counts):
    with Loader(stream_for(Loader, Stream(counts)), 4, num_workers=8, persistent_workers=True) as loader:
        want = sorted(1000 * shard + number for shard, count in enumerate(counts) for number in range(count))
        for _ in range(2):
            assert sorted(numbers(loader)) == want


@both
@pytest.mark.filterwarnings(CORES, "ignore:This DataLoader will create:UserWarning")
def test_a_stream_that_is_not_shared_out_comes_from_each_worker_with_a_warning_of_what_was_promised(Loader):
    stream = stream_for(Loader, ToldStream([20], shared_out=False, told=20))
    with Loader(stream, 1, num_workers=3) as loader:
        assert len(loader) == 20
        with pytest.warns(UserWarning, match="Length of IterableDataset .* was reported to be 20 ") as warned:
            assert sorted(numbers(loader)) == sorted(list(range(20)) * 3)
        assert len(loader) == 20
    assert sum("Length of" in str(warning.message) for warning in warned) == 40


@pytest.mark.filterwarnings(CORES, "ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_last_batch_is_dropped_by_each_worker_as_in_torch(drop_last):
    class Both(Stream, torch.utils.data.IterableDataset):
        def __iter__(self):
            info = torch.utils.data.get_worker_info()
            yield from range(100 * info.id, 100 * info.id + self.counts[info.id])

    options = {"num_workers": 3, "drop_last": drop_last}
    theirs = [batch.tolist() for batch in Theirs(Both([16, 15, 15]), 8, **options)]
    with TorchLoader(Both([16, 15, 15]), 8, **options) as loader:
        assert [batch.tolist() for batch in loader] == theirs
    assert len(theirs) == (4 if drop_last else 6)


@both
@pytest.mark.filterwarnings(CORES, "ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("length", [0, 1, 2, 3])
@pytest.mark.parametrize("in_order", [True, False])
def test_fewer_samples_than_are_prefetched_come_once_and_end(Loader, length, in_order):
    with Loader(Filled(length), 1, num_workers=4, prefetch_factor=8, in_order=in_order) as loader:
        assert sorted(numbers(loader)) == list(range(length))


# ---- order --------------------------------------------------------------------------------------------------------


@both
def test_batches_that_are_ready_do_not_wait_for_a_slow_one_where_order_does_not_matter(Loader):
    gate = context.Event()
    with Loader(Waits(gate, at=0, length=12), 1, num_workers=2, in_order=False, prefetch_factor=2, timeout=30) as loader:
        iterator = iter(loader)
        early = [rows(next(iterator))[0] for _ in range(2)]
        assert 0 not in early
        gate.set()
        rest = numbers(iterator)
    assert sorted(early + rest) == list(range(12))


@both
@pytest.mark.filterwarnings(COPIES)
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_slow_first_batch_and_few_slots_neither_break_the_order_nor_lock_up(Loader, slots):
    """The other worker goes as far ahead as it may before sample 0 is let go."""
    gate, reached = context.Event(), context.Event()
    with Loader(Waits(gate, at=0, length=20, reached=reached), 1, num_workers=2, slots=slots, timeout=30) as loader:
        iterator = iter(loader)
        opener = threading.Thread(target=lambda: reached.wait(30) and gate.set())
        opener.start()
        assert numbers(iterator) == list(range(20))
        opener.join(30)
        assert loader.stats().slots == slots


# ---- random numbers -----------------------------------------------------------------------------------------------


@both
@pytest.mark.filterwarnings(CORES, "ignore:This DataLoader will create:UserWarning")
def test_no_two_workers_no_two_samples_and_no_two_passes_draw_the_same(Loader):
    with Loader(Draws(12), 1, num_workers=3, slots=20) as loader:
        drawn = np.array([np.asarray(batch)[0] for _ in range(2) for batch in loader])
    assert drawn.shape == (24, 5)
    for stream in range(4):
        assert len(set(drawn[:, stream])) == 24
    assert len(set(drawn[:, 4])) == 6  # a generator made anew of the worker's seed: one of each worker and pass


@both
def test_a_seed_makes_every_stream_the_same_again(Loader):
    def run():
        generator = 11 if Loader is not TorchLoader else torch.Generator().manual_seed(11)
        with Loader(Draws(), 2, shuffle=True, num_workers=2, generator=generator, slots=12) as loader:
            return [np.asarray(batch)[:, [0, 1, 3, 4]].tolist() for _ in range(2) for batch in loader]

    first = run()
    assert first == run()
    assert first[:4] != first[4:]


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_pass_draws_from_the_main_process_exactly_what_torchs_does(num_workers, seeded, shuffle):
    def streams(Loader):
        torch.manual_seed(3)
        generator = torch.Generator().manual_seed(5) if seeded else None
        before = random.getstate(), np.random.get_state()[1].tolist()
        loader = Loader(Filled(6), 2, shuffle=shuffle, num_workers=num_workers, generator=generator)
        order = numbers(loader)
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before
        return order, torch.get_rng_state().tolist(), generator and generator.get_state().tolist()

    assert streams(TorchLoader) == streams(Theirs)


@both
@workers_or_none
def test_a_pass_leaves_pythons_and_numpys_streams_alone(Loader, num_workers):
    before = random.getstate(), np.random.get_state()[1].tolist()
    with Loader(Filled(8), 2, shuffle=True, num_workers=num_workers) as loader:
        assert sorted(numbers(loader)) == list(range(8))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
