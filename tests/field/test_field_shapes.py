"""Arrays without elements, in any order in memory, of other classes, of varying and of enormous size."""

import numpy as np
import pytest
from field_data import Given, listed
from field_loaders import NumpyLoader, Theirs, TorchLoader, both, outcomes, rows, same, torch, verdict, workers_or_none

import ringbuf
from ringbuf import BatchTooLarge, RingBuffer

# ---- nothing in them ----------------------------------------------------------------------------------------------

EMPTY = {
    "(0, 4)": np.empty((0, 4), np.float32),
    "(0,)": np.empty(0, np.int16),
    "(2, 0, 3)": np.empty((2, 0, 3), bool),
    "huge but for one axis": np.empty((0, 3, 2**40), np.uint8),
}


@pytest.mark.parametrize("array", EMPTY.values(), ids=EMPTY)
@pytest.mark.parametrize("batch_size", [2, None])
@workers_or_none
def test_arrays_without_elements_keep_shape_and_dtype(array, batch_size, num_workers):
    options = {"batch_size": batch_size, "num_workers": num_workers}
    with NumpyLoader(Given([array, array]), **options) as loader:
        for batch in loader:
            assert batch.shape == ((2, *array.shape) if batch_size else array.shape)
            assert batch.dtype == array.dtype
    with TorchLoader(Given([array, array]), **options) as loader:
        assert same(list(loader), list(Theirs(Given([array, array]), batch_size)))


@pytest.mark.parametrize("dtype", ["V0", np.dtype([]), "S0", "U0"], ids=str)
def test_arrays_whose_elements_have_no_size_arrive(dtype):
    array = np.zeros((2, 3), dtype)
    with NumpyLoader(Given([array] * 2), 1, num_workers=1, collate_fn=listed) as loader:
        for (got,) in loader:
            assert (got.shape, got.dtype) == (array.shape, array.dtype)


def test_a_message_without_elements_takes_no_room_and_holds_no_slot():
    with RingBuffer(slots=1, slot_bytes=1) as ring:
        for _ in range(3):
            ring.put({"x": np.empty((0, 3, 2**40)), "y": np.empty(0)}, timeout=0)
            got = ring.get_copy(timeout=0)
            assert (got["x"].shape, got["y"].shape) == ((0, 3, 2**40), (0,))


@both
@workers_or_none
def test_a_batch_of_no_samples_is_torchs_error_at_its_place(Loader, num_workers):
    with Loader(np.arange(4), batch_sampler=[[0], [], [3]], num_workers=num_workers) as loader:
        found = outcomes(iter(loader))
    assert [found[0], found[2]] == [[0], [3]]
    assert type(found[1]) is verdict(lambda: list(Theirs(np.arange(4), batch_sampler=[[]])))


# ---- order in memory ----------------------------------------------------------------------------------------------

LAYOUTS = {
    "Fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "Fortran 3-d": np.asfortranarray(np.arange(24).reshape(2, 3, 4)),
    "every other": np.arange(12).reshape(3, 4)[:, ::2],
    "backwards": np.arange(12)[::-1],
    "transposed": np.arange(12).reshape(3, 4).T,
    "swapped axes": np.arange(24).reshape(2, 3, 4).swapaxes(0, 2),
    "a field": np.zeros(5, [("x", "f8"), ("y", "i2")])["y"],
    "broadcast": np.broadcast_to(np.float32(3), (4, 5)),
    "one backwards": np.arange(1)[::-1],
}


