"""dispatch="pull", and in_order=False with an indexed dataset: tasks are for whichever worker is idle."""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing import connection

import numpy as np
import pytest
from loader_data import Growing, Numbered, Raises, numbers_in
from processes import DEADLINE_S

import ringbuf
from ringbuf import BatchTimeout, BatchTooLarge, RingLoader, WorkerDied
from ringbuf.loader.iterator import WorkerIterator

pytestmark = pytest.mark.filterwarnings("ignore:This RingLoader has num_workers")

SHARED = {"pull": {"dispatch": "pull"}, "unordered": {"in_order": False}, "both": {"dispatch": "pull", "in_order": False}}


def event():
    return multiprocessing.get_context("fork").Event()


class Gated(Numbered):
    """Sample `slow` waits for the gate; sample `opens` opens it."""

    def __init__(self, length, *, slow=0, opens=None):
        super().__init__(length)
        self.slow, self.opens, self.gate, self.begun = slow, opens, event(), event()

    def __getitem__(self, index):
        if index == self.slow:
            self.begun.set()
            assert self.gate.wait(DEADLINE_S)
        if index == self.opens:
            self.gate.set()
        return super().__getitem__(index)


@pytest.fixture(params=SHARED.values(), ids=SHARED.keys())
def shared(request):
    return request.param


@pytest.mark.parametrize(("num_workers", "method"), [(1, "fork"), (2, "forkserver"), (3, "fork")])
def test_every_sample_comes_once(shared, num_workers, method):
    options = {"num_workers": num_workers, "multiprocessing_context": method, **shared}
    with RingLoader(Numbered(100), 3, persistent_workers=True, **options) as loader:
        for _ in range(3):
            got = [numbers_in(batch) for batch in loader]
            assert got == sorted(got) or "in_order" in shared
            assert sorted(got) == [list(range(n, min(n + 3, 100))) for n in range(0, 100, 3)]


def test_a_slow_sample_does_not_hold_up_what_another_worker_can_make():
    # By turns the one who has sample 0 would have to make sample 2.
    with RingLoader(Gated(8, opens=2), 1, num_workers=2, dispatch="pull", multiprocessing_context="fork") as loader:
        assert [numbers_in(batch)[0] for batch in loader] == list(range(8))


@pytest.mark.parametrize("options", [{}, {"dispatch": "pull"}], ids=str)
def test_unordered_a_slow_sample_comes_last(options):
    dataset = Gated(40)
    with RingLoader(dataset, 1, num_workers=2, in_order=False, multiprocessing_context="fork", **options) as loader:
        iterator = iter(loader)
        got = [numbers_in(next(iterator))[0] for _ in range(39)]
        dataset.gate.set()
        assert [numbers_in(batch)[0] for batch in iterator] == [0]
    assert sorted(got) == list(range(1, 40))


def test_idle_workers_have_a_part_in_it(shared):
    dataset = Busy()
    with RingLoader(dataset, 1, num_workers=2, multiprocessing_context="fork", **shared) as loader:
        makers = {int(batch[0]) for batch in loader}
    assert makers == {0, 1}


class Busy(Numbered):
    """Who makes sample 0 or 1 waits until the other one is being made, too. Each sample says who made it."""

    def __init__(self):
        super().__init__(8)
        self.begun = [event(), event()]

    def __getitem__(self, index):
        if index < 2:
            self.begun[index].set()
            assert self.begun[1 - index].wait(DEADLINE_S)
        return ringbuf.get_worker_info().id


def test_an_iterable_dataset_cannot_be_pulled_from():
    class Stream:
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(ValueError, match=r"'pull' needs a dataset with __getitem__: .*an iterator of its own"):
        RingLoader(Stream(), num_workers=2, dispatch="pull")


def test_more_workers_than_a_ring_has_room_for_are_refused():
    loader = RingLoader(Numbered(4), num_workers=255)
    with pytest.raises(ValueError, match="num_workers should be 255 at most, but got 256"):
        RingLoader(Numbered(4), num_workers=256)
    loader.num_workers = 300
    with pytest.raises(ValueError, match="255 at most, but got 300"):
        iter(loader)


# ---- slots that grow --------------------------------------------------------------------------------------------


def test_batches_that_outgrow_their_slots_again_and_again(shared):
    with RingLoader(Growing(30, 10, 30_000), 1, num_workers=3, slots=16, **shared) as loader:
        got = []
        for batch in loader:
            assert (batch == batch[0, 0]).all()
            got.append((int(batch[0, 0]), batch.shape[1]))
        assert loader.stats().generations > 2
    assert got == sorted(got) or "in_order" in shared
    assert sorted(got) == [(n, 10 + n * 30_000) for n in range(30)]


