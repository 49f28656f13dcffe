"""Workers that die, forks of all sorts, interrupts, threads, and loaders that are copied."""

import asyncio
import copy
import gc
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from field_data import Dies, Filled, Given, Loads, Stream, TakesLock, become_nobody, die_while_starting
from field_loaders import CORES, NumpyLoader, TorchLoader, both, numbers, rows, stream_for, torch, workers
from processes import DEADLINE_S, eventually, forked, script

import ringbuf
from ringbuf import BatchTimeout, WorkerDied

context = multiprocessing.get_context("fork")

# How to start the torch loader's part of a script without a word on the screen.
IMPORTS = {"numpy": "from ringbuf import RingLoader", "torch": "from ringbuf.torch import RingLoader"}

# ---- workers that die ---------------------------------------------------------------------------------------------

DEATHS = {
    "SIGKILL": (signal.SIGKILL, -9, "SIGKILL"),
    "SIGTERM": (signal.SIGTERM, -15, "SIGTERM"),
    "a null pointer": ("null", -11, "SIGSEGV"),
    "os._exit": ("os._exit", 3, "exit code 3"),
    "sys.exit()": (None, 0, "exit code 0"),
    "sys.exit('x')": ("last words", 1, "exit code 1"),
}


@both
@pytest.mark.parametrize(("how", "exitcode", "words"), DEATHS.values(), ids=DEATHS)
def test_a_death_is_told_with_worker_pid_cause_and_indices_after_what_was_finished(Loader, how, exitcode, words):
    gate = context.Event()
    with Loader(Dies(how, at=4, gate=gate), 2, num_workers=2, prefetch_factor=2, timeout=30) as loader:
        iterator = iter(loader)
        pids = [worker.pid for worker in iterator._workers]
        got = [rows(next(iterator)) for _ in range(2)]  # now 4 and 5 are the first worker's, and in its hands
        gate.set()
        with pytest.raises(WorkerDied) as caught:
            for batch in iterator:
                got.append(rows(batch))
        assert iterator._workers == []
    error = caught.value
    assert got[:2] == [[0, 1], [2, 3]] and [4, 5] not in got
    assert (error.worker_id, error.pid, error.exitcode) == (0, pids[0], exitcode)
    assert list(error.indices)[:2] == [4, 5]
    for part in (f"pid(s) {pids[0]}", "worker 0", "[4, 5", words):
        assert part in str(error)
    assert isinstance(error, RuntimeError)


@both
def test_a_worker_that_ends_while_it_starts_is_told_from_one_that_is_slow(Loader):
    with Loader(Filled(8), 2, num_workers=2, worker_init_fn=die_while_starting, timeout=30) as loader:
        with pytest.raises(WorkerDied) as caught:
            list(loader)
    assert (caught.value.worker_id, caught.value.exitcode) == (1, 4)


@both
def test_a_worker_that_ends_after_its_last_batch_is_missed_by_nobody(Loader):
    with Loader(Filled(4), 1, num_workers=2) as loader:
        iterator = iter(loader)
        got = [rows(next(iterator)) for _ in range(4)]
        for worker in iterator._workers:
            os.kill(worker.pid, signal.SIGKILL)
            worker.join(DEADLINE_S)
        assert list(iterator) == []
    assert got == [[0], [1], [2], [3]]


@both
def test_a_stopped_worker_is_late_not_dead(Loader):
    with Loader(Filled(40), 1, num_workers=2, timeout=0.3) as loader:
        iterator = iter(loader)
        got = rows(next(iterator))
        stopped = iterator._workers[1].pid
        os.kill(stopped, signal.SIGSTOP)
        try:
            with pytest.raises(BatchTimeout):
                for batch in iterator:
                    got += rows(batch)
        finally:
            os.kill(stopped, signal.SIGCONT)
        until = time.monotonic() + DEADLINE_S
        while len(got) < 40 and time.monotonic() < until:
            try:
                got += rows(next(iterator))
            except BatchTimeout:
                continue
    assert got == list(range(40))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up what it is")
@both
def test_a_worker_may_become_another_user_and_still_get_larger_slots(Loader):
    with Loader(Filled(12, (100, 100)), 2, num_workers=2, worker_init_fn=become_nobody, timeout=30) as loader:
        assert numbers(loader) == list(range(12))


# ---- Ctrl-C -------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, time
{imports}

class Slow:
    def __len__(self):
        return 100
    def __getitem__(self, index):
        time.sleep(0.01)
        return index

