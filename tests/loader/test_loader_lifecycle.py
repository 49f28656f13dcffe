"""Workers come and go with their iterators, and leave nothing behind."""

import gc
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from loader_data import Drowsy, Handles, Loads, Numbered, Sleeps, Stream, Whoami, load_all, mark_dataset, numbers_in
from processes import forked, process, script, succeeds

from ringbuf import Closed, RingLoader, WorkerDied


def workers():
    """Our living children that are a loader's."""
    return [child for child in multiprocessing.active_children() if child.name.startswith("RingLoader")]


def usage():
    """What this process has open: descriptors, mappings of rings, threads."""
    maps = Path("/proc/self/maps").read_text()
    return len(os.listdir("/proc/self/fd")), maps.count("memfd:ringbuf"), threading.active_count()


def iterate_with_many_open_files(method):
    """From a thread, for then its workers are tied to it by one more descriptor."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    while opened[-1] < 1100:
        opened.append(os.dup(opened[0]))
    got = []

    def iterate():
        with RingLoader(Numbered(6), 2, num_workers=2, multiprocessing_context=method) as loader:
            got.extend(numbers_in(batch) for batch in loader)
            with pytest.raises(WorkerDied):
                for _ in range(100):
                    iterator = iter(loader)
                    os.kill(iterator._workers[0].pid, signal.SIGKILL)
                    list(iterator)
            got.append("died")

    thread = threading.Thread(target=iterate)
    thread.start()
    thread.join()
    assert got == [[0, 1], [2, 3], [4, 5], "died"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_trainer_with_many_open_files(method):
    """More than select() can look at."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this process may not have so many descriptors")
    with process(iterate_with_many_open_files, method, method="spawn") as child:  # a fork would share our forkserver
        assert succeeds(child)


# ---- the end of a pass ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_end_with_the_pass(method):
    with RingLoader(Numbered(6), 2, num_workers=2, multiprocessing_context=method) as loader:
        iterator = iter(loader)
        assert len(workers()) == 2
        for _ in iterator:
            pass
        assert workers() == []


def test_leaving_the_loop_early_ends_the_workers_at_once():
    with RingLoader(Numbered(1000), 2, num_workers=2) as loader:
        began = time.monotonic()
        for _ in range(10):
            for batch in loader:
                assert numbers_in(batch) == [0, 1]
                break
            assert workers() == []
    assert time.monotonic() - began < 10


def test_a_worker_among_samples_stops_before_its_batch_is_done():
    with RingLoader(Drowsy(0.02, 1000), 1000, num_workers=1) as loader:
        iterator = iter(loader)
        time.sleep(0.2)
        began = time.monotonic()
        del iterator
        assert time.monotonic() - began < 2
        assert workers() == []


def test_a_worker_in_a_long_sample_is_ended_after_the_deadline_without_an_error():
    with RingLoader(Sleeps(60, at=0), 1, num_workers=1) as loader:
        iterator = iter(loader)
        time.sleep(0.2)
        began = time.monotonic()
        del iterator
        assert 4 < time.monotonic() - began < 8
        assert workers() == []


