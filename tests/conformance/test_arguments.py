"""The constructor: what it refuses, in which order and words; the attributes of a loader, and which are fixed.

Of torch's own suite: TestDataLoader's argument checks, attributes and excessive workers.
"""

import inspect
import os
import warnings

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from conformance.data import Counting, Numbers, Stream, Strings
from conformance.expect import refuses_to_begin

MAP, EMPTY, ITERABLE = Numbers(10), Numbers(0), Stream(10)
SAMPLER, BATCHES = [0, 1], [[0, 1]]


# In the order in which a loader looks at them.
REFUSED = [
    (MAP, {"num_workers": -1}, ValueError, "num_workers option should be non-negative"),
    (MAP, {"timeout": -1}, ValueError, "timeout option should be non-negative"),
    (MAP, {"prefetch_factor": 2}, ValueError, "could only be specified in multiprocessing"),
    (MAP, {"prefetch_factor": 0}, ValueError, "could only be specified in multiprocessing"),
    (MAP, {"prefetch_factor": -1, "num_workers": 1}, ValueError, "prefetch_factor option should be non-negative"),
    (MAP, {"persistent_workers": True}, ValueError, "persistent_workers option needs num_workers > 0"),
    (MAP, {"multiprocessing_context": "fork"}, ValueError, "multi-process loading"),
    (MAP, {"multiprocessing_context": "nonsense", "num_workers": 1}, ValueError, "valid start method"),
    (MAP, {"multiprocessing_context": object(), "num_workers": 1}, TypeError, "valid context"),
    (ITERABLE, {"shuffle": True}, ValueError, "expected unspecified shuffle option"),
    (ITERABLE, {"shuffle": 3}, ValueError, "expected unspecified shuffle option"),
    (ITERABLE, {"sampler": SAMPLER}, ValueError, "expected unspecified sampler option"),
    (ITERABLE, {"sampler": SequentialSampler(MAP)}, ValueError, "expected unspecified sampler option"),
    (ITERABLE, {"batch_sampler": BATCHES}, ValueError, "expected unspecified batch_sampler option"),
    (MAP, {"sampler": SAMPLER, "shuffle": True}, ValueError, "sampler option is mutually exclusive with shuffle"),
    (MAP, {"batch_sampler": BATCHES, "batch_size": 2}, ValueError, "batch_sampler option is mutually exclusive"),
    (MAP, {"batch_sampler": BATCHES, "batch_size": None}, ValueError, "batch_sampler option is mutually exclusive"),
    (MAP, {"batch_sampler": BATCHES, "shuffle": True}, ValueError, "batch_sampler option is mutually exclusive"),
    (MAP, {"batch_sampler": BATCHES, "sampler": SAMPLER}, ValueError, "batch_sampler option is mutually exclusive"),
    (MAP, {"batch_sampler": BATCHES, "drop_last": True}, ValueError, "batch_sampler option is mutually exclusive"),
    (MAP, {"batch_size": None, "drop_last": True}, ValueError, "mutually exclusive with drop_last"),
    (ITERABLE, {"batch_size": None, "drop_last": True}, ValueError, "mutually exclusive with drop_last"),
    (EMPTY, {"shuffle": True}, ValueError, "num_samples should be a positive integer"),
    (MAP, {"batch_size": 0}, ValueError, "batch_size should be a positive integer value"),
    (MAP, {"batch_size": -1}, ValueError, "batch_size should be a positive integer value"),
    (MAP, {"batch_size": 1.5}, ValueError, "batch_size should be a positive integer value"),
    (MAP, {"batch_size": True}, ValueError, "batch_size should be a positive integer value"),
    (ITERABLE, {"batch_size": 0}, ValueError, "batch_size should be a positive integer value"),
    (MAP, {"batch_size": 2, "drop_last": "yes"}, ValueError, "drop_last should be a boolean value"),
    (MAP, {"no_such_option": 1}, TypeError, "no_such_option"),
]


def named(options):
    return ",".join(f"{name}={getattr(value, '__name__', type(value).__name__)}" for name, value in options.items())


@pytest.mark.parametrize(
    "dataset, options, error, text",
    REFUSED,
    ids=[f"{type(row[0]).__name__}-{named(row[1])}-{number}" for number, row in enumerate(REFUSED)],
)
def test_a_wrong_argument_is_refused_in_known_words(Loader, dataset, options, error, text):
    with pytest.raises(error, match=text):
        Loader(dataset, **options)


