"""Where a loader is can be saved and loaded: the batches that follow are those of an undisturbed run."""

import contextlib
import io
import pickle
import random
import resource
import sys
import threading
from itertools import chain

import numpy as np
import pytest

import ringbuf
from ringbuf.loader._course import Course
from ringbuf.loader.state import step_back

torch = pytest.importorskip("torch")
from ringbuf.torch import RingLoader as TorchLoader  # noqa: E402


class Squares:
    """Sample i: i, and a random number of the worker's."""

    def __init__(self, length=23):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index, np.random.rand()


class Counting(torch.utils.data.IterableDataset):
    """0, 1, 2, ..., shared out between the workers of torch's kind."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info() or ringbuf.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 20, step))


LOADERS = {"arrays": ringbuf.RingLoader, "tensors": TorchLoader}


@pytest.fixture(params=LOADERS)
def make(request):
    """Makes a loader of either kind that shuffles by a seed of its own."""

    def make(seed=7, **options):
        options = {"batch_size": 3, "shuffle": True, **options}
        generator = seed if request.param == "arrays" else torch.Generator().manual_seed(seed)
        return LOADERS[request.param](options.pop("dataset", None) or Squares(), generator=generator, **options)

    return make


def indices(batches):
    return [[int(index) for index in batch[0]] for batch in batches]


def passes(loader, count):
    return [indices(loader) for _ in range(count)]


def saved_after(loader, batches):
    """The state after so many batches of a pass, having gone through pickle."""
    iterator = iter(loader)
    seen = indices(next(iterator) for _ in range(batches))
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    del iterator
    return seen, state


@pytest.mark.parametrize("batches", [0, 1, 5, 7, 8])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 0), (0, 2), (2, 1)])
def test_a_loader_goes_on_where_another_stopped_whatever_the_number_of_workers(make, batches, before, after):
    whole = passes(make(), 3)
    first = make(num_workers=before)
    assert indices(first) == whole[0]
    seen, state = saved_after(first, batches)
    assert seen == whole[1][:batches]
    second = make(seed=1, num_workers=after, prefetch_factor=3 if after else None)
    second.load_state_dict(state)
    assert indices(second) == whole[1][batches:]
    assert indices(second) == whole[2]


def test_a_state_saved_after_the_end_begins_the_next_pass(make):
    whole = passes(make(), 3)
    first = make(num_workers=1)
    assert indices(first) == whole[0]
    second = make(seed=1)
    second.load_state_dict(first.state_dict())
    assert passes(second, 2) == whole[1:]


def test_a_state_saved_before_the_beginning_begins_the_first_pass(make):
    second = make(seed=1)
    second.load_state_dict(make().state_dict())
    assert passes(second, 2) == passes(make(), 2)


def same(left, right):
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@pytest.mark.parametrize("batches", [0, 4, 8])
def test_a_state_that_was_just_loaded_is_the_state(make, batches):
    _, state = saved_after(make(), batches)
    second = make(seed=1)
    second.load_state_dict(state)
    assert same(second.state_dict(), state)


def test_the_state_is_taken_twice_in_a_pass_and_both_times_exact(make):
    whole = passes(make(), 1)[0]
    _, state = saved_after(make(num_workers=2), 2)
    second = make(seed=1, num_workers=1)
    second.load_state_dict(state)
    seen, state = saved_after(second, 3)
    assert seen == whole[2:5]
    third = make(seed=2)
    third.load_state_dict(state)
    assert indices(third) == whole[5:]


def test_persistent_workers_go_on_from_a_state(make):
    whole = passes(make(num_workers=2, persistent_workers=True), 3)
    with make(num_workers=2, persistent_workers=True) as first:
        assert indices(first) == whole[0]
        _, state = saved_after(first, 3)
    with make(seed=1, num_workers=2, persistent_workers=True) as second:
        assert len(indices(second)) == 8  # its workers live already
        second.load_state_dict(state)
        assert indices(second) == whole[1][3:]
        assert indices(second) == whole[2]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
@pytest.mark.parametrize(("epoch", "position"), [(0, 0), (0, 1), (0, 7), (1, 0), (1, 5), (2, 8), (3, 0), (3, 3)])
def test_a_loader_goes_to_any_place_of_any_pass(make, options, epoch, position):
    """Wherever it was meanwhile, and goes on from there as if it had come there by itself."""
    whole = passes(make(**options), 5)
    with make(**options) as loader:
        since = loader.state_dict()
        saved_after(loader, 2)
        loader.go_to(epoch, position, since=since)
        assert passes(loader, 2) == [whole[epoch][position:], whole[epoch + 1]]
        loader.go_to(epoch, position, since=since)
        assert passes(loader, 1) == [whole[epoch][position:]]


def test_where_it_goes_samples_are_seeded_as_they_were(make):
    def numbers(batches):
        return [[float(number) for number in batch[1]] for batch in batches]

    first = make(seed_by="sample")
    whole = [numbers(first) for _ in range(3)]
    second = make(seed_by="sample", num_workers=2)
    second.go_to(2, 3, since=second.state_dict())
    assert numbers(second) == whole[2][3:]


def test_a_place_in_a_pass_over_an_iterable_dataset(make):
    options = {"dataset": Counting(), "shuffle": None, "num_workers": 2}
    whole = [batch.tolist() for batch in make(**options)]
    loader = make(**options)
    loader.go_to(1, 3, since=loader.state_dict())
    assert [batch.tolist() for batch in loader] == whole[3:]


def test_samplers_are_told_each_epoch_that_is_passed_over(make):
    class Told:
        epochs = ()

        def set_epoch(self, epoch):
            self.epochs = (*self.epochs, epoch)
            self._order = np.random.default_rng(epoch).permutation(23).tolist()

        def __iter__(self):
            return iter(self._order)

        def __len__(self):
            return 23

    def loader():
        return make(shuffle=None, sampler=Told())

    first, whole = loader(), []
    for epoch in range(3):
        first.set_epoch(epoch)
        whole.append(indices(first))
    second = loader()
    second.go_to(2, 4, since=second.state_dict())
    assert set(second.sampler.epochs) == {0, 1, 2}
    assert indices(second) == whole[2][4:]


def test_out_of_order_each_batch_comes_once(make):
    first = make(num_workers=2, in_order=False)
    seen, state = saved_after(first, 5)
    second = make(seed=1, num_workers=1, in_order=False)
    second.load_state_dict(state)
    assert sorted(seen + indices(second)) == sorted(passes(make(), 1)[0])


def test_with_samples_seeded_one_by_one_the_random_numbers_go_on_as_well(make):
    def numbers(batches):
        return [[float(number) for number in batch[1]] for batch in batches]

    whole = numbers(make(seed_by="sample"))
    first = make(seed_by="sample", num_workers=2)
    iterator = iter(first)
    seen = numbers(next(iterator) for _ in range(3))
    second = make(seed=1, seed_by="sample", num_workers=1)
    second.load_state_dict(first.state_dict())
    assert seen + numbers(second) == whole


def test_an_iterable_dataset_goes_on_where_it_stopped(make):
    options = {"dataset": Counting(), "shuffle": None, "num_workers": 2}
    whole = [batch.tolist() for batch in make(**options)]
    first = make(**options)
    iterator = iter(first)
    seen = [next(iterator).tolist() for _ in range(3)]
    second = make(**options)
    second.load_state_dict(first.state_dict())
    assert seen + [batch.tolist() for batch in second] == whole
    with pytest.raises(ValueError, match="num_workers=2, this loader has 0"):
        make(**{**options, "num_workers": 0}).load_state_dict(first.state_dict())


class FailsOnItsWay:
    """0, 1, an error, 3, 4, 5."""

    def __init__(self):
        self.next = iter(range(6)).__next__

    def __iter__(self):
        return self

    def __next__(self):
        number = self.next()
        if number == 2:
            raise KeyError("two")
        return number


class FailingIterable(torch.utils.data.IterableDataset):
    def __iter__(self):
        return FailsOnItsWay()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("taken", [3, 4])
def test_an_error_that_was_seen_is_not_seen_again(make, workers, taken):
    def outcomes(iterator, count):
        seen = []
        for _ in range(count):
            try:
                seen.append(int(next(iterator)))
            except KeyError:
                seen.append("error")
        return seen

    options = {"dataset": FailingIterable(), "shuffle": None, "batch_size": None, "num_workers": workers}
    first = make(**options)
    assert outcomes(iter(first), taken) == [0, 1, "error", 3][:taken]
    second = make(**options)
    second.load_state_dict(first.state_dict())
    assert list(map(int, second)) == [3, 4, 5][taken - 3 :]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_without_a_length_has_a_state(make, workers):
    class Endless:
        def __iter__(self):
            return iter(range(0, 20, 2))

        def __len__(self):
            raise NotImplementedError

    options = {"shuffle": None, "sampler": Endless(), "num_workers": workers}
    first = make(**options)
    next(iter(first))
    second = make(**options)
    second.load_state_dict(first.state_dict())
    assert indices(second) == [[6, 8, 10], [12, 14, 16], [18]]


class Uneven(torch.utils.data.IterableDataset):
    """More of the second worker than of the first."""

    def __iter__(self):
        return iter(range([5, 13][ringbuf.get_worker_info().id]))


@pytest.mark.parametrize("options", [{}, {"dataset": Uneven(), "shuffle": None}], ids=["samples by index", "iterable"])
def test_a_state_can_be_taken_back_by_some_batches(make, options):
    loader = make(batch_size=2, num_workers=2, **options)
    states = [loader.state_dict()]
    for _ in loader:
        states.append(loader.state_dict())
        for batches, then in enumerate(reversed(states)):
            back = step_back(states[-1], batches)
            for part in ("position", "owed"):
                assert back[part] == then[part]
            assert [count for count in back["by_worker"] if count] == then["by_worker"]
    assert len(states) > 8


def test_the_state_is_exact_while_another_thread_takes_batches():
    course, delivered = Course(range(30_000)), [0]
    under_way = [next(course).batch for _ in range(500)]

    def take():
        for job in course:
            under_way.append(job.batch)
            course.deliver(under_way.pop(len(under_way) // 2))  # out of order
            delivered[0] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=take)
    try:
        thread.start()
        while thread.is_alive():
            at_least = delivered[0]
            progress = course.progress()
            assert at_least <= progress.position - len(progress.owed) <= delivered[0] + 1
    finally:
        sys.setswitchinterval(interval)
        thread.join()


def test_the_state_is_small_whatever_the_dataset(make):
    sizes = []
    for length in (100, 100_000):
        loader = make(dataset=Squares(length), batch_size=10)
        iterator = iter(loader)
        for _ in range(10):
            next(iterator)
        sizes.append(len(pickle.dumps(loader.state_dict())))
    assert abs(sizes[1] - sizes[0]) < 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch_size": 4}, "batch_size=3, this loader has 4"),
        ({"dataset": Squares(50)}, "8 batches, this loader's has 17"),
        ({"seed_by": "sample"}, "seed_by='worker', this loader has 'sample'"),
        ({"shuffle": False}, "order of a RandomSampler, this loader's sampler is a SequentialSampler"),
    ],
)
def test_what_cannot_be_continued_is_refused_and_the_loader_stays_as_it_was(make, change, words):
    loader = make(**change)
    with pytest.raises(ValueError, match=words):
        loader.load_state_dict(make().state_dict())
    assert passes(loader, 1) == passes(make(**change), 1)


@pytest.mark.parametrize("part", [None, "version", "epoch", "source", "owed", "loader"])
def test_something_else_is_no_state(make, part):
    state = {} if part is None else make().state_dict()
    state.pop(part, None)
    state["position"] = 3
    with pytest.raises(ValueError, match="not the state of a RingLoader: it lacks .*" + (part or "version")):
        make().load_state_dict(state)


def test_a_state_of_what_is_no_loader_is_refused(make):
    state = make().state_dict()
    state["loader"] = {"batch_size": 3, "horses": 2}
    with pytest.raises(ValueError, match=r"not the state of a RingLoader: .*'horses'"):
        make().load_state_dict(state)


def test_a_state_of_another_version_is_refused(make):
    with pytest.raises(ValueError, match="version 2, but version 1"):
        make().load_state_dict({"version": 2, "whereabouts": 17})


def test_the_lack_of_a_state_is_no_state(make):
    with pytest.raises(TypeError, match="state should be the dict"):
        make().load_state_dict(None)


def test_an_empty_state_changes_nothing(make):
    loader = make()
    loader.load_state_dict({})
    assert passes(loader, 1) == passes(make(), 1)


def test_torchs_global_stream_is_restored_by_loading_and_left_alone_by_going_on():
    torch.manual_seed(3)
    first = TorchLoader(Squares(), batch_size=3, shuffle=True)
    iterator = iter(first)
    seen = indices([next(iterator)])
    state = first.state_dict()
    rest, following = indices(iterator), indices(first)
    torch.manual_seed(99)
    second = TorchLoader(Squares(), batch_size=3, shuffle=True)
    second.load_state_dict(state)
    before = torch.get_rng_state()
    iterator = iter(second)
    resumed = indices(iterator)
    assert torch.equal(torch.get_rng_state(), before)
    assert (resumed, indices(second)) == (rest, following)
    assert len(seen) == 1


class Stateful:
    """A sampler with a state of its own: where the next pass begins."""

    def __init__(self):
        self.start = 0

    def __iter__(self):
        start, self.start = self.start, self.start + 1
        return iter([(start + place) % 23 for place in range(23)])

    def __len__(self):
        return 23

    def state_dict(self):
        return {"start": self.start}

    def load_state_dict(self, state):
        self.start = state["start"]


@pytest.mark.parametrize("kind", LOADERS)
def test_a_sampler_with_a_state_is_taken_along(kind):
    def make():
        return LOADERS[kind](Squares(), batch_size=3, sampler=Stateful())

    whole = passes(make(), 3)
    first = make()
    assert indices(first) == whole[0]
    _, state = saved_after(first, 4)
    second = make()
    second.load_state_dict(state)
    assert indices(second) == whole[1][4:]
    assert indices(second) == whole[2]


def test_a_sampler_with_a_state_keeps_it_between_passes():
    first = TorchLoader(Squares(), batch_size=3, sampler=Stateful())
    whole = passes(TorchLoader(Squares(), batch_size=3, sampler=Stateful()), 2)
    assert indices(first) == whole[0]
    second = TorchLoader(Squares(), batch_size=3, sampler=Stateful())
    second.load_state_dict(first.state_dict())
    assert indices(second) == whole[1]


class Ordered:
    """A batch sampler of somebody's own, which draws its order when it begins (at_once), or when it is first asked."""

    def __init__(self, draw, at_once=True):
        self.draw = draw
        self.at_once = at_once

    def __len__(self):
        return 8

    def __iter__(self):
        return self._batches(self.draw()) if self.at_once else self._batches(None)

    def _batches(self, order):
        order = self.draw() if order is None else order
        for start in range(0, 23, 3):
            yield order[start : start + 3]


