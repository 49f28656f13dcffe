"""Processes that die: workers, at any time, and the main process."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from loader_data import (
    Dies,
    Numbered,
    Sleeps,
    Stream,
    load_in_thread_until_killed,
    load_until_killed,
    numbers_in,
)
from processes import DEADLINE_S, eventually, process, script
from scene import segments

from ringbuf import RingLoader, WorkerDied

METHODS = ["fork", "spawn", "forkserver"]


def collect(iterator):
    """All batches up to the error, and the error."""
    got = []
    try:
        for batch in iterator:
            got.append(batch.tolist())
    except WorkerDied as error:
        return got, error
    pytest.fail(f"no error after {got}")


DEATHS = {
    "SIGKILL": (signal.SIGKILL, -9, ["SIGKILL", "out of memory"]),
    "SIGSEGV": (signal.SIGSEGV, -11, ["SIGSEGV"]),
    "SIGTERM": (signal.SIGTERM, -15, ["SIGTERM"]),
    "os._exit": ("os._exit", 3, ["exit code 3"]),
    "sys.exit(0)": (0, 0, ["exit code 0"]),
    "sys.exit(7)": (7, 7, ["exit code 7"]),
}


@pytest.mark.parametrize(("how", "exitcode", "words"), DEATHS.values(), ids=DEATHS.keys())
def test_a_workers_death_is_reported_after_the_finished_batches(how, exitcode, words):
    # Batches of two: 9 is in task 4, which is worker 0's.
    with RingLoader(Dies(how), 2, num_workers=2, prefetch_factor=3) as loader:
        iterator = iter(loader)
        pids = [worker.pid for worker in iterator._workers]
        got, error = collect(iterator)
        assert iterator._workers == []
    assert got[:4] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert got[4:] == [[10, 11], [14, 15], [18, 19]][: len(got) - 4]
    assert len(got) >= 5
    assert (error.worker_id, error.pid, error.exitcode) == (0, pids[0], exitcode)
    assert error.indices[:2] == [8, 9]
    assert isinstance(error, RuntimeError)
    for part in [f"DataLoader worker (pid(s) {pids[0]}) exited unexpectedly", "worker 0", "[8, 9", *words]:
        assert part in str(error)


@pytest.mark.parametrize("method", METHODS)
def test_every_start_method_tells_how_a_worker_died(method):
    with RingLoader(Dies(signal.SIGKILL, at=0), 2, num_workers=2, multiprocessing_context=method) as loader:
        began = time.monotonic()
        _, error = collect(iter(loader))
        assert error.exitcode == -9
    assert time.monotonic() - began < 10


def test_out_of_order_a_death_is_reported_too():
    with RingLoader(Dies(signal.SIGKILL), 2, num_workers=2, in_order=False) as loader:
        got, error = collect(iter(loader))
    assert error.exitcode == -9
    assert error.indices[:2] == [8, 9]
    assert [0, 1] in got
    assert [8, 9] not in got


def test_death_is_noticed_within_two_seconds():
    with RingLoader(Sleeps(60, at=2), 1, num_workers=2) as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        iterator._workers[0].kill()
        began = time.monotonic()
        collect(iterator)
    assert time.monotonic() - began < 2


class DiesBesideALongError(Dies):
    def __getitem__(self, index):
        if index == 1:
            raise ValueError("long " * 50_000)
        return super().__getitem__(index)


class SleepsBesideErrors(Sleeps):
    """Sample 1 fails in a way that can be passed over, sample 2 in one that cannot."""

    def __getitem__(self, index):
        if index in (1, 2):
            raise ValueError(index)
        return super().__getitem__(index)


def pass_over_the_first(index, error):
    if index == 2:
        raise error
    return np.int64(0)


@pytest.mark.filterwarnings("ignore:RingLoader. sample 1 failed")
def test_what_was_passed_over_before_an_error_is_counted_also_after_another_workers_death():
    batches = {"batch_sampler": [[0], [1, 2]], "num_workers": 2, "on_error": pass_over_the_first}
    with RingLoader(SleepsBesideErrors(60), **batches) as loader:
        iterator = iter(loader)
        assert eventually(lambda: 1 in iterator._losses.answered())
        iterator._workers[0].kill()
        with pytest.raises(ValueError, match="2"):
            next(iterator)
        with pytest.raises(WorkerDied):
            next(iterator)
        assert [failed.index for failed in loader.stats().failed] == [1]


def test_an_error_too_long_for_a_slot_is_delivered_after_another_workers_death():
    with RingLoader(DiesBesideALongError(signal.SIGKILL, at=0), 1, num_workers=2, prefetch_factor=1) as loader:
        iterator = iter(loader)
        with pytest.raises(ValueError, match="long long"):
            next(iterator)
        with pytest.raises(WorkerDied):
            next(iterator)


class DiesOnceTheOtherHasGrown:
    """Both workers need larger slots for their first batch. Worker 0, which is asked first, dies over it when worker 1 has
    finished its own in the slots that were made for worker 0."""

    def __init__(self):
        self.finished = multiprocessing.get_context("fork").Event()

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 6:  # of worker 1's second batch
            self.finished.set()
        elif index == 1 and self.finished.wait(DEADLINE_S):
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full(100_000, index)


def test_a_batch_finished_in_slots_that_another_worker_asked_for_comes_before_the_death():
    dataset = DiesOnceTheOtherHasGrown()
    with RingLoader(dataset, 2, num_workers=2, multiprocessing_context="fork") as loader:
        iterator = iter(loader)
        batch = next(iterator)
        assert batch[:, 0].tolist() == [2, 3]
        with pytest.raises(WorkerDied) as caught:
            list(iterator)
    assert caught.value.indices[:2] == [0, 1]


def test_the_error_stays():
    with RingLoader(Dies(signal.SIGKILL, at=0), 2, num_workers=1) as loader:
        iterator = iter(loader)
        for _ in range(3):
            with pytest.raises(WorkerDied):
                next(iterator)


def test_another_pass_may_follow():
    with RingLoader(Dies(signal.SIGKILL, at=6, length=8), 2, num_workers=2) as loader:
        for _ in range(2):
            got, _ = collect(iter(loader))
            assert got == [[0, 1], [2, 3], [4, 5]]


def test_a_failed_pass_with_batches_left_does_not_block_the_next():
    with RingLoader(Dies(signal.SIGKILL, at=4, length=24), 1, num_workers=2, prefetch_factor=4) as loader:
        kept = []
        for _ in range(3):
            iterator = iter(loader)
            kept.append(iterator)
            kept += [next(iterator) for _ in range(5)]  # of which the last was finished before the death
        assert [batch.tolist() for batch in kept if isinstance(batch, np.ndarray)] == [[0], [1], [2], [3], [5]] * 3


def test_an_iterables_worker_has_no_indices_to_name():
    with RingLoader(DyingStream(10), 2, num_workers=1) as loader:
        got, error = collect(iter(loader))
    assert got == [[0, 1], [2, 3]]
    assert error.indices == []
    assert "None" not in str(error)


class DyingStream(Stream):
    def __iter__(self):
        yield from map(np.int64, range(4))
        os.kill(os.getpid(), signal.SIGKILL)




def test_a_death_after_all_work_was_delivered_is_no_error():
    with RingLoader(Numbered(4), 1, num_workers=2) as loader:
        iterator = iter(loader)
        batches = [numbers_in(next(iterator)) for _ in range(4)]
        for worker in iterator._workers:
            worker.kill()
            worker.join()
        assert list(iterator) == []
    assert batches == [[0], [1], [2], [3]]


def test_a_death_between_two_passes_of_persistent_workers_is_mended():
    with RingLoader(Numbered(6), 1, num_workers=2, persistent_workers=True, slots=10) as loader:
        assert len(list(loader)) == 6
        worker = iter(loader)._workers[0]
        worker.kill()
        worker.join()
        assert [numbers_in(batch)[0] for batch in loader] == list(range(6))


def test_a_stopped_worker_is_not_dead():
    with RingLoader(Numbered(60), 1, num_workers=2, timeout=0.5) as loader:
        iterator = iter(loader)
        next(iterator)
        worker = psutil.Process(iterator._workers[1].pid)
        worker.suspend()
        with pytest.raises(TimeoutError):
            list(iterator)
        worker.resume()
        rest = [numbers_in(batch)[0] for batch in iterator]
    assert rest[-1] == 59


@pytest.mark.parametrize("seed", range(6))
def test_a_worker_killed_at_any_time_leaves_no_doubt_about_any_batch(seed):
    random = np.random.default_rng(seed)
    with RingLoader(Numbered(400, shape=(random.integers(1, 60), 50)), 4, num_workers=2) as loader:
        for _ in range(5):
            iterator = iter(loader)
            victim = iterator._workers[random.integers(2)]
            fatal = int(random.integers(100))
            got = []
            error = None
            try:
                for number, batch in enumerate(iterator):
                    if number == fatal:
                        time.sleep(random.uniform(0, 0.002))
                        victim.kill()
                    got += numbers_in(batch)
            except WorkerDied as death:
                error = death
            assert got == sorted(set(got))
            if error is None:
                assert got == list(range(400))
            else:
                assert not set(error.indices) & set(got)
                assert error.exitcode == -9


# ---- the main process -------------------------------------------------------------------------------------------


def gone(pids):
    """Whether none of these processes is left; a zombie is gone."""

    def lives(pid):
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return not any(map(lives, pids))


def pids_in(report):
    assert eventually(lambda: report.exists() and len(report.read_text().split()) == 2)
    return [int(pid) for pid in report.read_text().split()]


MID_EPOCH = Numbered(10**9), {}
IN_THE_DATASET = Sleeps(1000, at=0), {}
WAITING_FOR_SLOTS = Numbered(10**9, shape=(400, 400)), {}
BETWEEN_EPOCHS = Numbered(4), {"persistent_workers": True}


@pytest.mark.parametrize("target", [load_until_killed, load_in_thread_until_killed])
@pytest.mark.parametrize(
    ("situation", "method"),
    [
        *[pytest.param(MID_EPOCH, method, id=f"mid-epoch-{method}") for method in METHODS],
        *[pytest.param(IN_THE_DATASET, method, id=f"in the dataset-{method}") for method in METHODS],
        pytest.param(WAITING_FOR_SLOTS, "fork", id="while slots grow"),
        pytest.param(BETWEEN_EPOCHS, "fork", id="between epochs"),
    ],
)
def test_workers_end_when_main_is_killed(tmp_path, target, situation, method):
    dataset, options = situation
    report = tmp_path / "pids"
    options = {"num_workers": 2, "multiprocessing_context": method, **options}
    with process(target, str(report), dataset, options, method="spawn") as main:
        # A daemonic process may have workers, too: see test_loader_lifecycle.py.
        pids = pids_in(report)
        time.sleep(0.3)
        main.kill()
        main.join()
        began = time.monotonic()
        assert eventually(lambda: gone(pids), within_s=5)
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_end_when_main_is_killed_while_they_start(tmp_path, method):
    report = tmp_path / "pids"
    options = {"num_workers": 2, "multiprocessing_context": method}
    with process(load_until_killed, str(report), Numbered(10**9), options, method="spawn") as main:
        pids = pids_in(report)
        main.kill()
        main.join()
        assert eventually(lambda: gone(pids), within_s=5)


def test_nothing_of_the_memory_remains_when_all_are_killed(tmp_path):
    before = segments()
    report = tmp_path / "pids"
    with process(load_until_killed, str(report), Numbered(10**9), {"num_workers": 2}) as main:
        pids = pids_in(report)
        for pid in [main.pid, *pids]:
            os.kill(pid, signal.SIGKILL)
        main.join()
        assert eventually(lambda: gone(pids))
    assert eventually(lambda: segments() <= before)  # but for what strangers have mapped


# ---- Ctrl-C -----------------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, time
import ringbuf

class Slow:
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(0.01)
        return index

{guard}
    loader = ringbuf.RingLoader(Slow(), 2, num_workers=2, multiprocessing_context={method!r}, persistent_workers={persistent})
    try:
        for number, batch in enumerate(loader):
            if number == 2:
                print("ready", *[p.pid for p in __import__("multiprocessing").active_children()], flush=True)
    except KeyboardInterrupt:
        if {again}:
            print("again", sum(len(batch) for batch in loader), flush=True)
        else:
            raise
"""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_is_one_keyboard_interrupt_in_main_and_no_noise(tmp_path, method, again):
    program = tmp_path / "program.py"
    program.write_text(
        INTERRUPTED.format(guard="if __name__ == '__main__':", method=method, persistent=again, again=again).replace(
            "1000", "100" if again else "1000"
        )
    )
    main = subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        line = main.stdout.readline().split()
        assert line[0] == "ready"
        os.killpg(main.pid, signal.SIGINT)
        out, err = main.communicate(timeout=20)
    finally:
        main.kill()
        main.wait()
    assert eventually(lambda: gone([int(pid) for pid in line[1:]]), within_s=5)
    if again:
        assert (out, err, main.returncode) == ("again 100\n", "", 0)
    else:
        assert err.count("KeyboardInterrupt") == 1
        assert err.count("Traceback") == 1
        assert main.returncode == -signal.SIGINT