loader = RingLoader(Slow(), 2, num_workers=2, persistent_workers={persistent})
try:
    for number, batch in enumerate(loader):
        if number == 2:
            print("ready", *[p.pid for p in __import__("multiprocessing").active_children()], flush=True)
except KeyboardInterrupt:
    if {again}:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("again", sum(len(batch) for batch in loader), flush=True)
    else:
        raise
"""


def gone(pids):
    def lives(pid):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                return stat.read().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    return not any(map(lives, pids))


def interrupted(code, times):
    """Run a script in a session of its own and interrupt the whole group, once it is ready, so often in a row."""
    main = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        pids = main.stdout.readline().split()[1:]
        for turn in range(times):
            if turn:
                time.sleep(0.03)
            os.killpg(main.pid, signal.SIGINT)
        out, err = main.communicate(timeout=20)
    finally:
        main.kill()
        main.wait()
    assert eventually(lambda: gone(map(int, pids)), within_s=5)
    return out, err, main.returncode


@pytest.mark.parametrize("name", IMPORTS)
def test_ctrl_c_is_one_keyboard_interrupt_and_no_word_from_workers(name):
    code = INTERRUPTED.format(imports=IMPORTS[name], persistent=False, again=False)
    _, err, status = interrupted(code, 1)
    assert (err.count("KeyboardInterrupt"), err.count("Traceback"), status) == (1, 1, -signal.SIGINT), err


@pytest.mark.parametrize("persistent", [False, True])
def test_after_a_caught_ctrl_c_a_pass_is_whole(persistent):
    code = INTERRUPTED.format(imports=IMPORTS["torch" if persistent else "numpy"], persistent=persistent, again=True)
    assert interrupted(code, 1) == ("again 100\n", "", 0)


def test_ctrl_c_twice_in_a_row_leaves_no_worker_and_no_noise_of_theirs():
    _, err, status = interrupted(INTERRUPTED.format(imports=IMPORTS["numpy"], persistent=False, again=False), 2)
    assert status == -signal.SIGINT
    assert "Process RingLoader" not in err  # how a worker's own traceback would begin


# ---- forks --------------------------------------------------------------------------------------------------------


@both
def test_a_forked_child_ends_nothing_of_its_parents(Loader):
    with Loader(Filled(20), 2, num_workers=2) as loader:
        iterator = iter(loader)
        kept = next(iterator)
        box = [iterator]

        def child():
            with pytest.raises(RuntimeError, match="belongs to process"):
                next(box[0])
            assert rows(kept) == [0, 1]
            box.clear()
            nonlocal iterator
            del iterator
            gc.collect()
            loader.close()

        assert forked(child) == 0
        assert numbers(box[0]) == list(range(2, 20))


def in_pool(number):
    gc.collect()
    return number + 1


@both
def test_a_pool_and_another_loader_may_be_forked_while_workers_live(Loader):
    with Loader(Filled(20), 2, num_workers=2) as loader:
        iterator = iter(loader)
        got = rows(next(iterator))
        with context.Pool(2) as pool:
            assert pool.map(in_pool, range(4)) == [1, 2, 3, 4]
        with Loader(Filled(4), 2, num_workers=1) as other:
            assert numbers(other) == [0, 1, 2, 3]
        assert got + numbers(iterator) == list(range(20))


NORMAL_EXIT = """
import os, sys
{imports}

class Data:
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return index