class Lazy:
    """A batch sampler that draws each batch when it is asked for it."""

    def __len__(self):
        return 8

    def __iter__(self):
        for _ in range(8):
            yield torch.randint(23, (3,)).tolist()


def generator(seed):
    return torch.Generator().manual_seed(seed)


OTHER_STREAMS = {
    "a weighted sampler without a generator": lambda seed: {
        "sampler": torch.utils.data.WeightedRandomSampler([1.0] * 23, 23),
        "batch_size": 3,
        "generator": generator(seed),
    },
    "a sampler with a generator of its own": lambda seed: {
        "sampler": torch.utils.data.RandomSampler(range(23), replacement=True, num_samples=100, generator=generator(seed)),
        "batch_size": 3,
    },
    "numpy's sampler in a loader for numpy": lambda seed: {
        "sampler": ringbuf.loader.RandomSampler(range(23), generator=np.random.default_rng(seed)),
        "batch_size": 3,
    },
    "torch's sampler in a loader for numpy": lambda _: {"sampler": torch.utils.data.RandomSampler(range(23)), "batch_size": 3},
    "torch's stream": lambda _: {"batch_sampler": Ordered(lambda: torch.randperm(23).tolist(), at_once=False)},
    "Python's stream": lambda _: {"batch_sampler": Ordered(lambda: random.sample(range(23), 23), at_once=False)},
    "numpy's stream": lambda _: {"batch_sampler": Ordered(lambda: np.random.permutation(23).tolist(), at_once=False)},
    "torch's stream batch by batch": lambda _: {"batch_sampler": Lazy()},
}


def seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


PLAIN = [(number,) for number in range(23)]  # it draws nothing


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0)])
@pytest.mark.parametrize("whose", OTHER_STREAMS)
def test_the_order_is_exact_whatever_stream_a_sampler_draws_from(whose, before, after):
    Loader = ringbuf.RingLoader if "for numpy" in whose else TorchLoader
    options = OTHER_STREAMS[whose]
    seed_all(1)
    whole = passes(Loader(PLAIN, num_workers=before, **options(7)), 3)
    seed_all(1)
    first = Loader(PLAIN, num_workers=before, **options(7))
    assert indices(first) == whole[0]
    seen, state = saved_after(first, 3)
    assert seen == whole[1][:3]
    seed_all(2)
    second = Loader(PLAIN, num_workers=after, **options(8))
    second.load_state_dict(state)
    assert indices(second) == whole[1][3:]
    assert indices(second) == whole[2]


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0)])
def test_a_sampler_that_draws_when_it_begins_goes_on_with_other_workers(before, after):
    """torch begins twice where there are workers; a pass that goes on begins as often as it did at first."""
    first = TorchLoader(Squares(), batch_sampler=Ordered(lambda: torch.randperm(23).tolist()), num_workers=before)
    seen, state = saved_after(first, 3)
    second = TorchLoader(Squares(), batch_sampler=Ordered(lambda: torch.randperm(23).tolist()), num_workers=after)
    second.load_state_dict(state)
    assert sorted(chain(*seen, *indices(second))) == list(range(23))


