"""What cannot be sent is refused with its path, before anything is written."""

import collections
import dataclasses
import enum
import re

import numpy as np
import pytest

from ringbuf import frame

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Sample:
    meta: object


@dataclasses.dataclass
class DictDataclass(dict):
    pass


@dataclasses.dataclass(slots=True)
class Unset:
    value: int = dataclasses.field(init=False)


@dataclasses.dataclass
class Counted:
    items: list

    def __post_init__(self):
        self.count = len(self.items)


@dataclasses.dataclass
class Cleaning:
    path: str

    def __del__(self):
        pass


class PointWithName(Point):
    pass


def named_point():
    point = PointWithName(1, 2)
    point.name = "p"
    return point


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    pass


def local_dataclass():
    @dataclasses.dataclass
    class Local:
        x: int = 1

    return Local()


LEAVES = {
    "object array": np.array([1, "a"], object),
    "object in a struct": np.zeros(2, [("ok", "i4"), ("bad", [("deep", "O", (2,))])]),
    "variable-width strings": np.array(["a", "bc"], np.dtypes.StringDType()),
    "masked array": np.ma.masked_array([1, 2], [0, 1]),
    "masked constant": np.ma.masked,
    "set": {1},
    "function": len,
    "generator": (i for i in ()),
    "plain object": object(),
    "class": Sample,
    "range": range(3),
    "defaultdict": collections.defaultdict(list, a=[1]),
    "dict subclass": type("D", (dict,), {})(),
    "list subclass": type("L", (list,), {})(),
    "tuple subclass": type("T", (tuple,), {})(),
    "str subclass": Text("a"),
    "int subclass": Colour.RED,
    "numpy scalar subclass": type("F", (np.float64,), {})(1),
    "bytearray": bytearray(b"a"),
    "key of an unknown type": {frozenset(): 1},
    "numpy key": {np.int64(1): 1},
    "key with an unknown part": {(1, (Text("a"),)): 1},
    "local dataclass": local_dataclass(),
    "dataclass that is a dict": DictDataclass(),
    "dataclass with a field unset": Unset(),
    "dataclass with more than its fields": Counted([1]),
    "dataclass that cleans up": Cleaning("a"),
    "namedtuple with more than its fields": named_point(),
    "title that is not text": np.zeros(1, [(((1, 2), "a"), "i4")]),
    "number with field names": np.zeros(1, ("i4", [("low", "i2"), ("high", "i2")])),
}


@pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda leaf: leaf, "batch"),
        (lambda leaf: {"n": 1, "meta": [leaf, 2]}, "batch['meta'][0]"),
        (lambda leaf: (0, Point(1, {2: leaf})), "batch[1].y[2]"),
        (lambda leaf: {("a", None): Sample([3, leaf])}, "batch[('a', None)].meta[1]"),
        (lambda leaf: [collections.OrderedDict(k=leaf), {}], "batch[0]['k']"),
    ],
)
def test_a_leaf_that_cannot_be_sent_is_a_type_error_with_its_path(leaf, wrap, path):
    with pytest.raises(TypeError, match="^" + re.escape(path) + " cannot be sent: ."):
        frame.plan(wrap(leaf))


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        ("object in a struct", "field 'bad': field 'deep': object"),
        ("variable-width strings", "fixed width"),
        ("masked array", "mask"),
        ("key of an unknown type", "frozenset"),
        ("local dataclass", "Local"),
        ("dataclass with more than its fields", "not fields: count"),
        ("plain object", "object"),
    ],
)
def test_the_error_says_what_is_wrong(leaf, words):
    with pytest.raises(TypeError, match=words):
        frame.plan([LEAVES[leaf]])


def nested(depth):
    batch = 5
    for _ in range(depth):
        batch = [batch]
    return batch


def test_sixty_four_levels_are_read_back_and_sixty_five_are_refused():
    buffer = bytearray(frame.plan(nested(64)).frame_bytes)
    frame.plan(nested(64)).write(buffer)
    assert frame.read(buffer) == nested(64)
    with pytest.raises(ValueError, match="64 deep"):
        frame.plan(nested(65))


def test_a_container_that_holds_itself_is_refused():
    batch = {}
    batch["again"] = [batch, batch]
    with pytest.raises(ValueError, match=r"batch\['again'\]\[0\]"):
        frame.plan(batch)


def test_a_small_batch_that_unfolds_into_too_many_leaves_is_refused():
    batch = None
    for _ in range(40):
        batch = [batch, batch]
    with pytest.raises(ValueError, match="leaves"):
        frame.plan(batch)


def test_a_schema_beyond_the_readers_limit_is_refused():
    with pytest.raises(ValueError, match="fewer and larger arrays"):
        frame.plan([np.zeros(1)] * 60_000)


def test_a_long_list_of_numbers_is_no_trouble():
    batch = {"index": list(range(300_000)), "name": [str(i) for i in range(300_000)]}
    buffer = bytearray(frame.plan(batch).frame_bytes)
    frame.plan(batch).write(buffer)
    assert frame.read(buffer) == batch
