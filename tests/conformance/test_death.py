"""Workers that die, and a main process that does.

Of torch's own suite: TestDataLoader's segfault in a worker; and what its test_proper_exit leaves out, worker killed and main
process killed with workers.
"""

import contextlib
import multiprocessing
import os
import signal

import psutil
import pytest
import torch
from processes import eventually

from conformance.data import Dies, Numbers, Stream
from conformance.expect import chain, children, either, is_ours


@pytest.mark.parametrize(
    "how, named",
    [
        ("segfault", ("Segmentation fault", "SIGSEGV")),
        ("SIGKILL", ("Killed", "SIGKILL")),
        ("SIGABRT", ("Aborted", "SIGABRT")),
        (3, ("exited unexpectedly with exit code 3", "exit code 3")),
        (0, ("exited unexpectedly", "exit code 0")),
        (SystemExit(4), ("exit code 4", "exit code 4")),
    ],
    ids=str,
)
def test_a_worker_that_dies_is_a_runtime_error_that_names_its_pid(Loader, how, named):
    # torch hears of every death but one with exit code 0, and finds that one when a timeout has passed (5 s where there is none).
    loader = Loader(Dies(how, at=0), num_workers=1, timeout=0.1 if how == 0 else 0)
    with pytest.raises(RuntimeError, match="DataLoader worker") as caught:
        iterator = iter(loader)
        pid = iterator._workers[0].pid
        assert how != 0 or eventually(lambda: gone(pid))
        next(iterator)
    text = chain(caught.value)
    assert str(pid) in text
    assert either(Loader, torch=named[0], ringbuf=named[1]) in text


def test_the_other_workers_end_when_one_has_died(Loader):
    """Ours by themselves; torch's when the iterator is told to, or gone."""
    iterator = iter(Loader(Dies("SIGKILL", at=0), num_workers=2))
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        list(iterator)
    if not is_ours(Loader):
        with contextlib.suppress(RuntimeError):  # torch's handler of SIGCHLD raises wherever the main process happens to be
            iterator._shutdown_workers()
        iterator._shutdown_workers()
    assert eventually(lambda: not children())


def test_batches_that_are_finished_come_before_the_death_of_a_worker(Loader):
    """With torch they may be lost: its handler of SIGCHLD raises wherever the main process happens to be."""
    made = multiprocessing.Semaphore(0)
    numbers = []
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        for batch in Loader(Dies("SIGKILL", at=3, length=4, others=made), num_workers=2):
            numbers.append(batch.item())
    assert numbers in either(Loader, torch=([], [0], [0, 1], [0, 1, 2]), ringbuf=([0, 1, 2],))


def test_a_loader_whose_worker_died_can_be_iterated_anew(Loader):
    dataset = Dies("SIGKILL", at=1, length=3)
    loader = Loader(dataset, num_workers=1)
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        list(loader)
    dataset.at = None
    assert torch.cat(list(loader)).tolist() == [0, 1, 2]


# ---- the main process is killed ---------------------------------------------------------------------------------


def load_and_wait(Loader, dataset, options, report):
    loader = Loader(dataset, 1, num_workers=2, **options)
    iterator = iter(loader)
    next(iterator)
    if options.get("persistent_workers"):
        for _ in iterator:
            pass
    report.send([worker.pid for worker in iterator._workers])
    signal.pause()


def gone(pid):
    """Whether a process has ended, whoever has to bury it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def test_workers_end_when_the_main_process_was_killed(Loader):
    """Whether they wait for tasks, for room, or for another pass. torch's look every 5 s whether they are orphans."""
    pids = []
    with contextlib.ExitStack() as stack:
        mains = []
        for dataset, options in [
            (Numbers(1000), {}),
            (Stream(1000), {"prefetch_factor": 8}),
            (Numbers(4), {"persistent_workers": True}),
        ]:
            receiver, sender = multiprocessing.Pipe(duplex=False)
            child = multiprocessing.get_context("fork").Process(target=load_and_wait, args=(Loader, dataset, options, sender))
            child.start()
            stack.callback(child.join, 30)
            stack.callback(child.kill)
            assert receiver.poll(30)
            pids += receiver.recv()
            mains.append(child)
        assert len(pids) == 6 and not any(map(gone, pids))
        for child in mains:
            os.kill(child.pid, signal.SIGKILL)
    assert eventually(lambda: all(map(gone, pids)), within_s=either(Loader, torch=15, ringbuf=5))
