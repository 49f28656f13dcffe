"""dispatch="pull": idle workers help with the first batch of a pass, and nothing of what comes out tells of it."""

import collections
import errno
import gc
import multiprocessing
import os
import random
import re
import signal
import weakref

import numpy as np
import pytest
from loader_data import OneBuffer, Together, listed
from mines import Once, die
from processes import DEADLINE_S, forked

import ringbuf
from ringbuf import WorkerDied, get_worker_info
from ringbuf.loader import sharing
from ringbuf.loader.iterator import Settings
from ringbuf.loader.outlet import Draft
from ringbuf.loader.sharing import Offer, SharedBatch, Unusual, plain
from ringbuf.loader.tasks import Inbox

torch = pytest.importorskip("torch")
from ringbuf.torch import RingLoader as TorchLoader  # noqa: E402

FORKED = {"dispatch": "pull", "multiprocessing_context": "fork"}
LOADERS = {"arrays": ringbuf.RingLoader, "tensors": TorchLoader}

pytestmark = [
    pytest.mark.filterwarnings("ignore:This .*Loader .*num_workers|This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:RingLoader. sample"),
]


@pytest.fixture(params=LOADERS)
def Loader(request):
    return LOADERS[request.param]


@pytest.fixture(autouse=True)
def cheap_samples_are_worth_it(monkeypatch):
    monkeypatch.setattr(sharing, "WORTH_S", 0.0)


def seeded(Loader, seed=5):
    return {"generator": seed if Loader is ringbuf.RingLoader else torch.Generator().manual_seed(seed)}


class Shared:
    """Sample i is make(i). The first batch's maker goes on when another worker has begun with the last row of it: one that has
    a batch of its own to make, so there must be two."""

    def __init__(self, make, *, length=11, rows=4, method="fork"):
        self.make, self.length, self.rows = make, length, rows
        self.begun = multiprocessing.get_context(method).Event()
        if rows < 2 or length <= rows:
            self.begun.set()

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.meet(index)
        return self.make(index)

    def meet(self, index):
        info = get_worker_info()
        if info is None or info.num_workers == 1:
            return
        if index == 0:
            assert self.begun.wait(DEADLINE_S)
        elif index == min(self.rows, self.length) - 1:
            self.begun.set()


class Written(Shared):
    """The same, in place."""

    def __getitem_into__(self, index, out):
        self.meet(index)
        lay(self.make(index), out)


def lay(value, out):
    if isinstance(value, dict):
        for key in value:
            lay(value[key], out[key])
    elif isinstance(value, (tuple, list)):
        for part, place in zip(value, out, strict=True):
            lay(part, place)
    elif isinstance(out, torch.Tensor):
        out.copy_(torch.as_tensor(value, dtype=out.dtype))  # of a float it makes a float32
    else:
        out[...] = value


def exact(value):
    """All that is to be the same of a batch, comparable."""
    if isinstance(value, torch.Tensor):
        bits = value.detach().contiguous().view(-1).view(torch.uint8) if value.numel() else value
        return "tensor", value.dtype, tuple(value.shape), value.requires_grad, bits.tolist()
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return type(value), [(key, exact(part)) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [exact(part) for part in value]
    return type(value), value


def outcomes(loader, passes=1):
    """What some passes give, errors in their place."""
    got = []
    for _ in range(passes):
        iterator = iter(loader)
        while True:
            try:
                got.append(exact(next(iterator)))
            except StopIteration:
                break
            except Exception as error:
                # Of one that cannot be sent the text tells which worker met with it, and where in our files.
                got.append((type(error), re.split(r" in DataLoader worker process ", str(error))[0]))
    return got


def pulled(Loader, dataset, batch_size=4, *, num_workers=2, passes=1, **options):
    options = {"dispatch": "pull", "seed_by": "sample", "multiprocessing_context": "fork", **seeded(Loader), **options}
    with Loader(dataset, batch_size, num_workers=num_workers, **options) as loader:
        return outcomes(loader, passes), loader.stats()


def undivided(Loader, dataset, batch_size=4, **options):
    """The same where each batch has one maker."""
    dataset.begun.set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Settings, "divided", False)
        return pulled(Loader, dataset, batch_size, **options)