@pytest.mark.parametrize("method", ["fork", "spawn"])  # a forkserver's children meet Ctrl-C before our first line
def test_ctrl_c_while_workers_start_makes_no_noise_either(tmp_path, method):
    program = tmp_path / "program.py"
    program.write_text(
        "import ringbuf, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "if __name__ == '__main__':\n"
        f"    loader = ringbuf.RingLoader(list(range(99)), num_workers=2, multiprocessing_context={method!r})\n"
        "    list(loader)\n"  # by now the forkserver runs, whose own start makes noise
        "    print('ready', flush=True)\n"
        "    while True:\n"
        "        for batch in loader:\n"
        "            pass\n"
    )
    main = subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert main.stdout.readline() == "ready\n"
        time.sleep(0.15)
        os.killpg(main.pid, signal.SIGINT)
        _, err = main.communicate(timeout=20)
    finally:
        main.kill()
        main.wait()
    assert err.count("Traceback") == err.count("KeyboardInterrupt") == 1
    assert main.returncode == -signal.SIGINT


# ---- spawn and __main__ -----------------------------------------------------------------------------------------


def test_a_script_without_a_main_guard_ends_with_a_hint(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import ringbuf\n"
        "loader = ringbuf.RingLoader(list(range(8)), num_workers=2, multiprocessing_context='spawn')\n"
        "print(len(list(loader)))\n"
    )
    done = script("import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')", program)
    assert done.returncode != 0
    assert "WorkerDied" in done.stderr
    assert "if __name__ == '__main__'" in done.stderr


def test_a_dataset_below_the_main_guard_is_reported_with_the_workers_traceback(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import ringbuf\n"
        "if __name__ == '__main__':\n"
        "    class Hidden(list):\n"
        "        pass\n"
        "    loader = ringbuf.RingLoader(Hidden([1, 2]), num_workers=1, multiprocessing_context='spawn')\n"
        "    list(loader)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "AttributeError" in done.stderr
    assert "Hidden" in done.stderr
    assert "DataLoader worker process 0" in done.stderr