def test_a_batch_that_is_too_large_is_refused_and_the_others_come(shared):
    options = {"num_workers": 2, "slots": 8, "max_bytes": 8 << 17, "multiprocessing_context": "fork", **shared}
    with RingLoader(Peak(30), 1, **options) as loader:
        iterator = iter(loader)
        got, errors = [], []
        while True:
            try:
                got.append(int(next(iterator)[0, 0]))
            except BatchTooLarge as error:
                errors.append(error)
            except StopIteration:
                break
    assert sorted(got) == [n for n in range(30) if n not in (10, 11)]
    assert sorted(str(error).partition(" does not fit")[0][-4:] for error in errors) == ["[10]", "[11]"]


class Peak(Growing):
    """Samples 10 and 11 are too large. It takes two workers to make them, and two to make 20 and 21: who was refused is at work
    again by then."""

    def __init__(self, length):
        super().__init__(length, 100, 0)
        self.begun = {index: event() for index in (10, 11, 20, 21)}

    def __getitem__(self, index):
        if index in self.begun:
            self.begun[index].set()
            assert self.begun[index ^ 1].wait(DEADLINE_S)
        return np.full((1 << 20) if index in (10, 11) else 100, index, np.uint8)


@pytest.mark.parametrize("options", [{"in_order": False}, {"dispatch": "pull"}], ids=str)
def test_an_answer_may_come_before_the_wish_for_larger_slots_that_it_overtook(monkeypatch, options):
    sweep = WorkerIterator._sweep
    monkeypatch.setattr(WorkerIterator, "_sweep", lambda self, generations, *how: sweep(self, generations[::-1], *how))
    with RingLoader(Growing(40, 10, 30_000), 1, num_workers=3, slots=16, **options) as loader:
        assert sorted(int(batch[0, 0]) for batch in loader) == list(range(40))


def test_indices_that_need_more_than_a_task_slot(shared):
    big = [list(range(start, start + 4000)) for start in range(40)]
    with RingLoader(np.arange(5000), batch_sampler=big, num_workers=3, prefetch_factor=20, slots=8, **shared) as loader:
        got = [batch.tolist() for batch in loader]
    assert sorted(got) == big


# ---- when something goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["no luck", "no luck " * 30_000], ids=["short", "longer than a slot"])
def test_an_error_comes_and_the_others_too(shared, text):
    with RingLoader(Raises(ValueError(text), length=20), 1, num_workers=3, **shared) as loader:
        iterator = iter(loader)
        got, errors = [], []
        while True:
            try:
                got.append(int(next(iterator)[0]))
            except ValueError as error:
                errors.append(str(error))
            except StopIteration:
                break
    assert sorted(got) == [n for n in range(20) if n != 5]
    assert errors == [text]


class Fatal(Gated):
    """Sample `at` kills its worker when the consumer says so."""

    def __init__(self, length, at, **options):
        super().__init__(length, **options)
        self.at, self.now, self.reached = at, event(), event()

    def __getitem__(self, index):
        if index == self.at:
            self.reached.set()
            assert self.now.wait(DEADLINE_S)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_death_is_reported_after_what_was_finished_with_just_what_was_in_hand():
    dataset = Fatal(40, at=5, slow=None)
    with RingLoader(dataset, 2, num_workers=2, dispatch="pull", prefetch_factor=3, multiprocessing_context="fork") as loader:
        iterator = iter(loader)
        got = [numbers_in(next(iterator)) for _ in range(2)]
        assert dataset.reached.wait(DEADLINE_S)
        dataset.now.set()
        with pytest.raises(WorkerDied) as caught:
            for batch in iterator:
                got.append(numbers_in(batch))
    assert got[:2] == [[0, 1], [2, 3]]
    assert [4, 5] not in got
    assert got == sorted(got)
    # The other worker went on with 6 and so on, and had nothing in hand any more that was not finished or its own.
    assert caught.value.indices == [4, 5]
    assert "it owed 1 batch, of the sample indices [4, 5]" in str(caught.value)


def test_a_death_does_not_come_before_what_the_living_have_in_hand():
    dataset = Fatal(8, at=1, slow=0)
    with RingLoader(dataset, 1, num_workers=2, dispatch="pull", multiprocessing_context="fork") as loader:
        iterator = iter(loader)
        assert dataset.begun.wait(DEADLINE_S) and dataset.reached.wait(DEADLINE_S)
        workers = list(iterator._workers)
        dataset.now.set()
        ended = connection.wait([worker.sentinel for worker in workers], DEADLINE_S)
        assert len(ended) == 1
        dataset.gate.set()
        assert numbers_in(next(iterator)) == [0]
        with pytest.raises(WorkerDied) as caught:
            list(iterator)
    assert caught.value.indices == [1]