def alone(Loader, dataset, batch_size=4, *, passes=1, **options):
    """The same without workers."""
    with Loader(dataset, batch_size, seed_by="sample", **seeded(Loader), **options) as loader:
        return outcomes(loader, passes), loader.stats()


# ---- the same batches -------------------------------------------------------------------------------------------

Point = collections.namedtuple("Point", "x y")


def drawn(index):
    return np.random.rand(7, 5).astype(np.float32) + index


SAMPLES = {
    "array": drawn,
    "numbers": lambda index: (index, random.random(), index % 2 == 0),
    "dict": lambda index: {"x": drawn(index), "n": index, "inner": {"y": np.arange(3) * index}},
    "tuple": lambda index: (drawn(index), index, np.float32(random.random()), np.int64(index)),
    "list": lambda index: [drawn(index), [index, drawn(index)]],
    "point": lambda index: Point(drawn(index), index),
    "default dict": lambda index: collections.defaultdict(int, x=drawn(index)),
    "text": lambda index: {"s": f"sample {index}", "x": drawn(index)},
    "bytes": lambda index: (str(index).encode(), index),
    "0-d": lambda index: np.array(index, np.int16),
    "complex": lambda index: np.full(3, index + 1j, np.complex64),
    "uint8": lambda index: np.random.randint(0, 255, (4, 4), np.uint8),
    "bool": lambda index: np.arange(3) == index,
    "fortran": lambda index: np.asfortranarray(drawn(index)),
    "backwards": lambda index: drawn(index)[::-1],
    "nothing in it": lambda index: np.empty((0, 3)),
    "large int": lambda index: 10**30 if index == 3 else index,
    "int, then float": lambda index: index if index < 2 else index + 0.5,
    "another dtype": lambda index: np.full(3, index, np.int32 if index < 2 else np.float64),
    "another shape": lambda index: np.full(3 + (index == 2), index),
    "another key": lambda index: {"x": index} if index < 2 else {"y": index},
    "None": lambda index: None,
    "date": lambda index: np.datetime64("2020-01-01") + index,
    "big-endian": lambda index: np.full(3, index, ">i4"),
    "tensor": lambda index: torch.rand(3, 4) + index,
    "bfloat16": lambda index: (torch.full((3,), index, dtype=torch.bfloat16), index),
    "channels last": lambda index: torch.rand(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "gradient": lambda index: torch.full((2,), float(index), requires_grad=True),
    "conjugate": lambda index: torch.full((2,), index + 1j).conj(),
    "0-d tensor": lambda index: {"n": torch.tensor(index)},
}


@pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES.keys())
def test_batches_are_those_of_one_maker(Loader, make):
    got, _ = pulled(Loader, Shared(make))
    want, _ = undivided(Loader, Shared(make))
    assert got == want


@pytest.mark.parametrize("num_workers", [1, 2, 3, 5])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("length", "rows"), [(11, 4), (8, 8), (3, 4), (12, 2), (5, 1)], ids=str)
def test_however_many_rows_and_workers(num_workers, drop_last, length, rows):
    dataset = Shared(SAMPLES["dict"], length=length, rows=rows)
    options = {"drop_last": drop_last}
    if drop_last and length < 2 * rows:
        dataset.begun.set()
    got, _ = pulled(ringbuf.RingLoader, dataset, rows, num_workers=num_workers, **options)
    assert got == alone(ringbuf.RingLoader, dataset, rows, **options)[0]