def test_a_reference_cycle_does_not_keep_workers_for_ever():
    loader = RingLoader(Numbered(100), 2, num_workers=1)
    cycle = [iter(loader)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert workers() == []
    loader.close()


def test_an_iterator_outlives_the_loaders_name():
    iterator = iter(RingLoader(Numbered(6), 2, num_workers=2))
    gc.collect()
    assert [numbers_in(batch) for batch in iterator] == [[0, 1], [2, 3], [4, 5]]


def test_many_passes_leave_nothing():
    with RingLoader(Numbered(12), 2, num_workers=2) as loader:
        for _ in loader:
            pass
        gc.collect()
        before = usage()
        for turn in range(50):
            for _ in loader:
                if turn % 3 == 0:
                    break
        gc.collect()
        assert usage() == before


def test_many_passes_of_persistent_workers_leave_nothing():
    with RingLoader(Numbered(12), 2, num_workers=2, persistent_workers=True) as loader:
        for _ in loader:
            pass
        worker = workers()[0].pid

        def theirs():
            return len(os.listdir(f"/proc/{worker}/fd")), Path(f"/proc/{worker}/maps").read_text().count("memfd:ringbuf")

        before = usage(), theirs()
        for _ in range(50):
            for _ in loader:
                pass
        assert (usage(), theirs()) == before


def test_many_loaders_leave_nothing():
    def one():
        with RingLoader(Numbered(4, shape=(100, 100)), 2, num_workers=1) as loader:
            for _ in loader:
                pass

    one()
    gc.collect()
    before = usage()
    for _ in range(20):
        one()
    gc.collect()
    assert usage() == before


@pytest.mark.filterwarnings("ignore:RingLoader. .* slots are still looked at:UserWarning")
def test_kept_batches_take_no_descriptors():
    with RingLoader(Numbered(300), 1, num_workers=2) as loader:
        iterator = iter(loader)
        kept = [next(iterator)]
        before = usage()
        for _ in range(250):
            kept.append(next(iterator))
        assert usage() == before


# ---- several at once --------------------------------------------------------------------------------------------


def test_two_iterators_are_independent():
    with RingLoader(Numbered(12), 2, num_workers=1) as loader:
        one, other = iter(loader), iter(loader)
        got = []
        for _ in range(3):
            got.append((numbers_in(next(one)), numbers_in(next(one)), numbers_in(next(other))))
        assert got == [([0, 1], [2, 3], [0, 1]), ([4, 5], [6, 7], [2, 3]), ([8, 9], [10, 11], [4, 5])]
        assert list(one) == []
        assert [numbers_in(batch) for batch in other] == [[6, 7], [8, 9], [10, 11]]


def test_two_loaders_interleave():
    with RingLoader(Numbered(10), 1, num_workers=1) as one, RingLoader(Stream(10), 1, num_workers=1) as other:
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            assert numbers_in(left) == [number] == right.tolist()


def test_threads_share_an_iterator_and_each_batch_goes_to_one():
    with RingLoader(Numbered(200), 2, num_workers=2, slots=20) as loader:
        iterator = iter(loader)
        got = [[] for _ in range(4)]

        def work(mine):
            for batch in iterator:
                mine += numbers_in(batch)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in got]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(number for mine in got for number in mine) == list(range(200))


def test_a_loader_works_in_a_thread_that_ends_before_its_workers():
    found = []

    def begin():
        loader = RingLoader(Numbered(40), 2, num_workers=2)
        found.append(iter(loader))

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    time.sleep(0.3)
    assert [numbers_in(batch)[0] for batch in found.pop()] == list(range(0, 40, 2))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_daemonic_process_may_have_workers(method):
    queue = multiprocessing.get_context(method).SimpleQueue()
    with process(load_all, 2, queue, method=method) as child:
        assert child.daemon
        child.join(30)
        assert queue.get() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    queue.close()


def test_a_pools_process_may_have_workers():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(passes_in_pool) == [[0, 1], [2, 3]]


def passes_in_pool():
    with RingLoader(Numbered(4), 2, num_workers=2) as loader:
        return [numbers_in(batch) for batch in loader]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loaders_nest(method):
    with RingLoader(Loads(), 2, num_workers=2, multiprocessing_context=method) as loader:
        batches = [batch.tolist() for batch in loader]
    assert batches == [
        [[[0 + 100 * index, 1 + 100 * index], [2 + 100 * index, 3 + 100 * index]] for index in pair]
        for pair in ([0, 1], [2, 3])
    ]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_dataset_may_hold_locks_and_pipes(method):
    dataset = Handles(method)
    with RingLoader(dataset, 1, num_workers=2, multiprocessing_context=method) as loader:
        assert [int(batch[0]) for batch in loader] == list(range(6))
    assert sorted(dataset.reader.recv() for _ in range(6)) == list(range(6))
    dataset.reader.close()
    dataset.writer.close()


# ---- persistent workers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_persistent_workers_live_on(method):
    with RingLoader(
        Whoami(), 2, num_workers=2, persistent_workers=True, multiprocessing_context=method, worker_init_fn=mark_dataset
    ) as loader:
        pids = [{int(pid) for batch in loader for pid in batch["pid"]} for _ in range(3)]
        marks = [mark for batch in loader for mark in batch["mark"].tolist()]
    assert pids[0] == pids[1] == pids[2]
    assert len(pids[0]) == 2
    assert marks == [0, 0, 1, 1, 0, 0, 1, 1]