@both
@pytest.mark.parametrize("array", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("batch_size", [2, None])
def test_an_array_of_any_layout_arrives_without_gaps(Loader, array, batch_size):
    theirs = verdict(lambda: list(Theirs(Given([array, array]), batch_size)))
    with Loader(Given([array, array]), batch_size, num_workers=1) as loader:
        found = outcomes(iter(loader)) if isinstance(theirs, type) and Loader is TorchLoader else list(loader)
    for batch in found:
        if isinstance(batch, Exception):  # torch takes no array that runs backwards
            assert type(batch) is theirs
            continue
        got = np.asarray(batch)
        assert np.array_equal(got, np.stack([array, array]) if batch_size else array)
        assert got.dtype == array.dtype
        # A tensor that was not stacked keeps the order of its dimensions, as torch's does.
        kept = Loader is TorchLoader and batch_size is None and array.flags.f_contiguous
        assert (got.flags.f_contiguous if kept else got.flags.c_contiguous) and min(got.strides) >= 0
        torch.from_numpy(got)


@both
@pytest.mark.parametrize("array", LAYOUTS.values(), ids=LAYOUTS)
def test_an_array_of_any_layout_may_come_out_of_a_collate_fn(Loader, array):
    with Loader(Given([array]), 1, num_workers=1, collate_fn=listed) as loader:
        ((got,),) = loader
    assert same(got, np.array(array, order="C"))
    assert min(got.strides) >= 0


# ---- classes of arrays --------------------------------------------------------------------------------------------


class Labelled(np.ndarray):
    pass


def labelled():
    array = np.arange(4).view(Labelled)
    array.label = "mine"
    return array


@workers_or_none
def test_records_matrices_and_subclasses_become_plain_arrays_with_their_values(num_workers):
    record = np.rec.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")])
    for array in (record, np.arange(4).reshape(2, 2).view(np.matrix), labelled()):
        with NumpyLoader(Given([array, array]), 2, num_workers=num_workers) as loader:
            (batch,) = loader
        assert type(batch) is np.ndarray
        assert batch.shape == (2, *array.shape)
        assert batch.tolist() == [np.asarray(array).tolist()] * 2
    with NumpyLoader(Given([record, record]), 2, num_workers=num_workers) as loader:
        (batch,) = loader
    assert (batch["a"].sum(), batch["b"].sum()) == (8, 14)


@pytest.mark.parametrize("batch_size", [2, None])
@workers_or_none
def test_a_mask_is_never_lost_in_silence(batch_size, num_workers):
    masked = np.ma.masked_array([1, 2, 3], [0, 1, 0])
    with NumpyLoader(Given([masked, masked]), batch_size, num_workers=num_workers) as loader:
        for error in outcomes(iter(loader)):
            assert type(error) is TypeError and "mask" in str(error)


@both
@workers_or_none
def test_rows_of_a_mapped_file_are_batched(Loader, num_workers, tmp_path):
    np.arange(60, dtype=np.int32).tofile(tmp_path / "file")
    data = np.memmap(tmp_path / "file", np.int32, mode="r+", shape=(20, 3))
    with Loader(data, 4, num_workers=num_workers) as loader:
        got = [row for batch in loader for row in np.asarray(batch).tolist()]
    assert got == np.arange(60).reshape(20, 3).tolist()


# ---- sizes that vary ----------------------------------------------------------------------------------------------


@both
@workers_or_none
def test_a_short_last_batch_has_no_tail_of_an_earlier_one(Loader, num_workers):
    with Loader(Given(list(np.arange(1, 11))), 4, num_workers=num_workers, slots=3) as loader:
        for _ in range(3):
            batches = [np.asarray(batch).tolist() for batch in loader]
            assert batches == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


@both
@workers_or_none
def test_ragged_samples_are_an_error_with_both_shapes_and_the_next_batch_comes(Loader, num_workers):
    samples = [{"x": np.zeros(3)}, {"x": np.zeros(5)}, {"x": np.ones(2)}, {"x": np.ones(2)}]
    with Loader(Given(samples), 2, num_workers=num_workers) as loader:
        iterator = iter(loader)
        with pytest.raises(RuntimeError, match="equal size") as caught:
            next(iterator)
        assert np.asarray(next(iterator)["x"]).tolist() == [[1, 1], [1, 1]]
    assert "3" in str(caught.value) and "5" in str(caught.value)
    if Loader is NumpyLoader:
        for part in ("'x'", "sample 0", "sample 1"):
            assert part in str(caught.value)


@both
def test_ragged_samples_pass_through_a_collate_fn_of_ones_own(Loader):
    samples = [np.full(length, length) for length in (3, 0, 50_000, 7)]
    with Loader(Given(samples), 2, num_workers=1, collate_fn=listed) as loader:
        got = [array.tolist() for batch in loader for array in batch]
    assert got == [sample.tolist() for sample in samples]


@both
@pytest.mark.parametrize("in_order", [True, False])
def test_batches_grow_over_an_epoch_far_beyond_the_first(Loader, in_order):
    samples = [np.full(10 + 7000 * index, index) for index in range(40)]
    with Loader(Given(samples), 1, num_workers=2, in_order=in_order) as loader:
        got = sorted((int(batch[0, 0]), batch.shape[1]) for batch in loader)
        assert loader.stats().generations > 2
    assert got == [(index, 10 + 7000 * index) for index in range(40)]


# ---- sizes that no slot has ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**32 + 1, 2**62])
def test_a_message_that_cannot_fit_is_refused_with_its_exact_size(nbytes):
    array = np.broadcast_to(np.uint8(1), (nbytes,))
    with RingBuffer(slots=1, slot_bytes=1 << 20) as ring:
        ring.put(0)  # no slot is free, and nobody waits for one
        with pytest.raises(BatchTooLarge) as caught:
            ring.put(array, timeout=None)
        assert (caught.value.needed_bytes, caught.value.available_bytes) == (nbytes, 1 << 20)
        with pytest.raises(BatchTooLarge):
            ring.put([array, array], timeout=None)
        assert isinstance(caught.value, ValueError)


@both
def test_a_batch_beyond_max_bytes_is_refused_at_its_place_with_both_sizes(Loader):
    samples = [np.zeros(10, np.uint8), np.zeros(1_000_000, np.uint8), np.zeros(20, np.uint8)]
    with Loader(Given(samples), 1, num_workers=1, slots=4, max_bytes=4 * 100_000) as loader:
        iterator = iter(loader)
        assert next(iterator).shape == (1, 10)
        with pytest.raises(ringbuf.BatchTooLarge) as caught:
            next(iterator)
        assert next(iterator).shape == (1, 20)
    assert caught.value.available_bytes == 100_000
    assert 1_000_000 <= caught.value.needed_bytes < 1_100_000


@both
def test_a_batch_of_many_small_rows_and_one_of_few_large_ones_take_turns(Loader):
    samples = [np.full(200_000 if index % 3 == 0 else 2, index, np.int32) for index in range(24)]
    with Loader(Given(samples), 1, num_workers=2, slots=5) as loader:
        assert [rows(batch)[0] for batch in loader] == list(range(24))