def test_of_two_that_die_together_each_is_named_with_what_it_had_in_hand():
    with RingLoader(HeldUp(), 1, num_workers=4, dispatch="pull", prefetch_factor=1, multiprocessing_context="fork") as loader:
        iterator = iter(loader)
        assert all(begun.wait(DEADLINE_S) for begun in loader.dataset.begun)
        holders = iterator._board.holders()
        for number in (1, 2):
            (victim,) = [worker for worker in iterator._workers if worker.pid == holders[number]]
            victim.kill()
            victim.join(DEADLINE_S)
        time.sleep(0.25)  # in which the idle worker looks up twice, and could do with what the dead had in hand what it likes
        loader.dataset.gate.set()
        assert int(next(iterator)[0]) == 0
        with pytest.raises(WorkerDied) as caught:
            next(iterator)
    assert caught.value.pid == holders[1]
    assert caught.value.indices == [1]


class HeldUp:
    """Sample 0 waits for the gate. Two others wait for their worker's death, not at the gate, which would wait for them then."""

    def __init__(self):
        self.begun, self.gate = [event() for _ in range(3)], event()

    def __len__(self):
        return 3

    def __getitem__(self, index):
        self.begun[index].set()
        assert (self.gate if index == 0 else threading.Event()).wait(DEADLINE_S)
        return np.int64(index)


def test_the_death_of_a_worker_that_nobody_misses_is_no_error():
    dataset = Gated(1)
    with RingLoader(dataset, 1, num_workers=2, dispatch="pull", multiprocessing_context="fork") as loader:
        iterator = iter(loader)
        assert dataset.begun.wait(DEADLINE_S)
        (busy,) = iterator._board.holders().values()
        (idle,) = [worker for worker in iterator._workers if worker.pid != busy]
        idle.kill()
        idle.join(DEADLINE_S)
        dataset.gate.set()
        assert [numbers_in(batch) for batch in iterator] == [[0]]


@pytest.mark.parametrize("options", [{}, {"in_order": False}], ids=str)
def test_when_all_have_died_it_is_said_although_none_had_anything_in_hand(options):
    with RingLoader(Numbered(40), 1, num_workers=1, dispatch="pull", prefetch_factor=1, slots=4, **options) as loader:
        iterator = iter(loader)
        got = [numbers_in(next(iterator))[0]]
        (worker,) = iterator._workers
        worker.kill()
        worker.join(DEADLINE_S)
        with pytest.raises(WorkerDied):
            for batch in iterator:
                got += numbers_in(batch)
    assert got == list(range(len(got)))


def test_a_timeout_names_who_has_the_batch_in_hand():
    dataset = Gated(4)
    with RingLoader(dataset, 1, num_workers=2, dispatch="pull", timeout=0.2, multiprocessing_context="fork") as loader:
        iterator = iter(loader)
        assert dataset.begun.wait(DEADLINE_S)
        pid = iterator._board.holders()[0]
        (worker_id,) = [number for number, worker in enumerate(iterator._workers) if worker.pid == pid]
        with pytest.raises(BatchTimeout, match=f"waiting for worker {worker_id}, which has the sample indices \\[0\\]"):
            next(iterator)
        dataset.gate.set()
        assert [numbers_in(batch)[0] for batch in iterator] == list(range(4))


def test_a_pass_that_is_broken_off_leaves_nothing_to_the_next(shared):
    with RingLoader(Numbered(60), 1, num_workers=3, prefetch_factor=4, persistent_workers=True, **shared) as loader:
        for cut in (1, 5, 0, 20):
            iterator = iter(loader)
            for _ in range(cut):
                next(iterator)
        assert sorted(numbers_in(batch)[0] for batch in loader) == list(range(60))


def test_each_worker_draws_from_a_stream_of_its_own(shared):
    with RingLoader(DrawsWithId(40), 1, num_workers=2, generator=3, multiprocessing_context="fork", **shared) as loader:
        got = [(int(batch[0][0]), int(batch[1][0])) for batch in loader]
    seeds = {worker: 0 for worker, _ in got}
    for worker in seeds:
        drawn = [number for maker, number in got if maker == worker]
        assert len(set(drawn)) == len(drawn)
    assert len({number for _, number in got}) == 40


class DrawsWithId(Numbered):
    def __getitem__(self, index):
        return ringbuf.get_worker_info().id, np.random.randint(1 << 60)