loader = RingLoader(Data(), 2, num_workers=2, persistent_workers=True)
iterator = iter(loader)
next(iterator)
if os.fork() == 0:
    sys.exit(0)     # atexit handlers, module teardown, finalisers: all of it
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
print(sum(len(batch) for batch in iterator))
"""


@pytest.mark.parametrize("name", IMPORTS)
def test_a_forked_child_that_exits_like_any_program_makes_no_noise_and_ends_no_worker(name):
    done = script(NORMAL_EXIT.format(imports=IMPORTS[name]))
    assert (done.returncode, done.stdout, done.stderr) == (0, "38\n", "")


@both
def test_a_daemonic_process_may_have_workers(Loader):
    receiver, sender = context.Pipe(duplex=False)

    def load():
        with Loader(Filled(8), 2, num_workers=2) as loader:
            sender.send(numbers(loader))

    child = context.Process(target=load, daemon=True)
    child.start()
    assert receiver.poll(DEADLINE_S) and receiver.recv() == list(range(8))
    child.join(DEADLINE_S)
    assert child.exitcode == 0
    child.close()


def load_in_pool(Loader):
    with Loader(Filled(4), 2, num_workers=2) as loader:
        return numbers(loader)


@both
def test_a_pools_task_may_have_workers(Loader):
    with context.Pool(1) as pool:
        assert pool.apply(load_in_pool, (Loader,)) == [0, 1, 2, 3]


@both
def test_a_worker_may_have_workers(Loader):
    with Loader(Loads(Loader), 1, num_workers=2) as loader:
        assert [np.asarray(batch).tolist() for batch in loader] == [
            [[[0, 1], [2, 3]]],
            [[[100, 101], [102, 103]]],
        ]


@both
def test_locks_that_other_threads_hold_at_the_fork_do_not_hang_the_workers(Loader):
    """A thread logs, another allocates, a third goes through rings and passes of its own, while workers are forked."""
    over = threading.Event()
    logger = logging.getLogger("field")
    logger.addHandler(logging.NullHandler())

    def log():
        while not over.is_set():
            logger.warning("a word")

    def allocate():
        while not over.is_set():
            [bytes(100_000) for _ in range(5)]

    def load():
        while not over.is_set():
            with Loader(Filled(4), 2, num_workers=1) as loader:
                assert numbers(loader) == [0, 1, 2, 3]

    threads = [threading.Thread(target=work) for work in (log, allocate, load)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            with Loader(Filled(8), 2, num_workers=2, timeout=30) as loader:
                assert numbers(loader) == list(range(8))
    finally:
        over.set()
        for thread in threads:
            thread.join(DEADLINE_S)


@both
def test_a_worker_stuck_on_a_lock_that_was_held_at_the_fork_is_told_by_the_timeout(Loader):
    lock = threading.Lock()
    with Loader(TakesLock(lock), 2, num_workers=1, timeout=0.3) as loader:
        with lock:
            iterator = iter(loader)  # its workers have a copy of the lock, which nobody will ever release
            with pytest.raises(BatchTimeout, match=r"worker 0.*\[0, 1"):
                next(iterator)
        for worker in iterator._workers:
            os.kill(worker.pid, signal.SIGKILL)


# ---- spawn and __main__ -------------------------------------------------------------------------------------------

TOP_LEVEL = """
import sys
{imports}

class Data:
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return index

if __name__ == "__main__":
    loader = RingLoader(Data(), 2, num_workers=1, multiprocessing_context="spawn")
    print([batch.tolist() for batch in loader])
