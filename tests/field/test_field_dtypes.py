"""Values of unusual types, through workers: the same afterwards, or a clear error before anything is sent."""

import numpy as np
import pytest
from field_data import Given, listed
from field_loaders import NumpyLoader, Theirs, TorchLoader, both, outcomes, same, torch, verdict, workers_or_none

ml_dtypes = pytest.importorskip("ml_dtypes", reason="its dtypes are part of what is tested")


def passed_through(Loader, samples, **options):
    """Samples, each delivered as it is by a worker."""
    with Loader(Given(samples), 1, num_workers=1, collate_fn=listed, slots=len(samples) + 3, **options) as loader:
        return [batch[0] for batch in loader]


# ---- dates --------------------------------------------------------------------------------------------------------

DATES = {
    unit: np.array([np.iinfo(np.int64).min, 3, -5]).view(unit)  # the first is the NaT of every unit
    for unit in ("M8[ns]", "M8[D]", "M8[25us]", "m8[s]", "m8[3M]")
}


@pytest.mark.parametrize("array", DATES.values(), ids=DATES)
@workers_or_none
def test_dates_are_batched_with_their_unit_and_every_not_a_time(array, num_workers):
    with NumpyLoader(Given([array, array[::-1]]), 2, num_workers=num_workers) as loader:
        (batch,) = loader
    assert batch.dtype == array.dtype
    assert batch.tobytes() == array.tobytes() + array[::-1].tobytes()
    assert np.isnat(batch).tolist() == np.isnat([array, array[::-1]]).tolist()


@both
def test_dates_pass_through_a_collate_fn_of_ones_own(Loader):
    samples = [*DATES.values(), np.datetime64("2001-02-03", "D"), np.timedelta64(-1, "ns"), np.datetime64("NaT")]
    for got, sent in zip(passed_through(Loader, samples), samples, strict=True):
        assert type(got) is type(sent)
        assert (got.dtype, got.tobytes()) == (sent.dtype, sent.tobytes())


# ---- small floats and integers ------------------------------------------------------------------------------------

SMALL = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"]


@pytest.mark.parametrize("name", SMALL)
@workers_or_none
def test_small_dtypes_are_neither_void_nor_widened(name, num_workers):
    dtype = np.dtype(getattr(ml_dtypes, name))
    array = np.arange(8).astype(dtype)
    with NumpyLoader(Given([array, array[::-1]]), 2, num_workers=num_workers) as loader:
        (batch,) = loader
    assert batch.dtype == dtype
    assert batch.view(np.uint8).tobytes() == array.view(np.uint8).tobytes() + array[::-1].copy().view(np.uint8).tobytes()


