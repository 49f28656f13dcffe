"""What a loader can do for single samples: seed them, pass over those that fail, let them be written in place."""

import random

import numpy as np
import pytest

import ringbuf

torch = pytest.importorskip("torch")
from ringbuf.torch import RingLoader as TorchLoader  # noqa: E402

LOADERS = {"arrays": ringbuf.RingLoader, "tensors": TorchLoader}


@pytest.fixture(params=LOADERS)
def Loader(request):
    return LOADERS[request.param]


def seeded(Loader, seed=5):
    return {"generator": seed if Loader is ringbuf.RingLoader else torch.Generator().manual_seed(seed)}


# ---- seed_by="sample" ---------------------------------------------------------------------------------------------


class Drawing:
    def __len__(self):
        return 13

    def __getitem__(self, index):
        return {"n": np.random.rand(2), "r": random.random(), "t": torch.rand(2), "i": index}


def values(batches):
    return [
        {key: np.asarray(value).tolist() for key, value in batch.items()} for batch in batches
    ]


@pytest.mark.parametrize(
    "options", [{"num_workers": 1}, {"num_workers": 2, "prefetch_factor": 1}, {"num_workers": 2, "persistent_workers": True}]
)
def test_samples_seeded_one_by_one_do_not_depend_on_the_workers(Loader, options):
    def two_passes(**options):
        loader = Loader(Drawing(), batch_size=3, shuffle=True, seed_by="sample", **seeded(Loader), **options)
        with loader:
            return values(loader), values(loader)

    alone = two_passes()
    assert two_passes(**options) == alone
    assert alone[0] != alone[1]


def test_no_two_samples_draw_the_same(Loader):
    drawn = [row for batch in Loader(Drawing(), batch_size=4, seed_by="sample") for row in np.asarray(batch["n"])[:, 0]]
    assert len(set(drawn)) == 13


def test_an_index_that_comes_twice_draws_anew(Loader):
    first, second = values(Loader(Drawing(), batch_size=1, sampler=[4, 4], seed_by="sample"))
    assert first["i"] == second["i"]
    assert first["n"] != second["n"]


def test_seeding_samples_leaves_the_programs_streams_alone(Loader):
    loader = Loader(Drawing(), batch_size=3, seed_by="sample", **seeded(Loader))
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    list(loader)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


def test_an_iterables_samples_cannot_be_seeded_one_by_one(Loader):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(ValueError, match="seed_by='sample' needs a dataset with __getitem__"):
        Loader(Stream(), seed_by="sample")


# ---- on_error ---------------------------------------------------------------------------------------------------------