@pytest.mark.parametrize("each", [2, 3])
def test_portions_of_several_rows(Loader, monkeypatch, each):
    monkeypatch.setattr(sharing, "MOST_PORTIONS", -(-20 // each))
    dataset = Shared(SAMPLES["tuple"], length=45, rows=20)
    assert pulled(Loader, dataset, 20, num_workers=3)[0] == alone(Loader, dataset, 20)[0]


def index_and_draw(index):
    return index, np.random.rand(3)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_start_method(Loader, method):
    dataset = Shared(index_and_draw, method=method)
    got, _ = pulled(Loader, dataset, multiprocessing_context=method, passes=2, persistent_workers=True)
    assert got == alone(Loader, Shared(index_and_draw), passes=2)[0]


def test_a_buffer_that_is_handed_out_again_and_again(Loader, monkeypatch):
    monkeypatch.setattr(sharing, "MOST_PORTIONS", 4)
    dataset = Shared(OneBuffer().__getitem__, length=20, rows=12)
    with Loader(dataset, 12, num_workers=2, **FORKED) as loader:
        assert [batch[:, 0].tolist() for batch in loader] == [list(range(12)), list(range(12, 20))]


@pytest.mark.parametrize(
    "make", [SAMPLES[name] for name in ("array", "numbers", "dict", "tuple", "0-d", "tensor", "bfloat16")]
)
def test_rows_that_are_written_in_place(Loader, make):
    if Loader is ringbuf.RingLoader and isinstance(make(0), tuple) and isinstance(make(0)[0], torch.Tensor):
        pytest.skip("numpy has no bfloat16")
    dataset = Written(make)
    got, _ = pulled(Loader, dataset, num_workers=3, passes=2, persistent_workers=True)
    assert got == alone(Loader, dataset, passes=2)[0]


class Uneven(Written):
    """Row 2 is larger where a worker asks for a whole sample."""

    def __getitem__(self, index):
        self.meet(index)
        return np.full(3 + (index == 3), index)

    def __getitem_into__(self, index, out):
        out[...] = index


def test_a_row_that_does_not_fit_its_batch_is_written_anew(Loader):
    got = [batch.tolist() for batch in Loader(Uneven(None, length=8), 4, num_workers=2, **FORKED)]
    assert got[0] == [[n, n, n] for n in range(4)]


def test_huge_samples_are_not_there_twice(Loader, monkeypatch):
    monkeypatch.setattr(sharing, "MOST_BYTES", 1000)
    dataset = Shared(SAMPLES["array"])
    assert pulled(Loader, dataset)[0] == alone(Loader, dataset)[0]


def test_where_there_are_no_locks_nobody_helps(Loader, monkeypatch):
    def refuse(*arguments):
        raise OSError(38, "no locks here")

    monkeypatch.setattr(sharing.fcntl, "lockf", refuse)
    dataset = Shared(SAMPLES["array"])
    dataset.begun.set()
    assert pulled(Loader, dataset)[0] == alone(Loader, dataset)[0]


# ---- who makes it -----------------------------------------------------------------------------------------------


def maker(index):
    return get_worker_info().id


@pytest.mark.parametrize("seed_by", ["worker", "sample"])
def test_several_workers_have_a_part_in_the_first_batch(Loader, seed_by):
    dataset = Shared(maker, length=16, rows=8)
    with Loader(dataset, 8, num_workers=2, seed_by=seed_by, **FORKED) as loader:
        first = next(iter(loader)).tolist()
    assert first[0] != first[-1]
    assert set(first) == {0, 1}


def test_all_workers_may_have_a_part(monkeypatch):
    with ringbuf.RingLoader(AllMeet(4), 4, num_workers=4, **FORKED) as loader:
        assert sorted(next(iter(loader)).tolist()) == [0, 1, 2, 3]


class AllMeet:
    """Nobody goes on with his sample of the first batch before all have begun with one."""

    def __init__(self, workers):
        self.barrier = multiprocessing.get_context("fork").Barrier(workers)

    def __len__(self):
        return 32

    def __getitem__(self, index):
        if index < 4:
            self.barrier.wait(DEADLINE_S)
        return get_worker_info().id


def test_each_pass_of_persistent_workers_begins_together():
    dataset = Shared(maker, length=16, rows=8)
    with ringbuf.RingLoader(dataset, 8, num_workers=2, persistent_workers=True, **FORKED) as loader:
        for _ in range(3):
            dataset.begun.clear()
            first, _ = (batch.tolist() for batch in loader)
            assert set(first) == {0, 1}


def test_a_pass_of_one_batch_has_one_maker():
    with ringbuf.RingLoader(Shared(maker, length=8, rows=8), 8, num_workers=2, **FORKED) as loader:
        (batch,) = loader
    assert len(set(batch.tolist())) == 1


def test_samples_that_cost_nothing_are_not_handed_over(monkeypatch):
    monkeypatch.setattr(sharing, "WORTH_S", 60.0)
    dataset = Shared(maker, length=16, rows=8)
    with ringbuf.RingLoader(dataset, 8, num_workers=2, **FORKED) as loader:
        first = next(iter(loader)).tolist()
    assert first.count(first[-1]) == 1  # to see what they cost


class Counted(Shared):
    """Counts how often each sample is asked for."""

    def __init__(self, make, **options):
        super().__init__(make, **options)
        self.counts = [multiprocessing.get_context("fork").Value("i") for _ in range(self.length)]

    def __getitem__(self, index):
        with self.counts[index]:
            self.counts[index].value += 1
        return super().__getitem__(index)


def test_each_sample_is_made_once(Loader):
    dataset = Counted(SAMPLES["tuple"], length=40, rows=16)
    pulled(Loader, dataset, 16, num_workers=3)
    assert [count.value for count in dataset.counts] == [1] * 40


@pytest.mark.parametrize(
    ("dataset", "batch_size", "options"),
    [
        (Together(), 4, {}),
        (list(range(9)), None, {}),
        (list(range(9)), 4, {"collate_fn": listed}),
        (list(range(9)), 4, {"dispatch": "static"}),
        (list(range(9)), 4, {"dispatch": "static", "in_order": False}),
        (list(range(9)), 4, {"num_workers": 1}),
    ],
    ids=["__getitems__", "no batches", "collate_fn", "by turns", "out of order", "one worker"],
)
def test_what_cannot_be_divided_is_not(dataset, batch_size, options):
    options = {"num_workers": 2, **FORKED, **options}
    with ringbuf.RingLoader(dataset, batch_size, **options) as loader:
        iterator = iter(loader)
        assert iterator._offer is None
        assert sum(np.size(batch) for batch in iterator) in (9, 20)


def test_nothing_is_left_of_it_when_the_batch_comes():
    # Else its maker would end what has begun meanwhile: the next one.
    dataset = Shared(SAMPLES["array"], length=8)
    with ringbuf.RingLoader(dataset, 4, num_workers=2, persistent_workers=True, **FORKED) as loader:
        for _ in range(20):
            dataset.begun.clear()
            iterator = iter(loader)
            next(iterator)
            assert os.fstat(iterator._offer.fileno()).st_size == 0
            list(iterator)


# ---- what goes wrong --------------------------------------------------------------------------------------------


class Failing(Shared):
    def __getitem__(self, index):
        self.meet(index)
        if index in (2, 3, 9):
            raise ValueError(f"no sample {index}")
        return super().__getitem__(index)


class FailingInPlace(Failing):
    def __getitem_into__(self, index, out):
        lay(self[index], out)


def test_an_error_is_that_of_its_first_row_and_names_it(Loader):
    with Loader(Failing(index_and_draw), 4, num_workers=2, **FORKED) as loader:
        iterator = iter(loader)
        with pytest.raises(ValueError, match="no sample 2") as caught:
            next(iterator)
        account = str(caught.value.__cause__)
        assert "at sample 2, while it made the batch of indices [0, 1, 2, 3]" in account
        assert "in __getitem__" in account
        assert next(iterator)[0].tolist() == [4, 5, 6, 7]
        with pytest.raises(ValueError, match="no sample 9"):
            next(iterator)
        assert list(iterator) == []


def test_of_a_row_that_somebody_else_made_it_is_told_where_it_does_not_fit():
    dataset = Shared(lambda index: np.zeros(3 + (index == 3)))
    with ringbuf.RingLoader(dataset, 4, num_workers=2, **FORKED) as loader:
        with pytest.raises(RuntimeError, match="sample 3") as caught:
            next(iter(loader))
    assert "at sample 3, while it made the batch of indices [0, 1, 2, 3]" in str(caught.value.__cause__)


def test_later_batches_are_nobody_elses(monkeypatch):
    over, sample, made = SharedBatch.over, SharedBatch.sample, []

    def refuse_from_now_on(batch):
        made.append(batch)
        over(batch)

    def checked(batch, place):
        assert batch not in made
        return sample(batch, place)

    monkeypatch.setattr(SharedBatch, "over", refuse_from_now_on)
    monkeypatch.setattr(SharedBatch, "sample", checked)
    with ringbuf.RingLoader(Shared(index_and_draw, length=60), 4, num_workers=2, **FORKED) as loader:
        assert [n for batch in loader for n in batch[0].tolist()] == list(range(60))


def replacement(index, error):
    return index + 100, np.full(3, len(str(error)), float)


@pytest.mark.parametrize("policy", ["skip", replacement], ids=["skip", "replace"])
@pytest.mark.parametrize("kind", [Failing, FailingInPlace], ids=["samples", "rows"])
def test_samples_that_fail_are_passed_over_once(Loader, kind, policy):
    got, stats = pulled(Loader, kind(index_and_draw), on_error=policy)
    want, plain_stats = alone(Loader, kind(index_and_draw), on_error=policy)
    assert got == want
    assert stats.errors == plain_stats.errors == 3
    assert sorted(stats.failed) == sorted(plain_stats.failed)


def test_a_batch_of_which_nothing_is_left(Loader):
    class Nothing(Shared):
        def __getitem__(self, index):
            self.meet(index)
            if index < 4:
                raise ValueError(index)
            return index

    got, stats = pulled(Loader, Nothing(None), on_error="skip")
    assert got == alone(Loader, Nothing(None), on_error="skip")[0]
    assert len(got) == 2 and stats.errors == 4


# Moments at which what a worker leaves behind is different from before.
HELPERS = {
    "it begins to help": (SharedBatch, "help", True),
    "it makes a row": (SharedBatch, "_make", True),
    "it has made a row": (SharedBatch, "_write", True),
    "it has written a row": (SharedBatch, "_note", True),
    "it has said so": (SharedBatch, "_note", False),
    "it has made all": (SharedBatch, "help", False),
}
MAKERS = {
    "it begins": (SharedBatch, "sample", True),
    "it has a row": (SharedBatch, "sample", False),
    "it has all rows": (SharedBatch, "over", True),
    "it has ended it": (SharedBatch, "over", False),
    "it publishes": (Draft, "publish", True),
    "it has published": (Draft, "publish", False),
    "its task is done": (Inbox, "done", True),
}


def trap(monkeypatch, folder, dataset, owner, name, before, nth=1):
    """Kill the first worker that comes here for the nth time. Whoever waits for it goes on."""
    once, function, steps = Once(folder), getattr(owner, name), []

    def mined(*arguments, **options):
        if before:
            step()
        result = function(*arguments, **options)
        if not before:
            step()
        return result

    def step():
        steps.append(None)
        if len(steps) == nth and once("dead"):
            dataset.begun.set()
            die()

    monkeypatch.setattr(owner, name, mined)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(("owner", "name", "before"), HELPERS.values(), ids=HELPERS.keys())
def test_who_dies_while_helping_is_replaced_and_changes_nothing(tmp_path, monkeypatch, owner, name, before, nth):
    if name == "help" and nth == 2:
        pytest.skip("once in a pass")
    dataset = Shared(index_and_draw, length=50, rows=8)
    trap(monkeypatch, tmp_path, dataset, owner, name, before, nth)
    got, stats = pulled(ringbuf.RingLoader, dataset, 8, on_worker_death="restart")
    assert got == alone(ringbuf.RingLoader, dataset, 8)[0]
    assert os.path.exists(tmp_path / "dead")
    assert stats.restarts <= 1  # none, where others have done all that was left


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize(("owner", "name", "before"), MAKERS.values(), ids=MAKERS.keys())
def test_who_dies_making_it_is_replaced_and_changes_nothing(tmp_path, monkeypatch, owner, name, before, nth):
    dataset = Shared(index_and_draw, length=50, rows=8)
    trap(monkeypatch, tmp_path, dataset, owner, name, before, nth)
    got, stats = pulled(ringbuf.RingLoader, dataset, 8, on_worker_death="restart", num_workers=3)
    assert got == alone(ringbuf.RingLoader, dataset, 8)[0]
    assert stats.restarts <= 1


def first_of(batch):
    return batch[0].tolist()


@pytest.mark.parametrize(("owner", "name", "before"), HELPERS.values(), ids=HELPERS.keys())
def test_the_first_batch_comes_although_a_helper_died(tmp_path, monkeypatch, owner, name, before):
    dataset = Shared(index_and_draw, length=48, rows=8)
    trap(monkeypatch, tmp_path, dataset, owner, name, before)
    with ringbuf.RingLoader(dataset, 8, num_workers=2, **FORKED) as loader:
        iterator = iter(loader)
        got = [first_of(next(iterator))]
        with pytest.raises(WorkerDied) as caught:
            for batch in iterator:
                got.append(first_of(batch))
    assert got[0] == list(range(8))
    assert got == sorted(got) and all(batch == list(range(batch[0], batch[0] + 8)) for batch in got)
    assert caught.value.exitcode == -signal.SIGKILL
    assert len(caught.value.indices) == 8 and caught.value.indices not in got


@pytest.mark.parametrize(("owner", "name", "before"), list(MAKERS.values())[:5], ids=list(MAKERS)[:5])
def test_whose_maker_died_is_named(tmp_path, monkeypatch, owner, name, before):
    dataset = Shared(index_and_draw, length=48, rows=8)
    trap(monkeypatch, tmp_path, dataset, owner, name, before)
    with ringbuf.RingLoader(dataset, 8, num_workers=2, **FORKED) as loader:
        with pytest.raises(WorkerDied) as caught:
            list(loader)
    assert caught.value.exitcode == -signal.SIGKILL
    assert len(caught.value.indices) == 8
    if owner is SharedBatch:  # whoever publishes first may have made another batch
        assert caught.value.indices == list(range(8))


class Deadly(Shared):
    """A sample that kills whoever makes it, always."""

    def __getitem__(self, index):
        self.meet(index)
        if index == 3:
            die()
        return index


def test_a_sample_that_kills_helpers_and_makers_ends_the_pass():
    with ringbuf.RingLoader(
        Deadly(None), 4, num_workers=2, on_worker_death="restart", max_restarts=3, **FORKED
    ) as loader:
        with pytest.raises(WorkerDied):
            list(loader)
        assert loader.stats().restarts == 3


class DrawsAndDies:
    """Sample i is a random number. Who has helped dies when it begins with a batch of its own; whoever takes its place makes
    a batch in any case."""

    helps = makes = False

    def __init__(self, folder):
        self.once = Once(folder)
        self.helped, self.replaced = (multiprocessing.get_context("fork").Event() for _ in range(2))

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 0:
            self.makes = True
            assert self.helped.wait(DEADLINE_S)
        elif index >= 8 and self.helps and self.once("dead"):
            die()
        elif index >= 8 and self.makes:
            assert self.replaced.wait(DEADLINE_S)
        elif index >= 8 and not self.helps:
            self.replaced.set()
        elif not self.makes:
            self.helps = True
            if index == 1:
                self.helped.set()
        return np.random.randint(1 << 40)


def test_who_takes_the_place_of_one_that_had_helped_draws_other_numbers(tmp_path):
    options = {"on_worker_death": "restart", **seeded(ringbuf.RingLoader), **FORKED}
    with ringbuf.RingLoader(DrawsAndDies(tmp_path), 8, num_workers=2, **options) as loader:
        drawn = [n for batch in loader for n in batch.tolist()]
        assert loader.stats().restarts == 1
    assert len(set(drawn)) == len(drawn) == 64


class Stops(Shared):
    """Whoever makes the last row for somebody else is stopped."""

    def __init__(self, **options):
        super().__init__(None, **options)
        self.stopped = multiprocessing.get_context("fork").Value("i")

    def __getitem__(self, index):
        if index == self.rows - 1 and not self.stopped.value:
            self.stopped.value = os.getpid()
            self.begun.set()
            os.kill(os.getpid(), signal.SIGSTOP)
        self.meet(index)
        return index


def test_a_helper_that_is_stopped_holds_nobody_up():
    dataset = Stops(length=12)
    with ringbuf.RingLoader(dataset, 4, num_workers=2, timeout=DEADLINE_S, **FORKED) as loader:
        iterator = iter(loader)
        try:
            assert next(iterator).tolist() == [0, 1, 2, 3]
        finally:
            os.kill(dataset.stopped.value, signal.SIGCONT)
        assert [batch.tolist() for batch in iterator] == [[4, 5, 6, 7], [8, 9, 10, 11]]


# ---- passes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
def test_passes_that_are_broken_off_leave_nothing_to_the_next(Loader, persistent):
    dataset = Shared(index_and_draw, length=40)
    with Loader(dataset, 4, num_workers=3, persistent_workers=persistent, **FORKED) as loader:
        for cut in (0, 1, 0, 3, 1):
            dataset.begun.clear() if not persistent else dataset.begun.set()
            iterator = iter(loader)
            for number in range(cut):
                assert next(iterator)[0].tolist() == list(range(4 * number, 4 * number + 4))
        assert [n for batch in loader for n in batch[0].tolist()] == list(range(40))


@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_a_pass_that_goes_on_from_a_state_begins_together_too(Loader, after):
    dataset = Shared(index_and_draw, length=40)
    dataset.begun.set()
    options = {"num_workers": 2, "seed_by": "sample", "shuffle": True, **FORKED}
    with Loader(dataset, 4, **seeded(Loader), **options) as loader:
        whole = [exact(batch) for batch in loader]
    with Loader(dataset, 4, **seeded(Loader), **options) as loader:
        iterator = iter(loader)
        got = [exact(next(iterator)) for _ in range(after)]
        state = loader.state_dict()
        iterator.close()
    with Loader(dataset, 4, **seeded(Loader, 99), **{**options, "num_workers": 3}) as loader:
        loader.load_state_dict(state)
        got += [exact(batch) for batch in loader]
    assert got == whole


class Epochs(Shared):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        self.meet(index)
        return self.epoch * 100 + index


def test_helpers_know_of_the_epoch():
    dataset = Epochs(None, length=8)
    with ringbuf.RingLoader(dataset, 4, num_workers=2, persistent_workers=True, **FORKED) as loader:
        for epoch in range(3):
            dataset.begun.clear()
            loader.set_epoch(epoch)
            assert [n for batch in loader for n in batch.tolist()] == [epoch * 100 + n for n in range(8)]


# ---- its parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sample",
    [
        None,
        {1: 2},
        object(),
        np.ma.masked_array([1]),
        np.array(["text"]),
        np.arange(4)[::2],
        np.empty(0),
        torch.empty(0),
        torch.ones(2, requires_grad=True),
        torch.ones(4)[::2],
        torch.eye(2).to_sparse(),
        torch.nn.Parameter(torch.ones(1)),
        Point(1, 2),
    ],
    ids=lambda sample: type(sample).__name__,
)
def test_what_might_arrive_as_something_else_is_not_sent(sample):
    for nested in (sample, [sample], {"x": (1, sample)}):
        with pytest.raises(Unusual):
            plain(nested, copy=False)


def test_copies_are_ones_own():
    sample = {"x": (np.zeros(3), torch.zeros(3), 1, "text")}
    copied = plain(sample, copy=True)
    assert exact(copied) == exact(sample)
    sample["x"][0][:] = 1
    sample["x"][1][:] = 1
    assert copied["x"][0].tolist() == copied["x"][1].tolist() == [0, 0, 0]
    assert plain(sample, copy=False)["x"][0] is sample["x"][0]


def offered(rows=6):
    from ringbuf.loader._course import Job, pack

    offer = Offer()
    index = list(range(10, 10 + rows))
    offer.make(7, index, pack(Job(0, index)))
    return offer


def taken(offer):
    class Post:
        def wait_for(self, wanted):
            assert wanted(["shared"])
            return ["shared"], [offer.fileno()]

        def look(self):
            pass

    return sharing.Table(Post()).look()


def make(job, places):
    for place in places:
        yield job.index[place], np.full(2, place)


@pytest.mark.parametrize("portions", [1, 2, 3, 4, 5, 8])
def test_portions_are_all_rows_but_those_of_the_first(monkeypatch, portions):
    monkeypatch.setattr(sharing, "MOST_PORTIONS", portions)
    offer = offered(8)
    assert forked(lambda: taken(offer).help(make)) == 0
    shared = taken(offer)
    given = [shared.sample(place) for place in range(8)]
    each = -(-8 // portions)
    assert given[:each] == [None] * each
    assert [sample[0] for (sample,) in given[each:]] == [10 + n for n in range(each, 8)]


def test_what_others_have_made_lies_there_for_the_maker():
    offer = offered()
    assert forked(lambda: taken(offer).help(make)) == 0
    shared = taken(offer)
    assert shared.number == 7
    given = [shared.sample(place) for place in range(6)]
    assert given[0] is None  # the first row is never anybody else's
    assert [exact(sample) for (sample,) in given[1:]] == [exact((10 + n, np.full(2, n))) for n in range(1, 6)]
    shared.over()
    assert taken(offer) is None


@pytest.mark.parametrize("lost", ["content", "record"])
def test_what_was_not_written_to_its_end_is_made_again(lost):
    offer = offered()
    assert forked(lambda: taken(offer).help(make)) == 0
    shared = taken(offer)
    if lost == "content":
        os.ftruncate(offer.fileno(), 5 * sharing.STRIDE + 8)
    else:
        shared._note(5, sharing.NOT_THERE)
    assert [shared.sample(place) is None for place in range(6)] == [True, False, False, False, False, True]


def test_what_somebody_died_of_no_third_one_tries():
    offer, tried = offered(), []

    def dies(job, places):
        if places[0] == 4:
            die()
        return make(job, places)

    def notes(job, places):
        tried.extend(places)
        return make(job, places)

    assert forked(lambda: taken(offer).help(dies)) == -signal.SIGKILL
    taken(offer).help(notes)
    assert tried == [3, 2, 1]
    shared = taken(offer)
    assert [shared.sample(place) is None for place in range(6)] == [True, False, False, False, True, False]


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EPERM, errno.EACCES], ids=errno.errorcode.get)
def test_where_there_are_no_locks_nobody_is_waited_for(monkeypatch, code):
    asked = []

    def refuse(*arguments):
        asked.append(arguments)
        raise OSError(code, "no locks here")

    shared = taken(offered())
    monkeypatch.setattr(sharing.fcntl, "lockf", refuse)
    assert [shared.sample(place) for place in range(6)] == [None] * 6
    assert len(asked) == 5
    shared.help(make)
    assert len(asked) == 6


