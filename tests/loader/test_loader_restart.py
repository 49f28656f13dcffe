"""on_worker_death="restart": a dead worker is replaced, and nothing of what comes out tells of it."""

import multiprocessing
import os
import random
import signal
import time

import numpy as np
import psutil
import pytest
from loader_data import Growing, Numbered, numbers_in
from mines import DrawingStream, Draws, DrawsFromTorch, Mine, Patient, die, leave, plain
from processes import DEADLINE_S, eventually

from ringbuf import RingLoader, WorkerDied, get_worker_info
from ringbuf.loader import logbook, outlet
from ringbuf.loader.logbook import Log
from ringbuf.loader.outlet import Draft, Outlet
from ringbuf.loader.tasks import Inbox

METHODS = ["fork", "spawn", "forkserver"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:This RingLoader has num_workers=3"),
    pytest.mark.filterwarnings("ignore:RingLoader. .* slots are still looked at"),
]


def loader(dataset, batch_size=2, *, restart=True, num_workers=2, **options):
    options = {"generator": 7, "multiprocessing_context": "fork", **options}
    if restart:
        options["on_worker_death"] = "restart"
    return RingLoader(dataset, batch_size, num_workers=num_workers, **options)


def run(dataset, batch_size=2, *, passes=1, restarts=None, **options):
    """The batches of some passes; with `restarts`, of workers that are replaced so often."""
    with loader(dataset, batch_size, restart=restarts is not None, **options) as made:
        got = [[plain(batch) for batch in made] for _ in range(passes)]
        if restarts is not None:
            assert made.stats().restarts == restarts
    return got


def kill(iterator, worker_id):
    """Kill a worker, and wait until it is dead."""
    worker = iterator._workers[worker_id]
    worker.kill()
    worker.join(DEADLINE_S)


# ---- whenever it dies -------------------------------------------------------------------------------------------

# Each moment of a worker's life at which what it leaves behind is different from before.
MOMENTS = {
    "it asks for a task": (Inbox, "next", True),
    "it has taken a task": (Inbox, "next", False),
    "its batch is made": (Log, "note", True),
    "its note is begun": (logbook, "save_streams", False),
    "its note is void": (os, "pwrite", False),
    "its note is written": (Log, "note", False),
    "it wants a slot": (Outlet, "claim", True),
    "it has a slot": (Outlet, "claim", False),
    "its batch is to be published": (Draft, "publish", True),
    "its batch is published": (Draft, "publish", False),
    "its task is still in its hands": (Inbox, "done", True),
    "its task is done": (Inbox, "done", False),
}
STYLES = {"map": Draws, "iterable": DrawingStream}


@pytest.fixture(scope="module")
def undisturbed():
    return {style: run(dataset()) for style, dataset in STYLES.items()}


@pytest.mark.parametrize("nths", [(1,), (3, 1)], ids=str)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("owner", "name", "before"), MOMENTS.values(), ids=MOMENTS.keys())
def test_a_death_at_any_moment_changes_nothing(tmp_path, monkeypatch, undisturbed, owner, name, before, style, nths):
    Mine(tmp_path, *nths).lay(monkeypatch, owner, name, before=before)
    assert run(STYLES[style](), restarts=len(nths)) == undisturbed[style]


