"""How samples nest: what comes out has the types, keys and order that torch gives it."""

import collections
import dataclasses
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
from field_data import Given, listed
from field_loaders import NumpyLoader, Theirs, TorchLoader, both, outcomes, same, verdict, workers_or_none

Point = namedtuple("Point", "x y")
Outer = namedtuple("Outer", "inner label")


class Strict(collections.abc.Mapping):
    """A mapping that can be made of nothing but itself."""

    def __init__(self, **data):
        self._data = data

    def __getitem__(self, key):
        return self._data[key]

    def __iter__(self):
        return iter(self._data)

    def __len__(self):
        return len(self._data)


class MyDict(dict):
    pass


class MyList(list):
    pass


@dataclasses.dataclass
class Sample:
    image: object
    label: int


@dataclasses.dataclass(frozen=True)
class Frozen:
    image: object
    label: int = 3


ONES = np.ones(3, np.float32)

CONTAINERS = {
    "named tuple in named tuple": Outer(Point(1, ONES), "a"),
    "OrderedDict": OrderedDict(b=1, a=ONES),
    "defaultdict": defaultdict(list, a=1.5),
    "dict subclass": MyDict(a=1, b="c"),
    "mapping that cannot be rebuilt": Strict(a=1.5),
    "list subclass": MyList([1, ONES]),
    "range": range(3),
    "empty": {"t": (), "d": {}, "l": []},
    "keys of any type": {1: 1.5, (2, "x"): 2.5, "z": 0, "a": 1},
    "text in everything": {"s": "a", "t": ("b", b"c"), "l": ["d"]},
    "deep": [({"p": Point([ONES], {"q": (1, 2.5)})},)],
    "twice the same": [ONES, ONES],
}


@pytest.mark.parametrize("sample", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("batch_size", [2, None])
@workers_or_none
def test_containers_come_as_from_torchs_loader(sample, batch_size, num_workers):
    theirs = list(Theirs(Given([sample] * 3), batch_size))
    with TorchLoader(Given([sample] * 3), batch_size, num_workers=num_workers) as loader:
        assert same(list(loader), theirs)

    def types(value):
        if isinstance(value, collections.abc.Mapping):
            return type(value), list(value), [types(value[key]) for key in value]
        if isinstance(value, (list, tuple, range)):
            return type(value), [types(part) for part in value]
        return None

    with NumpyLoader(Given([sample] * 3), batch_size, num_workers=num_workers) as loader:
        assert [types(batch) for batch in loader] == [types(batch) for batch in theirs]


@both
@pytest.mark.parametrize("sample", [Sample(ONES, 4), Frozen(ONES)], ids=["dataclass", "frozen"])
@pytest.mark.parametrize(
    "options", [{"batch_size": None}, {"batch_size": 1, "collate_fn": listed}], ids=["samples", "collate_fn"]
)
def test_dataclasses_pass_through_and_are_refused_by_the_default_collate(Loader, sample, options):
    with Loader(Given([sample] * 2), num_workers=1, **options) as loader:
        for got in loader:
            (got,) = got if "collate_fn" in options else [got]
            assert type(got) is type(sample)
            assert same(np.asarray(got.image), sample.image) and got.label == sample.label
    with Loader(Given([sample] * 2), 2, num_workers=1) as loader:
        (error,) = outcomes(iter(loader))
    assert type(error) is TypeError


# ---- None ---------------------------------------------------------------------------------------------------------

WITH_NONE = {
    "in a dict": [{"x": ONES, "y": None}] * 2,
    "alone": [None, None],
    "in a list": [[1, None]] * 2,
    "after a number": [1, None],
    "before a number": [None, 1],
    "in some samples": [{"y": 1.5}, {"y": None}],
}


@both
@workers_or_none
@pytest.mark.parametrize("samples", WITH_NONE.values(), ids=WITH_NONE)
def test_none_is_refused_by_the_default_collate_with_torchs_type(Loader, num_workers, samples):
    with Loader(Given(samples), 2, num_workers=num_workers) as loader:
        (error,) = outcomes(iter(loader))
    assert type(error) is (verdict(lambda: list(Theirs(Given(samples), 2))) if Loader is TorchLoader else TypeError)
    if Loader is NumpyLoader and isinstance(samples[0], dict) and num_workers:
        assert "'y'" in str(error)


@both
@workers_or_none
@pytest.mark.parametrize("samples", WITH_NONE.values(), ids=WITH_NONE)
def test_none_arrives_unbatched_and_from_a_collate_fn(Loader, num_workers, samples):
    def nones(value):
        if isinstance(value, dict):
            return {key: nones(part) for key, part in value.items()}
        return [nones(part) for part in value] if isinstance(value, list) else value is None

    with Loader(Given(samples), None, num_workers=num_workers) as loader:
        assert [nones(sample) for sample in loader] == [nones(sample) for sample in samples]
    with Loader(Given(samples), 2, num_workers=num_workers, collate_fn=listed) as loader:
        assert [nones(batch) for batch in loader] == [nones(samples)]


def nothing(samples):
    return None


@both
@workers_or_none
def test_a_collate_fn_may_return_none_each_time(Loader, num_workers):
    with Loader(Given([1, 2, 3, 4]), 2, num_workers=num_workers, collate_fn=nothing) as loader:
        assert list(loader) == [None, None]