def test_a_persistent_loader_has_one_iterator_and_iter_starts_it_over():
    with RingLoader(Numbered(20), 2, num_workers=2, persistent_workers=True) as loader:
        first = iter(loader)
        assert [numbers_in(next(first)) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
        second = iter(loader)
        assert second is first
        assert [numbers_in(batch)[0] for batch in second] == list(range(0, 20, 2))


class Counted(Drowsy):
    def __init__(self, made, *arguments):
        super().__init__(*arguments)
        self.made = made

    def __getitem__(self, index):
        self.made.value += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("options", [{"dispatch": "pull"}, {"in_order": False}, {"seed_by": "sample"}], ids=str)
def test_starting_over_waits_for_no_more_than_the_sample_in_hand_where_no_random_stream_depends_on_it(options):
    fork = multiprocessing.get_context("fork")
    options = {"num_workers": 1, "persistent_workers": True, "prefetch_factor": 30, **options}
    with RingLoader(Counted(fork.Value("i", 0), 0.1, 40), 1, multiprocessing_context=fork, **options) as loader:
        next(iter(loader))
        assert next(iter(loader)).tolist() == [0]
        assert loader.dataset.made.value < 30


def test_starting_over_while_slots_grow():
    with RingLoader(Numbered(20, shape=(200, 200)), 2, num_workers=2, persistent_workers=True) as loader:
        for _ in range(3):
            iter(loader)
        assert [numbers_in(batch)[0] for batch in loader] == list(range(0, 20, 2))


def test_starting_over_with_batches_in_hand():
    with RingLoader(Numbered(20), 2, num_workers=2, persistent_workers=True) as loader:
        kept = []
        for _ in range(3):
            iterator = iter(loader)
            kept.append(next(iterator))
        assert [numbers_in(batch) for batch in kept] == [[0, 1]] * 3


def test_an_error_does_not_cost_persistent_workers_their_life():
    with RingLoader(Numbered(4), 1, num_workers=1, persistent_workers=True, collate_fn=refuse_two) as loader:
        for _ in range(2):
            iterator = iter(loader)
            assert [next(iterator), next(iterator)] == [0, 1]
            with pytest.raises(ValueError, match="two"):
                next(iterator)
        assert next(iterator) == 3


def refuse_two(samples):
    if samples[0]["y"] == 2:
        raise ValueError("two")
    return samples[0]["y"]


# ---- close ------------------------------------------------------------------------------------------------------


def test_a_closed_loader_begins_nothing_and_ends_what_is_under_way():
    loader = RingLoader(Numbered(20), 2, num_workers=2)
    iterator = iter(loader)
    batch = next(iterator)
    loader.close()
    loader.close()
    assert workers() == []
    assert numbers_in(batch) == [0, 1]
    with pytest.raises(StopIteration):
        next(iterator)
    with pytest.raises(Closed):
        iter(loader)


def test_closing_wakes_a_thread_that_waits():
    loader = RingLoader(Sleeps(2, at=0), 1, num_workers=1)
    iterator = iter(loader)
    caught = []

    def wait():
        try:
            next(iterator)
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    loader.close()
    thread.join(5)
    assert isinstance(caught[0], Closed)


@pytest.fixture
def on_alarm():
    """Sets what SIGALRM, which comes in a moment, shall do; ended when the test is."""
    before = signal.getsignal(signal.SIGALRM)

    def set_up(action):
        signal.signal(signal.SIGALRM, lambda *_: action())
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    yield set_up
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("ask", ["batch", "pass"])
def test_a_signal_handler_cannot_take_what_the_interrupted_call_waits_for(on_alarm, ask):
    with RingLoader(Sleeps(1, at=0), 1, num_workers=1, persistent_workers=True) as loader:
        iterator = iter(loader)
        on_alarm(lambda: next(iterator) if ask == "batch" else iter(loader))
        with pytest.raises(RuntimeError, match=r"was in next\(\)"):
            next(iterator)


def test_a_signal_handler_may_close_the_loader_of_the_interrupted_call(on_alarm):
    loader = RingLoader(Sleeps(1, at=0), 1, num_workers=1)
    iterator = iter(loader)
    on_alarm(loader.close)
    with pytest.raises(Closed, match="closed while this thread waited"):
        next(iterator)


def test_a_subclass_may_put_something_around_a_pass():
    class Numbering(RingLoader):
        def _get_iterator(self):
            return enumerate(super()._get_iterator())

    with Numbering(Numbered(4), 2, num_workers=1, persistent_workers=True) as loader:
        assert [number for number, _ in loader] == [0, 1]
        loader.reset()
        assert [number for number, _ in loader] == [0, 1]


# ---- forks of the main process ----------------------------------------------------------------------------------


def test_a_forked_child_leaves_its_parents_workers_alone():
    with RingLoader(Numbered(20), 2, num_workers=2) as loader:
        iterator = iter(loader)
        kept = next(iterator)

        def child():
            nonlocal iterator
            with pytest.raises(RuntimeError, match="belongs to process"):
                next(iterator)
            assert numbers_in(kept) == [0, 1]
            loader.close()
            del iterator
            gc.collect()

        assert forked(child) == 0
        assert [numbers_in(batch)[0] for batch in iterator] == list(range(2, 20, 2))


@pytest.mark.parametrize("persistent", [False, True])
def test_parent_and_forked_child_may_iterate_one_loader_at_the_same_time(persistent):
    with RingLoader(Numbered(400), 2, num_workers=1, persistent_workers=persistent) as loader:
        for _ in loader:
            pass

        def a_pass(first):
            loader.dataset.first = first  # to tell whose batches these are; persistent workers keep what they had
            first = 0 if persistent and os.getpid() == me else first
            assert [numbers_in(batch)[0] for batch in loader] == list(range(first, first + 400, 2))

        me = os.getpid()
        child = os.fork()
        if child == 0:
            os._exit(forked_status(lambda: a_pass(5000), loader))
        a_pass(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        a_pass(0)


def forked_status(function, loader):
    try:
        function()
        loader.close()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


# ---- the end of the program -------------------------------------------------------------------------------------

PROGRAM = """
import atexit, os, sys, threading, time
import numpy as np
import ringbuf

class Data:
    def __len__(self):
        return 400
    def __getitem__(self, index):
        return np.full(3, index)

class Holder:
    pass

def main():
    loader = ringbuf.RingLoader(Data(), 2, num_workers=2, persistent_workers={persistent})
{body}

main()
"""

ENDINGS = {
    "global": ("global it; it = iter(loader); next(it)", 0),
    "class attribute": ("Holder.it = iter(loader); next(Holder.it)", 0),
    "kept batch": ("global b; b = next(iter(loader))", 0),
    "cycle": ("it = iter(loader); next(it); x = [it]; x.append(x)", 0),
    "sys.exit": ("global it; it = iter(loader); next(it); sys.exit(5)", 5),
    "os._exit": ("global it; it = iter(loader); next(it); os._exit(6)", 6),
    "atexit": ("atexit.register(lambda: print(sum(len(b) for b in loader)))", 0),
    "daemon thread": (
        "threading.Thread(target=lambda: [time.sleep(0.05) for b in loader], daemon=True).start(); time.sleep(0.4)",
        0,
    ),
    "daemon thread that waits": (
        "loader.dataset.__class__.__getitem__ = lambda self, i: time.sleep(0.5) or i\n"
        "    threading.Thread(target=lambda: list(loader), daemon=True).start(); time.sleep(0.3)",
        0,
    ),
}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("body", "status"), ENDINGS.values(), ids=ENDINGS.keys())
def test_the_program_ends_quietly_whatever_is_under_way(body, status, persistent):
    began = time.monotonic()
    done = script(PROGRAM.format(body="    " + body, persistent=persistent))
    assert (done.returncode, done.stderr) == (status, "")
    assert time.monotonic() - began < 8
    assert done.stdout == ("400\n" if "atexit" in body else "")


def test_the_program_ends_with_the_users_error_while_a_large_task_is_out():
    done = script(
        "import ringbuf, numpy as np\n"
        "sampler = list(range(40960)) * 10\n"
        "loader = ringbuf.RingLoader(np.arange(40960), 40960, sampler=sampler, num_workers=1, prefetch_factor=10)\n"
        "it = iter(loader); next(it)\n"
        "raise ValueError('mine')\n"
    )
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ValueError: mine")
    assert done.stderr.count("Traceback") == 1


INTERRUPTS = """
import random, signal, threading, time
import ringbuf

class Data:
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return index

def interrupt(thread):
    while not enough:
        time.sleep(random.uniform(0.0005, 0.004))
        signal.pthread_kill(thread, signal.SIGINT)

def load(until):
    loader = ringbuf.RingLoader(Data(), 2, num_workers=2, persistent_workers={persistent})
    iterator, expected, passes = None, 0, 0
    while time.monotonic() < until or not passes:
        try:
            if iterator is None:
                expected = 0
                iterator = iter(loader)
            for batch in iterator:
                first, last = batch.tolist()
                assert first == expected, (first, expected)
                expected = last + 1
            assert expected == 1000, expected
            iterator = None
            passes += 1
        except KeyboardInterrupt:
            pass
        except RuntimeError as error:
            assert "interrupted" in str(error), error
            iterator = None

list(ringbuf.RingLoader(Data(), 500, num_workers=1))  # imports all that it needs
enough = False
threading.Thread(target=interrupt, args=(threading.get_ident(),), daemon=True).start()
try:
    load(time.monotonic() + 3)
finally:
    enough = True
"""


@pytest.mark.parametrize("persistent", [False, True])
def test_interrupts_at_any_moment_lose_no_batch_in_silence(persistent):
    done = script(INTERRUPTS.format(persistent=persistent))
    # The last interrupts may hit the script itself, outside of any loader.
    assert "Error" not in done.stderr.replace("KeyboardInterrupt", ""), done.stderr


# ---- limits -----------------------------------------------------------------------------------------------------


def test_few_descriptors_are_enough_for_many_batches():
    done = script(
        "import resource, ringbuf, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "loader = ringbuf.RingLoader(list(range(1000)), 1, num_workers=4)\n"
        "kept = [b for _ in range(3) for b in loader]\n"
        "assert [int(b[0]) for b in kept] == list(range(1000)) * 3\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


TINY = """
import numpy as np
import ringbuf

class Images:                                               # 8 slots of 8 MiB where /dev/shm has 4 MiB
    def __len__(self):
        return 32
    def __getitem__(self, index):
        return np.full(1 << 21, index, np.uint8)

with ringbuf.RingLoader(Images(), 4, num_workers=2, slots=8) as loader:
    assert [batch[:, -1].tolist() for batch in loader] == np.arange(32).reshape(8, 4).tolist()
    assert loader.stats().slots * loader.stats().slot_bytes >= 64 << 20
"""


def test_a_small_dev_shm_is_enough():
    mount_and_run = 'mount -t tmpfs -o size=4m tmpfs /dev/shm && exec "$@"'
    wrapper = ["unshare", "--mount", "--map-root-user", "sh", "-c", mount_and_run, "sh"]
    if not shutil.which("unshare") or subprocess.run([*wrapper, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system does not let us mount a small /dev/shm in a namespace of our own")
    done = script(TINY, wrapper=wrapper)
    assert (done.returncode, done.stderr) == (0, "")


NO_PROCESSES = """
import os, resource, sys
import ringbuf

list(ringbuf.RingLoader([1], num_workers=1))  # imports all that it needs
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))
loader = ringbuf.RingLoader(list(range(8)), num_workers=8)
try:
    iter(loader)
except OSError as error:
    print(error)
print(len(os.listdir("/proc/self/fd")))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user, whose number of processes is known")
def test_a_limit_on_processes_is_named_and_nothing_stays():
    done = script(NO_PROCESSES)
    assert "RLIMIT_NPROC" in done.stdout
    assert "worker 2 of 8" in done.stdout
    assert done.returncode == 0


def test_few_cores_are_warned_about_at_construction_and_at_each_pass():
    cores = len(os.sched_getaffinity(0))
    with pytest.warns(UserWarning, match=f"num_workers={cores + 1}.* {cores} cores"):
        loader = RingLoader([1], num_workers=cores + 1)
    with loader, pytest.warns(UserWarning, match="cores"):
        iter(loader)


# ---- memory -----------------------------------------------------------------------------------------------------


def test_memory_stays_the_same_over_many_passes():
    with RingLoader(Numbered(10, shape=(100,)), 2, num_workers=1, persistent_workers=True) as loader:

        def passes(count):
            for _ in range(count):
                for _ in loader:
                    pass
            gc.collect()
            return sum(psutil.Process(pid).memory_full_info().uss for pid in (os.getpid(), workers()[0].pid))

        # Until the first collections have touched every page that a fork left shared.
        before = passes(400)
        assert passes(400) - before < 400 * 1024