"""


@pytest.mark.parametrize("name", IMPORTS)
def test_a_dataset_at_the_top_of_a_script_is_found_by_spawned_workers(tmp_path, name):
    program = tmp_path / "program.py"
    program.write_text(TOP_LEVEL.format(imports=IMPORTS[name]))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[[0, 1], [2, 3]]\n", "")


NOTEBOOK = """
import ringbuf
cell = '''
class Data(list):
    pass
loader = ringbuf.RingLoader(Data([1, 2]), num_workers=1, multiprocessing_context="spawn", timeout=20)
'''
namespace = {"ringbuf": ringbuf, "__name__": "__main__"}
exec(cell, namespace)
import __main__
__main__.Data = namespace["Data"]
list(namespace["loader"])
"""


def test_a_dataset_typed_into_a_notebook_fails_with_the_workers_reason():
    done = script(NOTEBOOK)
    assert done.returncode == 1
    for words in ("AttributeError", "Data", "DataLoader worker process 0"):
        assert words in done.stderr


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")
@both
def test_a_dataset_of_a_local_class_is_refused_by_iter_under_spawn(Loader):
    class Local(list):
        pass

    with Loader(Local([1, 2]), num_workers=1, multiprocessing_context="spawn") as loader:
        with pytest.raises((AttributeError, pickle.PicklingError), match="Local"):
            iter(loader)
    assert workers() == []


# ---- copies of a loader -------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("state", ["new", "under way", "persistent", "closed"])
@pytest.mark.parametrize(
    "make", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))], ids=["copy", "deepcopy", "pickle"]
)
def test_a_copy_is_a_fresh_loader_and_the_original_goes_on(Loader, state, make):
    loader = Loader(Filled(6), 2, num_workers=1, persistent_workers=state == "persistent", slots=9)
    if state != "new":
        iterator = iter(loader)
        assert rows(next(iterator)) == [0, 1]
    if state == "closed":
        loader.close()
    with make(loader) as twin:
        assert (twin.batch_size, twin.num_workers, twin.slots, twin.stats().batches) == (2, 1, 9, 0)
        assert numbers(twin) == list(range(6))
    if state in ("under way", "persistent"):
        assert numbers(iterator) == [2, 3, 4, 5]
    loader.close()


# ---- threads ------------------------------------------------------------------------------------------------------


@both
def test_four_threads_share_a_pass_and_each_sees_its_end(Loader):
    with Loader(Filled(120), 2, num_workers=2, slots=20) as loader:
        iterator = iter(loader)
        got, ended = [[] for _ in range(4)], []

        def work(mine):
            for batch in iterator:
                mine += rows(batch)
            ended.append(True)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in got]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert len(ended) == 4
    assert sorted(number for mine in got for number in mine) == list(range(120))


@both
def test_a_loader_works_in_an_executor_beside_asyncios_own_children_and_touches_no_signal_handler(Loader):
    kinds = [kind for kind in signal.Signals if kind not in (signal.SIGKILL, signal.SIGSTOP)]

    async def main():
        before = [signal.getsignal(kind) for kind in kinds]
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print('alive')", stdout=subprocess.PIPE)

        def load():
            with Loader(Filled(20), 2, num_workers=2) as loader:
                return numbers(loader)

        got, (out, _) = await asyncio.gather(asyncio.get_running_loop().run_in_executor(None, load), child.communicate())
        assert [signal.getsignal(kind) for kind in kinds] == before
        return got, out, child.returncode

    assert asyncio.run(main()) == (list(range(20)), b"alive\n", 0)


@both
def test_a_loader_made_in_a_thread_that_ends_keeps_its_workers(Loader):
    made = []

    def begin():
        made.append(iter(Loader(Filled(20), 2, num_workers=2)))

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join(DEADLINE_S)
    assert eventually(lambda: not any(task.name == thread.name for task in threading.enumerate()))
    iterator = made.pop()
    assert len(workers()) == 2
    assert numbers(iterator) == list(range(20))


# ---- many workers -------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(CORES)
def test_sixty_four_workers_deliver_everything_in_order():
    with NumpyLoader(Filled(256, (2,)), 2, num_workers=64) as loader:
        assert numbers(loader) == list(range(256))
        assert loader.stats().copies == 0


@pytest.mark.filterwarnings(CORES, "ignore:This DataLoader will create:UserWarning")
def test_thirty_two_workers_deliver_tensors_in_order():
    with TorchLoader(Filled(128, (2,)), 2, num_workers=32) as loader:
        assert numbers(loader) == list(range(128))


# ---- what a dataset may hold --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_dataset_of_tensors_reaches_its_workers(method):
    data = torch.utils.data.TensorDataset(torch.arange(12.0).view(6, 2), torch.arange(6))
    with TorchLoader(data, 2, num_workers=1, multiprocessing_context=method) as loader:
        got = [(x.tolist(), y.tolist()) for x, y in loader]
    assert got == [([[4.0 * i, 4.0 * i + 1], [4.0 * i + 2, 4.0 * i + 3]], [2 * i, 2 * i + 1]) for i in range(3)]


def test_a_ring_may_be_held_by_a_dataset_and_used_in_its_workers():
    with ringbuf.RingBuffer(slots=16, slot_bytes=100) as ring:
        with NumpyLoader(Reports(ring), 2, num_workers=2) as loader:
            assert numbers(loader) == list(range(8))
        assert sorted(ring.get(timeout=0) for _ in range(8)) == list(range(8))


class Reports(Filled):
    def __init__(self, ring):
        super().__init__(8, (1,))
        self.ring = ring

    def __getitem__(self, index):
        self.ring.put(index, timeout=DEADLINE_S)
        return super().__getitem__(index)


@both
def test_streams_in_forked_workers_of_a_forked_process(Loader):
    def load():
        with Loader(stream_for(Loader, Stream([3, 4])), 2, num_workers=2) as loader:
            assert sorted(numbers(loader)) == [0, 1, 2, 1000, 1001, 1002, 1003]

    assert forked(load) == 0


@both
def test_a_closed_standard_input_does_not_get_into_the_workers_way(Loader):
    def load():
        os.close(0)
        with Loader(Given([1, 2, 3]), num_workers=2) as loader:
            assert [int(batch[0]) for batch in loader] == [1, 2, 3]

    assert forked(load) == 0
