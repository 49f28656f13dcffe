"""Keeping batches: any number, any part, for any time."""

import gc

import numpy as np
import pytest
from loader_data import Numbered, numbers_in

from ringbuf import RingLoader

torch = pytest.importorskip("torch", reason="one kind of view is torch's")

COPIES = "ignore:RingLoader. .* slots are still looked at:UserWarning"


@pytest.mark.filterwarnings(COPIES)
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("in_order", [True, False])
def test_a_list_of_all_batches_is_right(method, in_order):
    loader = RingLoader(Numbered(240), 2, num_workers=2, multiprocessing_context=method, in_order=in_order)
    with loader:
        batches = list(loader)
        stats = loader.stats()
    assert len(batches) == 20 * stats.slots
    assert sorted(number for batch in batches for number in numbers_in(batch)) == list(range(240))
    assert 0 < stats.copies < len(batches)


@pytest.mark.filterwarnings(COPIES)
@pytest.mark.parametrize("slots", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("keep", [1, 2, 3, 50])
def test_nothing_deadlocks_however_few_the_slots_and_however_many_are_kept(slots, keep):
    with RingLoader(Numbered(100), 2, num_workers=2, slots=slots) as loader:
        kept = []
        for batch in loader:
            kept = [*kept, batch][-keep:]
            last = numbers_in(batch)[0]
            assert [numbers_in(one)[0] for one in kept] == list(range(last + 2 - 2 * len(kept), last + 2, 2))


VIEWS = {
    "slice": lambda batch: batch["x"][1, 1:, ::2],
    "transposed": lambda batch: batch["x"].T[1:2],
    "reshaped": lambda batch: batch["x"].reshape(-1)[5:9],
    "memoryview": lambda batch: memoryview(batch["x"]).cast("B")[3:9],
    "torch": lambda batch: torch.from_numpy(batch["x"])[1, 0],
    "torch view": lambda batch: torch.from_numpy(batch["x"]).view(-1)[-1:],
    "field": lambda batch: batch["x"].view([("a", "f4"), ("b", "f4")])["b"],
}


@pytest.mark.filterwarnings(COPIES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_one_nested_view_keeps_its_batch(view):
    with RingLoader(Numbered(240, shape=(4, 4)), 2, num_workers=2) as loader:
        kept = [view(batch) for batch in loader]
        gc.collect()
    assert len(kept) == 120
    for number, got in enumerate(kept):
        want = np.arange(2 * number, 2 * number + 2, dtype=np.float32).repeat(16).reshape(2, 4, 4)
        assert np.array_equal(np.asarray(got), np.asarray(view({"x": want})))


def test_keeping_the_last_batch_and_one_from_the_beginning_costs_no_copy():
    with RingLoader(Numbered(60), 2, num_workers=2) as loader:
        first = previous = None
        for batch in loader:
            first = first if first is not None else batch
            previous = batch
        assert loader.stats().copies == 0
    assert (numbers_in(first), numbers_in(previous)) == ([0, 1], [58, 59])


def test_copies_are_announced_once():
    with RingLoader(Numbered(80), 2, num_workers=2) as loader:
        with pytest.warns(UserWarning, match="private copy") as warned:
            batches = list(loader)
            batches += list(loader)
        assert [warning.filename for warning in warned] == [__file__]
        assert loader.stats().copies > 60


@pytest.mark.filterwarnings(COPIES)
def test_dropping_what_was_kept_ends_the_copying():
    with RingLoader(Numbered(200), 2, num_workers=2) as loader:
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(20)]
        copies = loader.stats().copies
        assert copies > 0
        del kept
        for _ in range(20):
            next(iterator)
        # One more may have been on its way.
        assert loader.stats().copies <= copies + 1


@pytest.mark.filterwarnings(COPIES)
def test_batches_outlive_their_pass_their_loader_and_later_passes():
    loader = RingLoader(Numbered(20), 2, num_workers=2)
    first = list(loader)
    second = list(loader)
    loader.close()
    del loader
    gc.collect()
    with RingLoader(Numbered(20), 2, num_workers=2) as other:
        list(other)
    for batches in (first, second):
        assert [numbers_in(batch) for batch in batches] == [[index, index + 1] for index in range(0, 20, 2)]


@pytest.mark.filterwarnings(COPIES)
def test_batches_kept_from_many_passes_never_block_the_next():
    with RingLoader(Numbered(16), 2, num_workers=2) as loader:
        kept = [batch for _ in range(6) for batch in loader]
    assert [numbers_in(batch)[0] for batch in kept] == list(range(0, 16, 2)) * 6