class Rotten:
    """Every fifth sample fails."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        if index % 5 == 2:
            raise ValueError(f"cannot decode {index}")
        return np.full(3, index)


def replace(index, error):
    assert isinstance(error, ValueError)
    return np.full(3, -index)


def first_columns(batches):
    return [np.asarray(batch)[:, 0].tolist() for batch in batches]


WORKERS = [0, 2]


@pytest.mark.parametrize("workers", WORKERS)
def test_samples_that_fail_are_left_out_and_counted(Loader, workers):
    loader = Loader(Rotten(), batch_size=4, num_workers=workers, on_error="skip")
    with pytest.warns(RuntimeWarning, match="sample 2 failed .ValueError: cannot decode 2. and was left out"):
        batches = first_columns(loader)
    assert batches == [[0, 1, 3], [4, 5, 6], [8, 9, 10, 11], [13, 14, 15], [16, 18, 19]]
    stats = loader.stats()
    assert stats.errors == 4
    assert [(note.index, note.error, note.replaced) for note in stats.failed] == [
        (index, f"ValueError: cannot decode {index}", False) for index in (2, 7, 12, 17)
    ]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_function_gives_samples_for_those_that_fail(Loader, workers):
    loader = Loader(Rotten(), batch_size=4, num_workers=workers, on_error=replace)
    with pytest.warns(RuntimeWarning, match="was replaced"):
        batches = first_columns(loader)
    assert [abs(number) for batch in batches for number in batch] == list(range(20))
    assert batches[0] == [0, 1, -2, 3]
    assert [note.replaced for note in loader.stats().failed] == [True] * 4


@pytest.mark.parametrize("workers", WORKERS)
def test_a_batch_of_nothing_but_failures_is_left_out(Loader, workers):
    loader = Loader(Rotten(), batch_sampler=[[0], [2, 7], [1]], num_workers=workers, on_error="skip")
    with pytest.warns(RuntimeWarning):
        assert first_columns(loader) == [[0], [1]]
    assert loader.stats().errors == 2


@pytest.mark.parametrize("workers", WORKERS)
def test_single_samples_that_fail_are_left_out(Loader, workers):
    loader = Loader(Rotten(), batch_size=None, num_workers=workers, on_error="skip")
    with pytest.warns(RuntimeWarning):
        assert [int(sample[0]) for sample in loader] == [n for n in range(20) if n % 5 != 2]


def gather(samples):
    return np.concatenate(samples)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_collate_fn_gets_the_samples_that_worked(Loader, workers):
    loader = Loader(Rotten(), batch_size=4, num_workers=workers, on_error="skip", collate_fn=gather)
    with pytest.warns(RuntimeWarning):
        assert [len(batch) for batch in loader] == [9, 9, 12, 9, 9]


class Together(Rotten):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_dataset_that_gives_many_at_once_is_asked_one_by_one_after_a_failure(Loader, workers):
    loader = Loader(Together(), batch_size=4, num_workers=workers, on_error="skip")
    with pytest.warns(RuntimeWarning):
        assert first_columns(loader)[:2] == [[0, 1, 3], [4, 5, 6]]
    assert [note.index for note in loader.stats().failed] == [2, 7, 12, 17]


class Faltering:
    """An iterator that fails now and then and goes on."""

    def __init__(self):
        self.at = -1

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at == 10:
            raise StopIteration
        if self.at % 4 == 1:
            raise OSError("hiccup")
        return np.full(3, self.at)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return Faltering()


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_that_fails_and_goes_on_is_asked_again(Loader, workers):
    loader = Loader(Stream(), batch_size=3, num_workers=workers, on_error="skip")
    with pytest.warns(RuntimeWarning, match="a sample of the iterable dataset failed"):
        assert first_columns(loader) == [[0, 2, 3], [4, 6, 7], [8]]
    assert loader.stats().errors == 3


class Raising(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield np.full(3, 0)
        yield np.full(3, 1)
        raise KeyError("torn")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("options", "expected"),
    [({"batch_size": 2}, [[0, 1]]), ({"batch_size": 3}, [[0, 1]]), ({"batch_size": 3, "drop_last": True}, []), ({}, [[0], [1]])],
)
def test_a_failure_at_the_very_end_of_an_iterable_is_counted(Loader, workers, options, expected):
    loader = Loader(Raising(), num_workers=workers, on_error="skip", **options)
    with pytest.warns(RuntimeWarning, match="a generator that raised is at its end") as caught:
        assert first_columns(loader) == expected
    assert caught[0].filename == __file__
    assert loader.stats().errors == 1
    assert loader.stats().failed[0].error == "KeyError: 'torn'"


def test_of_very_many_failures_the_last_are_kept(Loader):
    loader = Loader(Rotten(), batch_sampler=[[2] * 200, [0]], num_workers=1, on_error="skip")
    with pytest.warns(RuntimeWarning):
        assert first_columns(loader) == [[0]]
    assert loader.stats().errors == 200
    assert len(loader.stats().failed) == 64


class Broken(torch.utils.data.IterableDataset):
    def __iter__(self):
        return self

    def __next__(self):
        raise OSError("gone")


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_that_fails_for_ever_is_given_up(Loader, workers):
    loader = Loader(Broken(), batch_size=3, num_workers=workers, on_error="skip")
    with pytest.raises(RuntimeError, match="failed 1000 times in a row"), pytest.warns(RuntimeWarning):
        next(iter(loader))


def fail_to_gather(samples):
    raise ValueError("cannot gather")


def test_an_error_of_a_collate_fn_is_not_blamed_on_a_sample(Loader):
    with Loader(Rotten(), batch_sampler=[[0, 1]], num_workers=1, collate_fn=fail_to_gather) as loader:
        with pytest.raises(ValueError, match="cannot gather") as caught:
            next(iter(loader))
    assert "at sample" not in str(caught.value.__cause__)
    assert "[0, 1]" in str(caught.value.__cause__)


def test_an_option_that_is_assigned_is_checked_at_the_next_pass(Loader):
    loader = Loader(Rotten())
    loader.on_error = "bogus"
    with pytest.raises(ValueError, match="on_error should be 'raise', 'skip' or a function"):
        iter(loader)


@pytest.mark.parametrize("policy", ["ignore", None, 3])
def test_a_policy_is_one_of_three_things(Loader, policy):
    with pytest.raises(ValueError, match="on_error should be 'raise', 'skip' or a function"):
        Loader(Rotten(), on_error=policy)


# ---- __getitem_into__ --------------------------------------------------------------------------------------------------


class InPlace:
    """Writes samples where they belong; makes only its first one by itself."""

    def __init__(self):
        self.made = 0

    def __len__(self):
        return 11

    def __getitem__(self, index):
        self.made += 1
        assert self.made == 1, "the layout is known, samples are to be written in place"
        return {"x": np.full((2, 3), index, np.float32), "y": index, "z": (float(index), index > 3)}

    def __getitem_into__(self, index, out):
        assert list(out) == ["x", "y", "z"]
        out["x"][:] = index
        out["y"][...] = index
        out["z"][0][...] = float(index)
        out["z"][1][...] = index > 3


class Plain(InPlace):
    __getitem_into__ = None

    def __getitem__(self, index):
        self.made = 0
        return super().__getitem__(index)


def described(batch):
    if isinstance(batch, dict):
        return {key: described(value) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch), [described(value) for value in batch]
    return type(batch), batch.dtype, tuple(batch.shape), batch.tolist()


@pytest.mark.parametrize("workers", WORKERS)
def test_a_dataset_may_write_its_samples_into_the_batch(Loader, workers):
    written = [described(batch) for batch in Loader(InPlace(), batch_size=4, num_workers=workers)]
    assert written == [described(batch) for batch in Loader(Plain(), batch_size=4)]


class Slipping(InPlace):
    def __getitem_into__(self, index, out):
        super().__getitem_into__(index, out)
        if index == 5:
            raise ValueError("slipped")


@pytest.mark.parametrize("workers", WORKERS)
def test_a_row_that_was_written_halfway_is_left_out(Loader, workers):
    loader = Loader(Slipping(), batch_size=4, num_workers=workers, on_error="skip")
    with pytest.warns(RuntimeWarning, match="sample 5 failed"):
        assert [np.asarray(batch["y"]).tolist() for batch in loader] == [[0, 1, 2, 3], [4, 6, 7], [8, 9, 10]]


class Telling(InPlace):
    def __getitem_into__(self, index, out):
        return out


class WithText(InPlace):
    def __getitem__(self, index):
        return {"name": "x"}


class Replacing(InPlace):
    def __getitem_into__(self, index, out):
        out["y"] = index  # in the place of the array, not into it


class ReplacingPart(InPlace):
    def __getitem_into__(self, index, out):
        out["z"][0] = index


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Telling, "return None"),
        (WithText, "no place in a row"),
        (Replacing, "does not support item assignment"),
        (ReplacingPart, "does not support item assignment"),
    ],
)
def test_what_cannot_be_written_in_place_is_refused(Loader, dataset, words):
    with pytest.raises(TypeError, match=words):
        list(Loader(dataset(), batch_size=4))


class WithGradient(InPlace):
    def __getitem__(self, index):
        return {"x": torch.ones(3, requires_grad=True), "y": index}


@pytest.mark.parametrize("workers", WORKERS)
def test_a_row_of_a_tensor_with_a_gradient_is_refused(workers):
    with pytest.raises(TypeError, match=r"\{'x': Tensor\(torch.float32, \(3,\)\), 'y': int\} has no place in a row"):
        list(TorchLoader(WithGradient(), batch_size=4, num_workers=workers))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.filterwarnings("ignore:RingLoader. sample 5 failed")
def test_a_substitute_that_does_not_fit_the_rows_is_refused(Loader, workers):
    options = {"on_error": lambda index, error: {"x": np.zeros(7), "y": 0}, "num_workers": workers}
    with pytest.raises(RuntimeError, match=r"sample 5 .*\(7,\)|\(7,\) for sample 5"):
        list(Loader(Slipping(), batch_size=4, **options))


# ---- set_epoch, reset ---------------------------------------------------------------------------------------------------


class Epochs:
    def __init__(self):
        self.epoch = 0
        self.offset = 0

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.epoch * 100 + self.offset + index

    def set_epoch(self, epoch):
        self.epoch = epoch


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_an_epoch_reaches_every_copy_of_the_dataset(Loader, options):
    with Loader(Epochs(), batch_size=4, **options) as loader:
        for epoch in (0, 3, 1):
            loader.set_epoch(epoch)
            assert [np.asarray(batch).tolist() for batch in loader] == [[epoch * 100 + index for index in range(4)]]


class EpochSampler:
    def __init__(self):
        self.calls = []

    def set_epoch(self, epoch):
        self.calls.append(epoch)

    def __iter__(self):
        return iter([self.calls[-1]])

    def __len__(self):
        return 1


def test_an_epoch_reaches_the_sampler_once(Loader):
    sampler = EpochSampler()
    loader = Loader(Epochs(), sampler=sampler)
    loader.set_epoch(2)
    assert sampler.calls == [2]
    assert [np.asarray(batch).tolist() for batch in loader] == [[202]]


def test_after_a_reset_workers_see_the_dataset_as_it_is(Loader):
    dataset = Epochs()
    with Loader(dataset, batch_size=4, num_workers=1, persistent_workers=True) as loader:
        assert next(iter(loader)).tolist() == [0, 1, 2, 3]
        dataset.offset = 50
        assert next(iter(loader)).tolist() == [0, 1, 2, 3]
        loader.reset()
        assert next(iter(loader)).tolist() == [50, 51, 52, 53]
