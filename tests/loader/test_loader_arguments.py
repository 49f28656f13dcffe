"""What a loader accepts, refuses, shows and fixes; torch's own loader is asked the same where it has the option."""

import copy
import multiprocessing
import pickle

import numpy as np
import pytest
from loader_data import Numbered, Stream, numbers_in

from ringbuf import Dataset, IterableDataset, RingLoader

torch = pytest.importorskip("torch", reason="the oracle of some of these tests is torch")
TorchLoader = torch.utils.data.DataLoader


class TorchMap(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


class TorchIterable(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(4))


REFUSED = {
    "workers": ({"num_workers": -1}, ValueError, "should be non-negative"),
    "timeout": ({"timeout": -1}, ValueError, "timeout option"),
    "prefetch without workers": ({"prefetch_factor": 2}, ValueError, "could only be specified in multiprocessing"),
    "negative prefetch": ({"num_workers": 1, "prefetch_factor": -1}, ValueError, "prefetch_factor option"),
    "persistence without workers": ({"persistent_workers": True}, ValueError, "needs num_workers > 0"),
    "context without workers": ({"multiprocessing_context": "fork"}, ValueError, "can only be used with"),
    "unknown context": ({"num_workers": 1, "multiprocessing_context": "x"}, ValueError, "valid start method"),
    "context of a wrong type": ({"num_workers": 1, "multiprocessing_context": 3}, TypeError, "valid context"),
    "sampler and shuffle": ({"sampler": [1], "shuffle": True}, ValueError, "mutually exclusive with shuffle"),
    "batch sampler and size": ({"batch_sampler": [[1]], "batch_size": 2}, ValueError, "mutually exclusive"),
    "batch sampler and shuffle": ({"batch_sampler": [[1]], "shuffle": True}, ValueError, "mutually exclusive"),
    "batch sampler and sampler": ({"batch_sampler": [[1]], "sampler": [1]}, ValueError, "mutually exclusive"),
    "batch sampler and drop_last": ({"batch_sampler": [[1]], "drop_last": True}, ValueError, "mutually exclusive"),
    "no batches and drop_last": ({"batch_size": None, "drop_last": True}, ValueError, "mutually exclusive"),
    "batch size 0": ({"batch_size": 0}, ValueError, "positive integer value"),
    "batch size 1.5": ({"batch_size": 1.5}, ValueError, "positive integer value"),
    "batch size True": ({"batch_size": True}, ValueError, "positive integer value"),
}


@pytest.mark.parametrize("Loader", [TorchLoader, RingLoader])
@pytest.mark.parametrize(("options", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_torch_refuses_is_refused_with_its_words(Loader, options, error, words):
    with pytest.raises(error, match=words):
        Loader(TorchMap(), **options)


@pytest.mark.parametrize("Loader", [TorchLoader, RingLoader])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shuffle": True}, "unspecified shuffle option"),
        ({"shuffle": 1}, "unspecified shuffle option"),
        ({"sampler": [1]}, "unspecified sampler option"),
        ({"batch_sampler": [[1]]}, "unspecified batch_sampler option"),
    ],
)
def test_an_iterable_dataset_takes_no_sampler(Loader, options, words):
    with pytest.raises(ValueError, match=words):
        Loader(TorchIterable(), **options)


@pytest.mark.parametrize("Loader", [TorchLoader, RingLoader])
def test_an_empty_dataset_can_be_read_but_not_shuffled(Loader):
    assert len(Loader([])) == 0
    assert list(Loader([])) == []
    with pytest.raises(ValueError, match="num_samples"):
        Loader([], shuffle=True)


@pytest.mark.filterwarnings("ignore:Exception ignored in.*_MultiProcessingDataLoaderIter")  # torch's own
@pytest.mark.parametrize("Loader", [TorchLoader, RingLoader])
@pytest.mark.parametrize("options", [{"timeout": 1}, {"num_workers": 1, "prefetch_factor": 0}], ids=str)
def test_some_nonsense_is_found_out_by_iter(Loader, options):
    loader = Loader(TorchMap(), **options)
    with pytest.raises(AssertionError):
        iter(loader)


@pytest.mark.parametrize("name", ["slots", "slot_bytes", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "4", 1 << 80])
def test_ring_options_are_positive_ints(name, value):
    if name != "slots" and value == 1 << 80:
        return  # only memory limits these
    with pytest.raises(ValueError, match=f"{name} should be a positive int"):
        RingLoader([1], **{name: value})


def test_given_slots_must_fit_max_bytes():
    loader = RingLoader([1], num_workers=1, slots=4, slot_bytes=1000, max_bytes=3999)
    with pytest.raises(ValueError, match="max_bytes=3999"):
        iter(loader)


@pytest.mark.parametrize(
    ("name", "values", "other"),
    [
        ("dispatch", ["static", "pull"], "push"),
        ("on_worker_death", ["raise", "restart"], "ignore"),
        ("max_restarts", [3, 0, 1], -1),
        ("max_restarts", [3, 0, 1], True),
        ("seed_by", ["worker", "sample"], "batch"),
    ],
)
def test_options_of_a_few_values_say_which(name, values, other):
    assert getattr(RingLoader([1]), name) == values[0]
    for value in values:
        assert getattr(RingLoader([1], **{name: value}), name) == value
    with pytest.raises(ValueError, match=f"{name} should be .*got {other!r}"):
        RingLoader([1], **{name: other})


# ---- attributes -------------------------------------------------------------------------------------------------

PUBLIC = (
    "dataset batch_size num_workers prefetch_factor pin_memory pin_memory_device timeout worker_init_fn "
    "multiprocessing_context in_order drop_last sampler batch_sampler generator collate_fn persistent_workers"
).split()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 3, "drop_last": True},
        {"batch_size": None},
        {"batch_sampler": [[0]]},
        {"num_workers": 2, "timeout": 3, "persistent_workers": True, "prefetch_factor": 5, "in_order": False},
    ],
    ids=str,
)
def test_attributes_have_torchs_names_and_values(options):
    theirs, ours = TorchLoader(TorchMap(), **options), RingLoader(TorchMap(), **options)
    for name in PUBLIC:
        if name not in ("dataset", "sampler", "batch_sampler", "collate_fn"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert (getattr(ours, name) is None) == (getattr(theirs, name) is None), name
    assert set(PUBLIC) - {"multiprocessing_context"} <= vars(ours).keys()


def test_ring_options_are_attributes_too():
    loader = RingLoader([1], slots=5, slot_bytes=6, max_bytes=700)
    assert (loader.slots, loader.slot_bytes, loader.max_bytes) == (5, 6, 700)


def test_a_loader_can_be_made_anew_from_its_attributes():
    loader = RingLoader(Numbered(9), 2, shuffle=True, generator=4, num_workers=1, slots=9)
    names = [name for name in PUBLIC if name not in ("batch_size", "sampler", "drop_last")]
    again = RingLoader(**{name: getattr(loader, name) for name in [*names, "slots", "slot_bytes", "max_bytes"]})
    assert sorted(number for batch in again for number in numbers_in(batch)) == list(range(9))


@pytest.mark.parametrize("Loader", [TorchLoader, RingLoader])
@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_what_is_fixed_after_construction_says_so(Loader, name):
    loader = Loader(TorchMap())
    with pytest.raises(ValueError, match=f"{name} attribute should not be set after {Loader.__name__} is initialized"):
        setattr(loader, name, getattr(loader, name))


def test_other_attributes_take_effect_at_the_next_pass():
    loader = RingLoader([1, 2, 3, 4], 2)
    loader.collate_fn = sum
    assert list(loader) == [3, 7]
    loader.num_workers, loader.prefetch_factor = 1, 2
    loader.multiprocessing_context = "spawn"
    assert list(loader) == [3, 7]
    with pytest.raises(ValueError, match="valid start method"):
        loader.multiprocessing_context = "thread"
    loader.close()


@pytest.mark.parametrize("context", ["fork", multiprocessing.get_context("spawn"), None])
def test_a_context_may_be_named_or_given(context):
    loader = RingLoader([1], num_workers=1, multiprocessing_context=context)
    assert loader.multiprocessing_context is (multiprocessing.get_context("fork") if context == "fork" else context)
    assert next(iter(loader)).tolist() == [1]
    loader.close()


def test_pinning_is_kept_and_announced_to_be_without_effect():
    loader = RingLoader([1], pin_memory=True, pin_memory_device="x")
    assert (loader.pin_memory, loader.pin_memory_device) == (True, "x")
    with pytest.warns(UserWarning, match="pin_memory has no effect"):
        assert len(list(loader)) == 1


# ---- kinds of datasets ------------------------------------------------------------------------------------------


def type_name(value):
    return type(value).__name__


@pytest.mark.parametrize("dataset", [[1, 2], "ab", np.arange(2), range(2), TorchMap(), Numbered(), {0: 1}], ids=type_name)
def test_what_can_be_indexed_is_map_style(dataset):
    assert len(RingLoader(dataset)) == len(dataset)


@pytest.mark.parametrize("dataset", [Stream(4), TorchIterable(), (value for value in range(4)), {0, 1, 2, 3}], ids=type_name)
def test_what_can_only_be_iterated_is_iterable_style(dataset):
    batches = list(RingLoader(dataset, 2))
    assert [np.asarray(batch).tolist() for batch in batches] == [[0, 1], [2, 3]]


def test_the_protocols_describe_datasets():
    assert isinstance(Numbered(), Dataset)
    assert isinstance(Stream(3), IterableDataset)
    assert not isinstance(Stream(3), Dataset)


# ---- copies of a loader -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["new", "under way", "persistent", "closed"])
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_is_fresh_and_independent(state, make):
    loader = RingLoader(Numbered(6), 2, num_workers=1, persistent_workers=state == "persistent", slots=9)
    if state != "new":
        iterator = iter(loader)
        next(iterator)
    if state == "closed":
        loader.close()
    with make(loader) as twin:
        assert twin.stats().batches == 0
        assert twin.slots == 9
        assert [numbers_in(batch)[0] for batch in twin] == [0, 2, 4]
    if state in ("under way", "persistent"):
        assert [numbers_in(batch)[0] for batch in iterator] == [2, 4]
    loader.close()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_pass_under_way_cannot_be_pickled(num_workers):
    with RingLoader([1, 2], num_workers=num_workers) as loader:
        with pytest.raises(NotImplementedError, match="cannot be pickled"):
            pickle.dumps(iter(loader))


# ---- lengths ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 6, 7])
@pytest.mark.parametrize("options", [{"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}], ids=str)
def test_length_is_the_number_of_batches(length, options):
    loader = RingLoader(Numbered(length), **options)
    assert len(loader) == len(iter(loader)) == len(list(loader))


def test_length_is_asked_of_a_batch_sampler():
    assert len(RingLoader(Numbered(), batch_sampler=[[1], [2], [3]])) == 3
    with pytest.raises(TypeError):
        len(RingLoader(Numbered(), batch_sampler=iter([[1]])))