@pytest.mark.parametrize(
    "dataset, options, text",
    [
        (MAP, {"num_workers": -1, "timeout": -1}, "num_workers option"),
        (MAP, {"timeout": -1, "prefetch_factor": 2}, "timeout option"),
        (MAP, {"prefetch_factor": 2, "persistent_workers": True}, "could only be specified"),
        (MAP, {"persistent_workers": True, "multiprocessing_context": "fork"}, "persistent_workers option"),
        (ITERABLE, {"multiprocessing_context": "nonsense", "num_workers": 1, "shuffle": True}, "valid start method"),
        (ITERABLE, {"shuffle": True, "sampler": SAMPLER}, "unspecified shuffle"),
        (ITERABLE, {"sampler": SAMPLER, "batch_sampler": BATCHES}, "unspecified sampler"),
        (ITERABLE, {"batch_sampler": BATCHES, "batch_size": None, "drop_last": True}, "unspecified batch_sampler"),
        (MAP, {"sampler": SAMPLER, "shuffle": True, "batch_sampler": BATCHES}, "mutually exclusive with shuffle"),
        (EMPTY, {"batch_size": None, "drop_last": True, "shuffle": True}, "mutually exclusive with drop_last"),
        (EMPTY, {"shuffle": True, "batch_size": 0}, "num_samples"),
        (MAP, {"batch_size": 0, "drop_last": "yes"}, "batch_size should be"),
    ],
)
def test_of_two_wrong_arguments_the_same_one_is_named(Loader, dataset, options, text):
    with pytest.raises(ValueError, match=text):
        Loader(dataset, **options)