def test_nothing_is_kept_of_a_batch_that_is_over():
    offer = offered(2)
    assert forked(lambda: taken(offer).help(make)) == 0
    shared = taken(offer)
    assert shared.sample(0) is None
    last = weakref.ref(shared.sample(1)[0][1])
    shared.over()
    gc.collect()
    assert last() is None


def test_a_batch_that_is_made_while_somebody_looks_is_not_there(monkeypatch):
    offer, read, reads = offered(), os.pread, []

    def interrupted(descriptor, nbytes, at):
        got = read(descriptor, nbytes, at)
        if not reads:  # its maker fails, and somebody is too late
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"late", 5 * sharing.STRIDE)
        reads.append(at)
        return got

    monkeypatch.setattr(os, "pread", interrupted)
    assert taken(offer) is None
    assert sharing.JOB in reads


def test_what_failed_is_tried_by_nobody_else():
    tried = []

    def fail(job, places):
        tried.extend(places)
        raise ValueError

    offer = offered()
    taken(offer).help(fail)
    taken(offer).help(fail)
    assert tried == [5, 4]  # once each, and then they had enough
    shared = taken(offer)
    assert [shared.sample(place) for place in range(6)] == [None] * 6


def test_nobody_helps_with_what_is_made():
    offer = offered()
    late = taken(offer)
    taken(offer).over()
    late.help(make)
    assert os.fstat(offer.fileno()).st_size == 0


def test_who_is_too_late_leaves_nothing():
    offer = offered()

    def slow(job, places):
        taken(offer).over()
        yield from make(job, places)

    taken(offer).help(slow)
    assert os.fstat(offer.fileno()).st_size <= sharing.JOB
    assert taken(offer) is None


def test_two_rows_are_the_fewest():
    assert taken(offered(1)) is None
    assert taken(offered(2)) is not None