def test_a_state_needs_no_trust_in_its_file():
    loader = TorchLoader(Squares(), batch_sampler=Ordered(lambda: random.sample(range(23), 23)))
    next(iter(loader))
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    file.seek(0)
    assert same(torch.load(file, weights_only=True), loader.state_dict())


def test_a_state_of_other_streams_is_refused_and_changes_nothing():
    def kinds():
        return ringbuf.RingLoader(Squares()), TorchLoader(Squares()), TorchLoader(Squares(), generator=generator(1))

    for loader in range(3):
        for other in {0, 1, 2} - {loader}:
            mine, theirs = kinds()[loader], kinds()[other]
            theirs.set_epoch(5)
            with pytest.raises(ValueError, match="random streams"):
                mine.load_state_dict(theirs.state_dict())
            assert mine.state_dict()["epoch"] is None


@pytest.mark.parametrize("lost", ["source", "epoch", "loader", "pulled"])
def test_a_state_that_lacks_a_part_is_no_state(make, lost):
    state = make().state_dict()
    del state[lost]
    with pytest.raises(ValueError, match="not the state of a RingLoader"):
        make().load_state_dict(state)


def test_a_pass_goes_on_with_the_epoch_that_it_began_with():
    def make():
        return TorchLoader(Squares(), batch_size=3, sampler=torch.utils.data.DistributedSampler(Squares(), 1, 0))

    first = make()
    first.set_epoch(4)
    whole = indices(first)
    iterator = iter(first)
    seen = indices(next(iterator) for _ in range(3))
    first.set_epoch(5)  # for the next pass
    second = make()
    second.load_state_dict(first.state_dict())
    assert seen + indices(second) == whole