TENSORS = {
    "bfloat16": torch.arange(6).to(torch.bfloat16),
    "float8_e4m3fn": torch.arange(6).to(torch.float8_e4m3fn),
    "float8_e5m2": torch.arange(6).to(torch.float8_e5m2),
    "complex128, conjugate": torch.complex(torch.arange(6.0), torch.ones(6)).conj(),
    "half": torch.arange(6).half(),
    "bool": torch.arange(6) > 2,
    "uint16": torch.arange(6).to(torch.uint16),
    "0-d": torch.tensor(3.5),
    "empty": torch.empty(0, 4),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
@pytest.mark.parametrize("batch_size", [2, None])
def test_a_tensor_of_any_dtype_comes_as_from_torchs_loader(tensor, batch_size):
    data = Given([tensor] * 3)
    theirs = list(Theirs(data, batch_size))
    for num_workers in (0, 1):
        with TorchLoader(data, batch_size, num_workers=num_workers) as loader:
            assert same([one.resolve_conj() for one in loader], [one.resolve_conj() for one in theirs])


def test_a_tensor_that_requires_a_gradient_does_so_afterwards_and_a_computed_one_is_refused():
    parameter = torch.ones(3, requires_grad=True)
    with TorchLoader(Given([parameter]), None, num_workers=1) as loader:
        (got,) = loader
    assert got.requires_grad and got.is_leaf and got.tolist() == [1, 1, 1]
    with TorchLoader(Given([parameter] * 2), 2, num_workers=1) as loader:  # stacking computes
        (error,) = outcomes(iter(loader))
    assert isinstance(error, (TypeError, RuntimeError))
    assert "requires grad" in str(error)


# ---- numbers ------------------------------------------------------------------------------------------------------

NUMBERS = {
    "0-d": [np.array(3.5), np.array(4.5)],
    "float16": [np.float16(1), np.float16(2)],
    "bool_": [np.bool_(True), np.bool_(False)],
    "bool": [True, False],
    "int": [1, 2**40],
    "float": [0.1, float("nan")],
    "int and float": [1, 2.5],
    "int8": [np.int8(-1), np.int8(1)],
    "uint64": [np.uint64(1), np.uint64(2)],
}


@pytest.mark.parametrize("samples", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("batch_size", [2, None])
@workers_or_none
def test_numbers_become_what_torch_makes_of_them(samples, batch_size, num_workers):
    theirs = verdict(lambda: list(Theirs(Given(samples), batch_size)))
    with TorchLoader(Given(samples), batch_size, num_workers=num_workers) as loader:
        ours = verdict(lambda: list(loader))
    assert ours is theirs if isinstance(theirs, type) else same(ours, theirs)
    with NumpyLoader(Given(samples), batch_size, num_workers=num_workers) as loader:
        arrays = list(loader)
    if batch_size is None:
        assert [type(array) for array in arrays] == [type(sample) for sample in samples]
    else:
        assert [(array.dtype, array.shape) for array in arrays] == [(np.array(samples).dtype, (2,))]
    assert np.array_equal(np.ravel(np.array(arrays, float)), np.array(samples, float), equal_nan=True)


@both
@pytest.mark.parametrize("value", [1j, complex(0, float("inf"))])
def test_complex_python_numbers_come_unbatched_as_they_are(Loader, value):
    with Loader(Given([value]), None, num_workers=1) as loader:
        (got,) = loader
    assert type(got) is complex and got == value


QUIET_AND_SIGNALLING = np.array([0x7FC00001, 0x7FA00001, 0xFFA00002, 0xFFFFFFFF, 1], np.uint32)


@both
@workers_or_none
def test_every_bit_of_a_nan_survives(Loader, num_workers):
    array = QUIET_AND_SIGNALLING.view(np.float32)
    with Loader(Given([array, array]), 2, num_workers=num_workers) as loader:
        (batch,) = loader
    assert np.asarray(batch).view(np.uint32).tolist() == [QUIET_AND_SIGNALLING.tolist()] * 2


@both
def test_a_bool_that_is_neither_0_nor_1_keeps_its_byte(Loader):
    array = np.array([0, 1, 2, 255], np.uint8).view(bool)
    (got,) = passed_through(Loader, [array])
    assert got.view(np.uint8).tolist() == [0, 1, 2, 255]


# ---- text ---------------------------------------------------------------------------------------------------------

TEXTS = ["", "a\0", "\0", "\U0001f600 and more", "\ud800", "x" * (1 << 20), "é" * 1000]


@both
@workers_or_none
@pytest.mark.parametrize("batch_size", [3, None])
def test_text_and_bytes_arrive_to_the_last_character(Loader, num_workers, batch_size):
    sample = {text: text for text in TEXTS} | {f"b{at}": text.encode("utf-8", "surrogatepass") for at, text in enumerate(TEXTS)}
    with Loader(Given([sample] * 3), batch_size, num_workers=num_workers) as loader:
        batches = list(loader)
    for batch in batches:
        assert list(batch) == list(sample)
        for key, value in sample.items():
            assert batch[key] == (value if batch_size is None else [value] * 3)


FIXED = {
    "S5": np.array([b"a", b"\0b", b"abcde"], "S5"),
    "U3": np.array(["", "\U0001f600", "abc"], "U3"),
    ">U3": np.array(["", "é", "abc"], ">U3"),
}


@pytest.mark.parametrize("array", FIXED.values(), ids=FIXED)
def test_strings_of_fixed_width_are_batched_in_numpy_and_refused_as_torch_does_in_tensors(array):
    with NumpyLoader(Given([array, array]), 2, num_workers=1) as loader:
        (batch,) = loader
    assert batch.tolist() == [array.tolist()] * 2
    with TorchLoader(Given([array, array]), 2, num_workers=1) as loader:
        (error,) = outcomes(iter(loader))
    assert type(error) is verdict(lambda: next(iter(Theirs(Given([array, array]), 2)))) is TypeError


@both
@pytest.mark.parametrize("array", FIXED.values(), ids=FIXED)
def test_strings_of_fixed_width_pass_through_a_collate_fn_of_ones_own(Loader, array):
    (got,) = passed_through(Loader, [array])
    assert same(got, array)


# ---- what holds pointers ------------------------------------------------------------------------------------------

POINTERS = {
    "object": np.array([1, "a"], object),
    "object in a struct": np.zeros(2, [("fine", "i4"), ("bad", "O")]),
    "object in a subarray": np.zeros(2, [("bad", "O", (2,))]),
    "strings of any width": np.array(["a", "bc" * 100], np.dtypes.StringDType()),
}


@both
@workers_or_none
@pytest.mark.parametrize("array", POINTERS.values(), ids=POINTERS)
def test_an_array_of_pointers_is_refused_by_the_default_collate(Loader, num_workers, array):
    with Loader(Given([{"x": [array]}] * 2), 2, num_workers=num_workers) as loader:
        (error,) = outcomes(iter(loader))
    assert type(error) is TypeError
    assert Loader is TorchLoader or r"batch['x'][0]" in str(error)


@both
@pytest.mark.parametrize("array", POINTERS.values(), ids=POINTERS)
def test_an_array_of_pointers_that_a_collate_fn_returns_arrives_by_value(Loader, array):
    (got,) = passed_through(Loader, [array])
    assert got is not array
    assert got.dtype == array.dtype
    assert repr(got) == repr(array)


# ---- byte order ---------------------------------------------------------------------------------------------------

FOREIGN = {
    ">f4": np.arange(4, dtype=">f4"),
    ">i2": np.arange(4, dtype=">i2"),
    "mixed": np.array([(1, 2)], [("a", ">i4"), ("b", "<i4")]),
}


@pytest.mark.parametrize("array", FOREIGN.values(), ids=FOREIGN)
@workers_or_none
def test_big_endian_numbers_keep_their_values_and_are_refused_where_torch_refuses_them(array, num_workers):
    with NumpyLoader(Given([array, array]), 2, num_workers=num_workers) as loader:
        (batch,) = loader
    assert batch.tolist() == [array.tolist()] * 2
    with TorchLoader(Given([array, array]), 2, num_workers=num_workers) as loader:
        (error,) = outcomes(iter(loader))
    assert type(error) is verdict(lambda: next(iter(Theirs(Given([array, array]), 2))))


@both
@pytest.mark.parametrize("array", FOREIGN.values(), ids=FOREIGN)
def test_big_endian_arrays_pass_through_a_collate_fn_of_ones_own(Loader, array):
    (got,) = passed_through(Loader, [array])
    assert same(got, array)


# ---- elsewhere than in memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, None])
def test_a_tensor_that_is_not_on_the_cpu_is_refused_with_what_to_do(batch_size):
    with NumpyLoader(Given([{"a": 1, "x": torch.zeros(2, device="meta")}]), batch_size, num_workers=1) as loader:
        (error,) = outcomes(iter(loader))
    assert type(error) is TypeError
    for words in ("meta", "CPU", "'x'"):
        assert words in str(error)