def test_arguments_have_the_same_names_places_and_defaults(Loader):
    """Further ones of ours are keyword-only and have defaults."""
    contract = inspect.signature(torch.utils.data.DataLoader).parameters
    found = inspect.signature(Loader).parameters
    positional = [name for name, parameter in contract.items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    assert [name for name, p in found.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == positional
    for name, parameter in contract.items():
        assert (found[name].kind, found[name].default) == (parameter.kind, parameter.default), name
    for name in found.keys() - contract.keys():
        assert found[name].kind is inspect.Parameter.KEYWORD_ONLY and found[name].default is not inspect.Parameter.empty


def test_the_later_options_are_keyword_only(Loader):
    with pytest.raises(TypeError, match="positional"):
        Loader(MAP, 1, None, None, None, 1, None, False, False, 0, None, None, None, 2)


def test_it_is_a_dataloader_to_whoever_asks(Loader):
    assert isinstance(Loader(MAP), torch.utils.data.DataLoader)
    assert type(Loader[int](MAP)) is Loader


# ---- attributes -------------------------------------------------------------------------------------------------


def test_every_argument_is_an_attribute_of_its_name(Loader):
    generator, init, collate = torch.Generator(), print, list
    options = {
        "batch_size": 3,
        "num_workers": 2,
        "collate_fn": collate,
        "pin_memory": True,
        "drop_last": True,
        "timeout": 7,
        "worker_init_fn": init,
        "generator": generator,
        "prefetch_factor": 4,
        "persistent_workers": True,
        "pin_memory_device": "cuda",
        "in_order": False,
    }
    loader = Loader(MAP, **options)
    assert loader.dataset is MAP
    for name, value in options.items():
        assert vars(loader)[name] is value, name


def test_defaults_are_seen_in_the_attributes(Loader):
    loader = Loader(MAP)
    expected = {
        "batch_size": 1,
        "num_workers": 0,
        "pin_memory": False,
        "drop_last": False,
        "timeout": 0,
        "worker_init_fn": None,
        "multiprocessing_context": None,
        "generator": None,
        "prefetch_factor": None,
        "persistent_workers": False,
        "pin_memory_device": "",
        "in_order": True,
        "_iterator": None,
        "_auto_collation": True,
        "_IterableDataset_len_called": None,
    }
    assert {name: getattr(loader, name) for name in expected} == expected
    assert loader.collate_fn is torch.utils.data.default_collate
    assert Loader(MAP, num_workers=1).prefetch_factor == 2


def test_default_samplers_are_torchs(Loader):
    generator = torch.Generator()
    loader = Loader(MAP, 3, shuffle=True, drop_last=True, generator=generator)
    assert type(loader.batch_sampler) is BatchSampler
    assert loader.batch_sampler.sampler is loader.sampler and loader._index_sampler is loader.batch_sampler
    assert (loader.batch_sampler.batch_size, loader.batch_sampler.drop_last) == (3, True)
    assert type(loader.sampler) is RandomSampler
    assert loader.sampler.data_source is MAP and loader.sampler.generator is generator
    assert type(Loader(MAP).sampler) is SequentialSampler


def test_the_sampler_of_an_iterable_dataset_gives_none_for_ever(Loader):
    loader = Loader(ITERABLE, 2)
    indices = iter(loader.sampler)
    assert [next(indices) for _ in range(20)] == [None] * 20
    assert next(iter(loader._index_sampler)) == [None, None]


def test_without_batching_there_is_no_batch_sampler(Loader):
    loader = Loader(MAP, batch_size=None)
    assert (loader.batch_size, loader.batch_sampler, loader._auto_collation) == (None, None, False)
    assert loader._index_sampler is loader.sampler
    assert loader.collate_fn is torch.utils.data.default_convert


def test_a_batch_sampler_takes_the_place_of_size_and_drop_last(Loader):
    loader = Loader(MAP, batch_sampler=BATCHES)
    assert loader.batch_sampler is BATCHES
    assert (loader.batch_size, loader.drop_last) == (None, False)
    assert type(loader.sampler) is SequentialSampler


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_what_samplers_were_made_from_is_frozen(Loader, name):
    class Subclass(Loader):
        pass

    loader = Subclass(MAP, 2)
    before = getattr(loader, name)
    with pytest.raises(ValueError, match=f"{name} attribute should not be set after Subclass is initialized"):
        setattr(loader, name, None)
    assert getattr(loader, name) is before


def test_other_attributes_take_effect_at_the_next_pass(Loader):
    loader = Loader(Counting(4), 2, num_workers=1)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    loader.num_workers = 0
    loader.collate_fn = sum
    assert list(loader) == [1, 5]
    loader.timeout = 1
    refuses_to_begin(loader, AssertionError)


def test_a_context_is_checked_again_when_it_is_set(Loader):
    loader = Loader(MAP, num_workers=1)
    loader.multiprocessing_context = "spawn"
    assert loader.multiprocessing_context.get_start_method() == "spawn"
    with pytest.raises(ValueError, match="valid start method"):
        loader.multiprocessing_context = "nonsense"
    with pytest.raises(TypeError, match="valid context"):
        loader.multiprocessing_context = 1
    assert loader.multiprocessing_context.get_start_method() == "spawn"
    loader.multiprocessing_context = None
    assert loader.multiprocessing_context is None


# ---- what is accepted, and fails later or not at all ------------------------------------------------------------


def test_no_prefetching_fails_when_a_pass_begins(Loader):
    loader = Loader(MAP, num_workers=1, prefetch_factor=0)
    refuses_to_begin(loader, AssertionError)


def test_a_timeout_without_workers_fails_when_a_pass_begins(Loader):
    loader = Loader(MAP, timeout=1)
    refuses_to_begin(loader, AssertionError)


def test_an_empty_dataset_is_an_empty_pass(Loader, num_workers):
    loader = Loader(EMPTY, 3, num_workers=num_workers)
    assert len(loader) == 0
    assert list(loader) == []


@pytest.mark.parametrize("shuffle", [False, None])
def test_an_iterable_dataset_may_be_told_not_to_be_shuffled(Loader, shuffle):
    assert len(list(Loader(ITERABLE, 5, shuffle=shuffle))) == 2


def test_a_string_is_a_dataset_like_any_sequence(Loader):
    assert list(Loader("abcd", 2)) == [["a", "b"], ["c", "d"]]
    assert list(Loader(Strings("xy"), batch_size=None)) == [["x", 0], ["y", 1]]


# ---- more workers than cores ------------------------------------------------------------------------------------


def test_more_workers_than_cores_are_warned_of_at_construction_and_at_each_pass(Loader, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    with pytest.warns(UserWarning, match="worker") as told:
        loader = Loader(Counting(2), num_workers=2)
    assert len(told) == 1
    for _ in range(2):
        with pytest.warns(UserWarning, match="worker") as told:
            iter(loader)
        assert len(told) == 1
    with pytest.warns(UserWarning, match="worker"):
        loader.check_worker_number_rationality()


def test_as_many_workers_as_cores_are_no_reason_to_warn(Loader, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Loader(MAP, num_workers=2)
        Loader(MAP).check_worker_number_rationality()