@pytest.mark.parametrize("nth", [2, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("style", STYLES)
def test_a_death_at_any_step_of_a_note_changes_nothing(tmp_path, monkeypatch, undisturbed, style, nth):
    Mine(tmp_path, nth).lay(monkeypatch, os, "pwrite", before=False)
    assert run(STYLES[style](), restarts=1) == undisturbed[style]


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(("owner", "name", "before"), MOMENTS.values(), ids=MOMENTS.keys())
def test_where_tasks_are_for_anybody_each_sample_still_comes_once(tmp_path, monkeypatch, owner, name, before, in_order):
    mine = Mine(tmp_path, 1)
    mine.lay(monkeypatch, owner, name, before=before)
    with loader(Patient(60, mine), dispatch="pull", in_order=in_order, num_workers=3) as made:
        got = [numbers_in(batch) for batch in made]
        assert made.stats().restarts <= 1  # not always: the others may have done all that was left
    assert mine.stepped_on.is_set()
    assert (got if in_order else sorted(got)) == [[n, n + 1] for n in range(0, 60, 2)]


@pytest.mark.parametrize("style", STYLES)
def test_every_worker_may_die_more_than_once(tmp_path, style):
    dataset = STYLES[style](folder=tmp_path, fatal=[0, 1, 6, 9, 13, 22])
    assert run(dataset, restarts=6, max_restarts=6, num_workers=3) == run(STYLES[style](), num_workers=3)


@pytest.mark.parametrize("options", [{}, {"dispatch": "pull"}, {"in_order": False}], ids=str)
def test_all_workers_may_die_at_once(options):
    with loader(Numbered(40), prefetch_factor=4, num_workers=3, slots=20, **options) as made:
        iterator = iter(made)
        got = numbers_in(next(iterator))
        for worker in list(iterator._workers):
            worker.kill()
        for batch in iterator:
            got += numbers_in(batch)
        assert 1 <= made.stats().restarts <= 3
    assert sorted(got) == list(range(40))
    assert got == sorted(got) or "in_order" in options


@pytest.mark.parametrize("seed", range(4))
def test_a_worker_killed_at_any_time_is_not_missed(seed):
    draw = random.Random(seed)
    dataset = Draws(200)
    undisturbed = run(dataset, 4)
    for options in ({}, {"dispatch": "pull"}):
        with loader(dataset, 4, **options) as made:
            iterator = iter(made)
            fatal, delay_s = draw.randrange(40), draw.uniform(0, 0.002)
            got = []
            for number, batch in enumerate(iterator):
                if number == fatal:
                    time.sleep(delay_s)  # a moment like any other
                    iterator._workers[draw.randrange(2)].kill()
                got.append(plain(batch))
            assert made.stats().restarts <= 1
        if options:
            assert [batch[0] for batch in got] == [batch[0] for batch in undisturbed[0]]
        else:
            assert got == undisturbed[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("style", STYLES)
def test_every_start_method_replaces_workers(tmp_path, method, style):
    dataset = STYLES[style](folder=tmp_path, fatal=[9])
    assert run(dataset, restarts=1, multiprocessing_context=method) == run(STYLES[style]())


def test_after_a_death_torchs_loader_would_have_given_the_same(tmp_path):
    import torch

    from ringbuf.torch import RingLoader as Tensors

    def run(Loader, dataset, **options):
        torch.manual_seed(7)
        return [plain(batch) for batch in Loader(dataset, 2, shuffle=True, num_workers=2, **options)]

    torchs = run(torch.utils.data.DataLoader, DrawsFromTorch(12))
    assert run(Tensors, DrawsFromTorch(12, folder=tmp_path, fatal=[6]), on_worker_death="restart") == torchs
    assert os.listdir(tmp_path) == ["6"]


def test_a_worker_that_leaves_is_replaced_like_one_that_is_killed(tmp_path):
    # An exit is no death to the ring: Python's clean-up hands back what the process had in hand.
    for number, options in enumerate([{}, {"dispatch": "pull"}]):
        folder = tmp_path / str(number)
        folder.mkdir()
        dataset = Draws(folder=folder, fatal=[9], how=leave)
        got = run(dataset, restarts=1, **options)
        assert [batch[0] for batch in got[0]] == [[n, n + 1] for n in range(0, 24, 2)]


class LeavesQuietly(Draws):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        if index == 5 and self.once("left"):
            raise SystemExit(3)
        return sample


def test_a_spawned_worker_that_leaves_is_replaced_too(tmp_path):
    dataset = LeavesQuietly(12, folder=tmp_path)
    (got,) = run(dataset, restarts=1, multiprocessing_context="spawn", dispatch="pull")
    assert [batch[0] for batch in got] == [[n, n + 1] for n in range(0, 12, 2)]


# ---- what it may have in hand -----------------------------------------------------------------------------------


class GrowingWhileOneDies(Growing):
    """Other workers wait with their samples until the one that is to die has done so, which has a part in any case then."""

    def __init__(self, mine, *arguments):
        super().__init__(*arguments)
        self.mine = mine

    def __getitem__(self, index):
        if get_worker_info().id != self.mine.worker_id:
            assert self.mine.stepped_on.wait(DEADLINE_S)
        return super().__getitem__(index)


@pytest.mark.parametrize("options", [{}, {"dispatch": "pull"}, {"in_order": False}], ids=str)
def test_a_worker_that_dies_while_it_waits_for_larger_slots_asks_for_nothing_any_more(tmp_path, monkeypatch, options):
    mine = Mine(tmp_path, 1)
    mine.lay(monkeypatch, outlet, "fill", before=False)
    with loader(GrowingWhileOneDies(mine, 12, 100_000, 50_000), 1, slots=4, **options) as made:
        got = [(int(batch[0, 0]), batch.shape) for batch in made]
        assert made.stats().restarts == 1
    assert sorted(got) == [(n, (1, 100_000 + n * 50_000)) for n in range(12)]


class Shrinks(Draws):
    """Sample 1 is large, until somebody has died of it. A patient sample 0 waits for that: nobody asks for sample 1 before."""

    def __init__(self, length, *, patient, **options):
        super().__init__(length, **options)
        self.patient, self.shrunk = patient, multiprocessing.get_context("fork").Event()

    def __getitem__(self, index):
        if index == 1 and not os.path.exists(os.path.join(self.once.folder, "0")):
            return np.full(200_000, index, np.uint8)
        if index == 1:
            self.shrunk.set()
        elif index == 0 and self.patient:
            assert self.shrunk.wait(DEADLINE_S)
        return np.full(10, index, np.uint8)


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize("options", [{}, {"dispatch": "pull"}, {"in_order": False}], ids=str)
def test_a_batch_may_need_less_when_it_is_made_again(tmp_path, monkeypatch, options, patient):
    for worker_id in (0, 1):  # whoever asks
        Mine(tmp_path, 1, worker_id=worker_id).lay(monkeypatch, outlet, "fill", before=False)
    with loader(Shrinks(12, patient=patient, folder=tmp_path), 1, **options) as made:
        got = [(int(batch[0, 0]), batch.shape[1]) for batch in made]
        assert made.stats().restarts == 1
    assert sorted(got) == [(n, 10) for n in range(12)]


class FailsAtLength(Draws):
    def __getitem__(self, index):
        if index == 3:
            raise ValueError("long " * 50_000)
        return super().__getitem__(index)


def test_an_error_too_long_for_a_slot_outlives_its_worker(tmp_path, monkeypatch):
    Mine(tmp_path, 2).lay(monkeypatch, Inbox, "done", before=True)  # of worker 1, after sample 3
    with loader(FailsAtLength(8), 1) as made:
        got, errors = [], []
        iterator = iter(made)
        for _ in range(8):
            try:
                got.append(int(next(iterator)[0][0]))
            except ValueError as error:
                errors.append(error)
        assert list(iterator) == []
        assert made.stats().restarts == 1
    assert got == [0, 1, 2, 4, 5, 6, 7]
    assert len(errors) == 1 and str(errors[0]) == "long " * 50_000


@pytest.mark.parametrize("dispatch", ["static", "pull"])
def test_tasks_too_large_for_a_slot_are_done_again(tmp_path, dispatch):
    dataset = Draws(5000, folder=tmp_path, fatal=[4500])
    batches = [list(range(first, first + 4000)) for first in (0, 500, 800, 1000)]
    made = RingLoader(dataset, batch_sampler=batches, num_workers=2, on_worker_death="restart", dispatch=dispatch)
    with made:
        assert [batch[0].tolist() for batch in made] == batches
        assert made.stats().restarts == 1


def test_a_batch_that_is_kept_stays_when_its_maker_is_replaced(tmp_path):
    dataset = Draws(folder=tmp_path, fatal=[4, 5])
    with loader(dataset, 1, slots=8) as made:
        kept = list(made)
        assert made.stats().restarts == 2
    assert [int(batch[0][0]) for batch in kept] == list(range(24))


# ---- iterable datasets ------------------------------------------------------------------------------------------


def test_a_stream_that_ended_needs_no_worker_any_more(tmp_path, monkeypatch):
    # Worker 1 has three batches, and answers the fourth time that there is none.
    Mine(tmp_path, 4).lay(monkeypatch, Inbox, "done", before=True)
    dataset = DrawingStream(13)  # of worker 0 there are four
    with loader(dataset, 2, prefetch_factor=6) as made:
        iterator = iter(made)
        got = [plain(next(iterator))]
        worker = iterator._workers[1]
        worker.join(DEADLINE_S)
        assert worker.exitcode == -signal.SIGKILL
        iterator._mend_at = 0.0  # it looks now, when the end is not known yet, and tasks behind it are out
        got += [plain(batch) for batch in iterator]
        assert made.stats().restarts == 0
    assert got == run(dataset, 2, prefetch_factor=6)[0]


@pytest.mark.parametrize("most", [1, 3])
def test_batches_that_nobody_has_looked_at_yet_are_not_made_twice(tmp_path, monkeypatch, most):
    (undisturbed,) = run(DrawingStream(), prefetch_factor=5)
    Mine(tmp_path, most).lay(monkeypatch, Inbox, "done", before=True)
    with loader(DrawingStream(), prefetch_factor=5) as made:
        iterator = iter(made)
        worker = iterator._workers[1]
        worker.join(DEADLINE_S)
        assert worker.exitcode == -signal.SIGKILL
        assert [plain(batch) for batch in iterator] == undisturbed
        assert made.stats().restarts == 1


class FailingStream(DrawingStream):
    """An iterator that goes on after an error."""

    def __iter__(self):
        self.values = super().__iter__()
        return self

    def __next__(self):
        value = next(self.values)
        if int(value[0]) % 5 == 3:
            raise ValueError(f"no sample {value[0]}")
        return value


def outcomes(made):
    got = []
    iterator = iter(made)
    while True:
        try:
            got.append(plain(next(iterator)))
        except ValueError as error:
            got.append(str(error))
        except StopIteration:
            return got


def test_errors_are_repeated_on_the_way_to_where_a_stream_was(tmp_path):
    with loader(FailingStream(), 1, restart=False) as made:
        undisturbed = outcomes(made)
    with loader(FailingStream(folder=tmp_path, fatal=[16, 21]), 1) as made:
        assert outcomes(made) == undisturbed
        assert made.stats().restarts == 2


# ---- persistent workers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_streams_go_on_from_pass_to_pass_whoever_dies(tmp_path, style):
    undisturbed = run(STYLES[style](), passes=4, persistent_workers=True)
    with loader(STYLES[style](folder=tmp_path, fatal=[7]), persistent_workers=True) as made:
        got = [[plain(batch) for batch in made]]  # in which a sample kills
        iterator = iter(made)
        got.append([plain(batch) for batch in iterator])
        kill(iterator, 0)  # between two passes
        kill(iterator, 1)
        assert iter(made) is iterator
        got.append([plain(batch) for batch in iterator])
        iterator = iter(made)
        got.append([plain(next(iterator))])
        got[3] += [plain(batch) for batch in iterator]
        assert made.stats().restarts == 3
    assert got == undisturbed


def test_a_pass_that_is_broken_off_waits_for_no_dead_worker():
    with loader(Numbered(40), 1, persistent_workers=True, prefetch_factor=4) as made:
        iterator = iter(made)
        next(iterator)
        kill(iterator, 0)
        kill(iterator, 1)
        assert [numbers_in(batch)[0] for batch in made] == list(range(40))
        assert made.stats().restarts >= 2


def test_between_passes_workers_are_mended_also_when_no_restart_is_left():
    with loader(Numbered(6), 1, persistent_workers=True, max_restarts=0) as made:
        list(made)
        iterator = made._iterator
        kill(iterator, 0)
        assert [numbers_in(batch)[0] for batch in made] == list(range(6))
        assert made.stats().restarts == 0
        assert made._iterator is not iterator


# ---- how often --------------------------------------------------------------------------------------------------


class AlwaysFatal(Draws):
    def __getitem__(self, index):
        if index == 5:
            die()
        return super().__getitem__(index)


@pytest.mark.parametrize("most", [0, 2])
@pytest.mark.parametrize("dispatch", ["static", "pull"])
def test_a_sample_that_kills_whoever_makes_it_ends_in_worker_died(dispatch, most):
    with loader(AlwaysFatal(), max_restarts=most, dispatch=dispatch) as made:
        iterator = iter(made)
        got = []
        with pytest.raises(WorkerDied) as caught:
            for batch in iterator:
                got.append(batch[0].tolist())
        assert made.stats().restarts == most
        assert iterator._workers == []
    assert got[:2] == [[0, 1], [2, 3]]
    assert [4, 5] not in got
    assert caught.value.indices[:2] == [4, 5]
    assert caught.value.exitcode == -signal.SIGKILL
    assert f"max_restarts={most}" in str(caught.value)


def leave_at_once(worker_id):
    os._exit(9)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_that_cannot_even_begin_ends_in_worker_died(method):
    with loader(Numbered(8), worker_init_fn=leave_at_once, max_restarts=2, multiprocessing_context=method) as made:
        with pytest.raises(WorkerDied, match="exit code 9"):
            list(made)
        assert made.stats().restarts == 2


def test_restarts_are_counted_over_the_life_of_the_loader(tmp_path):
    dataset = Draws(8, folder=tmp_path)
    with loader(dataset, 1, max_restarts=3) as made:
        for fatal in ({0}, {1, 2}):
            made.dataset.fatal = frozenset(fatal)
            assert [int(batch[0][0]) for batch in made] == list(range(8))
        assert made.stats().restarts == 3
        assert ["restarts", "3"] in [line.split() for line in str(made.stats()).splitlines()]
        made.dataset.fatal = frozenset({6})
        with pytest.raises(WorkerDied):
            list(made)


def test_a_death_after_all_work_was_done_needs_no_restart():
    with loader(Numbered(4), 1) as made:
        iterator = iter(made)
        got = [numbers_in(next(iterator)) for _ in range(4)]
        kill(iterator, 0)
        assert list(iterator) == []
        assert made.stats().restarts == 0
    assert got == [[0], [1], [2], [3]]


def test_a_stopped_worker_is_not_replaced():
    with loader(Numbered(60), 1, timeout=0.3) as made:
        iterator = iter(made)
        got = numbers_in(next(iterator))
        worker = psutil.Process(iterator._workers[1].pid)
        worker.suspend()
        with pytest.raises(TimeoutError):
            while True:
                got += numbers_in(next(iterator))
        assert made.stats().restarts == 0
        worker.resume()
        iterator._settings = iterator._settings._replace(timeout=0)  # however busy the machine is
        got += [numbers_in(batch)[0] for batch in iterator]
        assert made.stats().restarts == 0
    assert got == list(range(60))


class WaitsForItsSuccessor(Draws):
    """Its death is noticed while the consumer waits for another worker."""

    def __init__(self, folder):
        super().__init__(8, folder=folder)
        self.replaced = multiprocessing.get_context("fork").Event()

    def __getitem__(self, index):
        if index == 1:
            if self.once("dead"):
                die()
            self.replaced.set()
        elif index == 0:
            assert self.replaced.wait(DEADLINE_S)
        return super().__getitem__(index)


def test_a_worker_is_replaced_before_its_batch_is_due(tmp_path):
    assert [batch[0] for batch in run(WaitsForItsSuccessor(tmp_path), 1, restarts=1)[0]] == [[n] for n in range(8)]


def test_worker_init_fn_is_called_in_the_new_worker_before_its_streams_go_on(tmp_path):
    dataset = Draws(folder=tmp_path, fatal=[8])
    undisturbed = run(Draws(), worker_init_fn=scramble)
    assert run(dataset, restarts=1, worker_init_fn=scramble) == undisturbed


def scramble(worker_id):
    random.seed(worker_id)
    np.random.seed(worker_id + 100)


def test_the_new_process_is_in_the_list_of_workers(tmp_path):
    with loader(Draws(folder=tmp_path, fatal=[2])) as made:
        iterator = iter(made)
        before = [worker.pid for worker in iterator._workers]
        next(iterator), next(iterator)
        after = [worker.pid for worker in iterator._workers]
        assert before[0] == after[0] and before[1] != after[1]
        pids = set(before + after)
    assert eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_replacing_workers_takes_no_descriptors(tmp_path):
    def open_now():
        return len(os.listdir("/proc/self/fd"))

    with loader(Draws(40, folder=tmp_path, fatal=range(4, 12)), 1, max_restarts=8) as made:
        iterator = iter(made)
        next(iterator)
        before = open_now()
        assert len(list(zip(iterator, range(25)))) == 25
        assert made.stats().restarts == 8
        assert open_now() <= before + 16  # channels of the dead, until they are read or the pass ends
    assert open_now() < before