def test_a_pass_that_could_not_begin_does_not_forget_where(make):
    whole = passes(make(), 1)[0]
    _, state = saved_after(make(), 3)
    second = make(seed=1, num_workers=2)
    second.load_state_dict(state)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, limits[1]))
    try:
        with pytest.raises(OSError):
            iter(second)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert indices(second) == whole[3:]


def items(iterator, count=100):
    """So many batches as lists; for those that fail, the names of their errors."""
    taken = []
    with contextlib.suppress(StopIteration):
        while len(taken) < count:
            try:
                taken.append(np.asarray(next(iterator)).tolist())
            except (ValueError, ringbuf.BatchTooLarge) as error:
                taken.append(type(error).__name__)
    return taken


class Failing(torch.utils.data.IterableDataset):
    """0, 1, 2, ..., shared out; where 5 would be, it fails and goes on, and 8 is large."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info() or ringbuf.get_worker_info()
        self.next, self.step = (0, 1) if info is None else (info.id, info.num_workers)
        return self

    def __next__(self):
        number, self.next = self.next, self.next + self.step
        if number >= 14:
            raise StopIteration
        if number == 5:
            raise ValueError
        return np.full(100_000 if number == 8 else 1, number)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_what_failed_before_is_no_error_when_a_stream_goes_on(make, workers):
    options = {"dataset": Failing(), "shuffle": None, "num_workers": workers, "max_bytes": 400_000, "batch_size": 1}
    whole = items(iter(make(**options)))
    assert "ValueError" in whole
    assert ("BatchTooLarge" in whole) == bool(workers)
    first = make(**options)
    iterator = iter(first)
    seen = items(iterator, 10)
    second = make(**options)
    second.load_state_dict(first.state_dict())
    assert seen + items(iter(second)) == whole


def test_a_batch_that_was_too_large_counts_as_its_batch_when_a_pass_goes_on(make):
    options = {"dataset": [np.full(100_000 if number == 4 else 1, number) for number in range(9)], "batch_size": 1}
    options |= {"shuffle": None, "num_workers": 2, "max_bytes": 400_000}
    whole = items(iter(make(**options)))
    first = make(**options)
    seen = items(iter(first), 7)
    second = make(**options)
    second.load_state_dict(first.state_dict())
    assert seen + items(iter(second)) == whole


class Waiting(Counting):
    """The first worker has its first sample when `gate` is open."""

    def __init__(self, gate):
        self.gate = gate

    def __iter__(self):
        info = torch.utils.data.get_worker_info() or ringbuf.get_worker_info()
        for number in super().__iter__():
            if info.id == 0:
                assert self.gate.wait(30)
            yield number


def test_out_of_order_each_batch_of_a_stream_comes_once(make):
    import multiprocessing

    gate = multiprocessing.get_context("fork").Event()
    options = {"dataset": Waiting(gate), "shuffle": None, "num_workers": 2, "in_order": False}
    first = make(**options)
    iterator = iter(first)
    seen = [next(iterator).tolist() for _ in range(3)]
    assert seen == [[1, 3, 5], [7, 9, 11], [13, 15, 17]], "while the first worker has none"
    state = first.state_dict()
    gate.set()
    second = make(**options)
    second.load_state_dict(state)
    assert sorted(chain(*seen, *(batch.tolist() for batch in second))) == list(range(20))


def test_what_an_interrupt_took_was_not_delivered(make, monkeypatch):
    class Interrupt(BaseException):
        pass

    first = make(num_workers=1)
    iterator = iter(first)
    seen = indices([next(iterator)])
    go_on = iterator._go_on

    def interrupted(task):
        go_on(task)
        raise Interrupt

    monkeypatch.setattr(iterator, "_go_on", interrupted)
    with pytest.raises(Interrupt):
        next(iterator)
    second = make(seed=1)
    second.load_state_dict(first.state_dict())
    assert seen + indices(second) == passes(make(), 1)[0]


@pytest.mark.parametrize("style", ["samples by index", "a stream"])
@pytest.mark.parametrize("back", [1, 2, 3, 9])
def test_a_loader_goes_on_from_a_state_that_was_taken_back(make, style, back):
    options = {"dataset": Counting(), "shuffle": None} if style == "a stream" else {"dataset": list(range(20))}
    options["num_workers"] = 2
    whole = [batch.tolist() for batch in make(**options)]
    first = make(**options)
    iterator = iter(first)
    for _ in range(5):
        next(iterator)
    state = step_back(first.state_dict(), back)
    second = make(seed=1, **options)
    second.load_state_dict(state)
    assert [batch.tolist() for batch in second] == whole[max(0, 5 - back) :]
