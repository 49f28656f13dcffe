"""Rows in slots: a batch like the one before takes a short cut, and nothing but time tells."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringbuf import frame
from ringbuf.loader.collate import Stack
from ringbuf.loader.dialect import Arrays
from ringbuf.loader.fetch import PrivateRoom, make_fetcher
from ringbuf.loader.outlet import Draft
from ringbuf.loader.substitute import Substitute

torch = pytest.importorskip("torch", reason="half of these tests are about tensors")
from ringbuf.torch.dialect import Tensors  # noqa: E402

SLOT_BYTES = 1 << 16
both = pytest.mark.parametrize("dialect", [Arrays, Tensors])


class Job:
    seed = None

    def __init__(self, samples):
        self.index = list(samples)


class Given:
    """A dataset whose indices are the samples; an exception is raised."""

    def __getitem__(self, sample):
        if isinstance(sample, Exception):
            raise sample
        return sample


class Slot(bytearray):
    """Stands in for a claim."""

    def __init__(self):
        super().__init__(SLOT_BYTES)
        self.nbytes = SLOT_BYTES

    def commit(self, nbytes):
        self.used = nbytes

    def abort(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass


class Slots:
    """Stands in for an outlet, and keeps what was published."""

    def __init__(self):
        self.last = None

    def claim(self, number, needed_bytes, kind=None):
        self.last = Slot()
        return self.last


def fetcher(dialect, on_error=None):
    substitute = None if on_error is None else Substitute(on_error)
    return make_fetcher(
        Given(),
        iterable=False,
        drop_last=False,
        dialect=dialect,
        collate_fn=dialect.collate,
        batched=True,
        substitute=substitute,
    )


def published(fetcher, samples, slots):
    """The bytes of the frame of a batch."""
    with Draft(slots, 0) as draft:
        draft.publish(fetcher.fetch(Job(samples), draft, private=False), fetcher.report())
    return bytes(slots.last[: slots.last.used])


def parts(content):
    """Header, arrays and tail of a frame. What lies between them is what lay there before."""
    schema, tail, _ = frame._read_header(memoryview(content), True)
    arrays = [content[offset : offset + nbytes] for _, _, offset, nbytes in schema.fields]
    return content[: frame.HEADER_BYTES], arrays, content[tail:]


def published_or_refused(fetcher, samples):
    try:
        return parts(published(fetcher, samples, Slots()))
    except Exception as error:
        return type(error), str(error), fetcher.report()


# ---- the same bytes -------------------------------------------------------------------------------------------------

SHAPES = [(), (3,), (2, 2), (0,), (300,)]
DTYPES = ["f4", "f8", "i8", "u1", "?", "f2", "c8"]


def array(draw, dialect, shape, dtype):
    values = np.array(draw(st.integers(0, 100))) + np.arange(max(np.prod(shape, dtype=int), 1))[: np.prod(shape, dtype=int)]
    made = values.astype(dtype).reshape(shape)
    if draw(st.integers(0, 9)) == 0:
        made = np.asfortranarray(made) if draw(st.booleans()) else np.repeat(made, 2, axis=-1)[..., ::2] if shape else made
    return torch.from_numpy(made.copy("K")) if dialect is Tensors and draw(st.booleans()) else made


LEAVES = {
    "array": lambda draw, dialect, plan: array(draw, dialect, *plan),
    "scalar": lambda draw, dialect, plan: np.dtype(plan[1]).type(draw(st.integers(0, 100))),
    "int": lambda draw, dialect, plan: draw(st.integers(-(2**63), 2**63 - 1)),
    "float": lambda draw, dialect, plan: draw(st.floats()),
    "bool": lambda draw, dialect, plan: draw(st.booleans()),
    "text": lambda draw, dialect, plan: draw(st.text(max_size=3)),
    "large int": lambda draw, dialect, plan: 2**64,
}
LAYOUTS = st.recursive(
    st.tuples(
        st.sampled_from(["array", "array", "scalar", "int", "float", "bool", "text"]),
        st.tuples(st.sampled_from(SHAPES), st.sampled_from(DTYPES)),
    ),
    lambda children: st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["x", "y", 1, (2, 3)]), children, max_size=3),
    ),
    max_leaves=4,
)


def sample_of(draw, dialect, layout, odd):
    """A sample of a layout; one leaf in so many is of another kind, dtype or shape."""
    if isinstance(layout, dict):
        keys = list(layout)
        if draw(st.integers(0, odd)) == 0:
            keys.reverse()
        return {key: sample_of(draw, dialect, layout[key], odd) for key in keys}
    if isinstance(layout, list) or not (layout and isinstance(layout[0], str)):
        return type(layout)(sample_of(draw, dialect, child, odd) for child in layout)
    kind, plan = layout
    if draw(st.integers(0, odd)) == 0:
        kind, plan = draw(st.sampled_from(list(LEAVES))), (plan[0], draw(st.sampled_from(DTYPES)))
    return LEAVES[kind](draw, dialect, plan)


@both
@pytest.mark.filterwarnings("ignore")  # torch gives some of its warnings once alone
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_frames_of_batches_one_after_the_other_are_those_of_each_batch_by_itself(dialect, data):
    layout = data.draw(LAYOUTS, "layout")
    odd = data.draw(st.sampled_from([30, 1000]), "one leaf is odd in")
    on_error = data.draw(st.sampled_from([None, "skip"]), "on_error")
    one_after_the_other = fetcher(dialect, on_error)
    for _ in range(4):
        rows = data.draw(st.sampled_from([3, 3, 3, 2, 1]), "rows")
        samples = [sample_of(data.draw, dialect, layout, odd) for _ in range(rows)]
        if data.draw(st.integers(0, 9)) == 0:
            samples[data.draw(st.integers(0, rows - 1))] = ValueError("no sample")
        alone = published_or_refused(fetcher(dialect, on_error), samples)
        assert published_or_refused(one_after_the_other, samples) == alone


ALIKE = {
    "array": lambda i: np.full(4, i, np.float32),
    "(array, int)": lambda i: (np.full((2, 3), i, np.uint8), i),
    "dict": lambda i: {"x": np.full(4, i, np.float64), "y": [i * 0.5, i > 3], "z": np.int16(i)},
    "tensor": lambda i: torch.full((4,), i),
    "half tensor": lambda i: {"x": torch.full((4, 2), i, dtype=torch.bfloat16), "y": torch.tensor(i)},
}


@pytest.mark.parametrize(
    ("dialect", "make"),
    [(Arrays, make) for name, make in ALIKE.items() if "tensor" not in name] + [(Tensors, make) for make in ALIKE.values()],
)
def test_a_batch_like_the_one_before_is_no_more_than_its_rows(dialect, make, monkeypatch):
    fetch, slots = fetcher(dialect), Slots()
    published(fetch, [make(i) for i in range(4)], slots)
    alone = published(fetcher(dialect), [make(i) for i in range(4, 8)], Slots())

    def no_writer(*arguments, **options):
        raise AssertionError("the batch was put together anew")

    monkeypatch.setattr(frame, "Writer", no_writer)
    assert published(fetch, [make(i) for i in range(4, 8)], slots) == alone


# ---- what another first sample changes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}),
        ({1: 1.5}, {True: 1.5}),
        ({(1, 2): 1.5}, {(1.0, 2.0): 1.5}),
        ([1], (1,)),
        (1, True),
        (1.0, 1),
        (np.zeros(2), np.zeros((2, 1))),
        (np.zeros(2, "f4"), np.zeros(2, ">f4")),
        ([np.zeros(2)], [np.float64(2)]),
        ({"x": 1}, {"x": 1, "y": 2}),
    ],
    ids=repr,
)
def test_another_first_sample_makes_another_layout(one, other):
    fetch = fetcher(Arrays)
    for sample in (one, other, one):
        got = frame.read(published(fetch, [sample] * 3, Slots()), pickle=True)
        want = frame.read(published(fetcher(Arrays), [sample] * 3, Slots()), pickle=True)
        assert repr(got) == repr(want)


def test_a_wider_dtype_lasts_for_its_batch_alone():
    fetch = fetcher(Arrays)
    narrow, wide = np.zeros(2, "f4"), np.full(2, 0.1)
    batches = [[narrow] * 3, [narrow, wide, narrow], [narrow] * 3]
    got = [frame.read(published(fetch, batch, Slots())) for batch in batches]
    assert [batch.dtype for batch in got] == ["f4", "f8", "f4"]
    assert got[1][1].tolist() == wide.tolist()


def test_a_function_registered_with_torch_meanwhile_is_called(monkeypatch):
    from torch.utils.data._utils import collate as theirs

    fetch = fetcher(Tensors)
    sample = {"x": torch.ones(2)}
    published(fetch, [sample] * 2, Slots())
    monkeypatch.setitem(theirs.default_collate_fn_map, torch.Tensor, lambda batch, *, collate_fn_map: "theirs")
    assert frame.read(published(fetch, [sample] * 2, Slots()), imports=True) == {"x": "theirs"}


def test_tensors_are_read_without_torchs_newer_way_to_look_at_them(monkeypatch):
    """Older versions of torch have no such function."""
    monkeypatch.delattr(torch.Tensor, "__dlpack_c_exchange_api__", raising=False)
    want = [torch.arange(6.0).reshape(2, 3) + i for i in range(3)]
    want[1] = want[1].T.contiguous().T
    batch = frame.read(published(fetcher(Tensors), want, Slots()), imports=True)
    assert torch.equal(batch, torch.stack(want))


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_a_batch_that_was_handed_out_is_not_written_to_again():
    fetch = make_fetcher(
        Given(), iterable=False, drop_last=False, dialect=Arrays, collate_fn=Arrays.collate, batched=True
    )
    first = fetch.fetch(Job([np.full(4, i) for i in range(3)]), PrivateRoom(), private=True)
    second = fetch.fetch(Job([np.full(4, i + 10) for i in range(3)]), PrivateRoom(), private=True)
    assert first[:, 0].tolist() == [0, 1, 2] and second[:, 0].tolist() == [10, 11, 12]
    array = weakref.ref(second)
    del second
    gc.collect()
    assert array() is None


def test_a_slot_is_let_go_with_its_batch():
    fetch, slots = fetcher(Arrays), Slots()
    for _ in range(3):
        published(fetch, [np.ones(4)] * 2, slots)
        slot = weakref.ref(slots.last)
        slots.last = None
        gc.collect()
        assert slot() is None


@pytest.mark.parametrize("make", [lambda buffer: buffer, torch.from_numpy], ids=["array", "tensor"])
@both
def test_a_buffer_used_again_is_right_in_every_batch(dialect, make):
    buffer = np.zeros(5)

    class Reuses:
        def __getitem__(self, index):
            buffer[:] = index
            return make(buffer)

    fetch = make_fetcher(
        Reuses(), iterable=False, drop_last=False, dialect=dialect, collate_fn=dialect.collate, batched=True
    )
    for begin in (0, 3, 6):
        batch = frame.read(published(fetch, range(begin, begin + 3), Slots()), imports=True)
        assert np.asarray(batch)[:, 0].tolist() == [begin, begin + 1, begin + 2]


# ---- rows and their array -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row_shape", [(3,), (100, 7), (300, 300), (1200, 1200)])
def test_a_row_is_filled_and_no_other(row_shape):
    stack = Stack(np.zeros(row_shape), rows=4)
    out = np.zeros((4, *row_shape))
    stack.allocate(lambda shape, dtype: out)
    stack.filled = 2
    sample = np.random.default_rng(1).random(row_shape)
    stack.fill([sample])
    assert np.array_equal(out[2], sample)
    assert not out[[0, 1, 3]].any()


def test_rows_keep_to_their_array():
    stack = Stack(np.zeros(4, np.uint8), rows=2)
    with pytest.raises(IndexError, match="row 0 of 0"):
        stack.fill([np.zeros(4, np.uint8)])
    stack.allocate(np.empty)
    with pytest.raises(IndexError, match="row 2 of 2"):
        stack.fill([np.zeros(4, np.uint8)] * 3)
    stack.filled = -1
    with pytest.raises(IndexError, match="row -1 of 2"):
        stack.fill([np.zeros(4, np.uint8)])
    with pytest.raises(ValueError, match="2 rows of 4 bytes at 60 of a slot of 64 bytes"):
        stack.place(bytearray(64), (60,))
    with pytest.raises(IndexError):
        stack.place(bytearray(64), ())
    with pytest.raises(BufferError):
        stack.place(bytes(64), (0,))
    with pytest.raises(ValueError, match="C-contiguous"):
        stack.allocate(lambda shape, dtype: np.empty(shape[::-1], dtype).T)
