"""The default conversion, where there is no batching: arrays become tensors, containers what they are in a batch.

Of torch's own suite: TestDataLoader's default conversion of mappings and sequences, and unbatched samples.
"""

import collections

import numpy as np
import pytest
import torch

from conformance.data import Point, Samples, WithMessage
from conformance.expect import drain, same

OBJECTS = np.array([1, "a", None], object)

GIVEN = {  # name: (sample, what is delivered)
    "int": (7, 7),
    "float": (1.5, 1.5),
    "bool": (True, True),
    "complex": (1j, 1j),
    "none": (None, None),
    "str": ("a\N{PILE OF POO}", "a\N{PILE OF POO}"),
    "bytes": (b"\0b\0", b"\0b\0"),
    "numpy str": (np.str_("a"), np.str_("a")),
    "tensor": (torch.arange(6).reshape(2, 3), torch.arange(6).reshape(2, 3)),
    "transposed tensor": (torch.arange(6).reshape(2, 3).T, torch.arange(6).reshape(2, 3).T),
    "array": (np.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3).double()),
    "array without dimensions": (np.array(3.5), torch.tensor(3.5).double()),
    "array of no items": (np.zeros((0, 3), np.int32), torch.zeros(0, 3, dtype=torch.int32)),
    "array of str": (np.array(["a", "bc"]), np.array(["a", "bc"])),
    "array of bytes": (np.array([b"a", b"bc"]), np.array([b"a", b"bc"])),
    "array of objects": (OBJECTS, OBJECTS),
    "numpy float": (np.float32(1.5), torch.tensor(1.5)),
    "numpy bool": (np.bool_(True), torch.tensor(True)),
    "tuple": ((1, np.ones(2)), [1, torch.ones(2).double()]),
    "list": ([1, np.ones(2), "a"], [1, torch.ones(2).double(), "a"]),
    "named tuple": (Point(np.ones(1), Point(1, "a")), Point(torch.ones(1).double(), Point(1, "a"))),
    "dict": ({"b": (1, None), 2: np.ones(1)}, {"b": [1, None], 2: torch.ones(1).double()}),
    "ordered dict": (collections.OrderedDict(b=np.ones(1), a=2), collections.OrderedDict(b=torch.ones(1).double(), a=2)),
    "default dict": (collections.defaultdict(list, a=(1,)), collections.defaultdict(list, a=[1])),
    "user list": (collections.UserList([np.ones(1)]), collections.UserList([torch.ones(1).double()])),
    "range": (range(3), [0, 1, 2]),
    "empty containers": ([{}, [], ()], [{}, [], []]),
    "set": ({1, 2}, {1, 2}),
    "class": (WithMessage, WithMessage),
    "slice": (slice(1, 2), slice(1, 2)),
}

REFUSED = {  # name: (sample, error)
    "array of times": (np.array(["2020-01-01"], "M8[D]"), TypeError),
    "array of records": (np.zeros(2, [("a", "i4")]), TypeError),
}

CASES = {name: row[0] for rows in (GIVEN, REFUSED) for name, row in rows.items()}


@pytest.fixture(scope="module", params=[0, 1], ids=["in_process", "in_a_worker"])
def outcomes(Loader, request):
    """What came of each case: a sample, or an exception."""
    found = drain(iter(Loader(Samples(list(CASES.values())), None, num_workers=request.param)))
    assert len(found) == len(CASES)
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("case", GIVEN)
def test_a_sample_that_is_delivered_alone(outcomes, case):
    expected = GIVEN[case][1]
    if isinstance(outcomes[case], Exception):
        raise outcomes[case]
    assert same(outcomes[case], expected), f"{outcomes[case]!r} is not {expected!r}"


@pytest.mark.parametrize("case", REFUSED)
def test_a_sample_that_has_no_tensor_is_refused(outcomes, case):
    assert isinstance(outcomes[case], REFUSED[case][1])


def test_what_containers_carry_is_kept(outcomes):
    assert outcomes["default dict"].default_factory is list
    assert list(outcomes["dict"]) == ["b", 2]
