"""Small programs that use a loader and end in many ways, for test_exit.py: python -m conformance.exits LOADER DIRECTORY

Each is the rest of this process, forked when all is imported. So each goes through the whole end of an interpreter, without
taking seconds to begin. What became of each is written into the directory, as JSON.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import torch
from torch.utils.data import Dataset, IterableDataset

from conformance.conftest import LOADERS

ENDS = ["leaves_the_loop", "finishes", "main_error", "sample_error", "main_killed"]
ENDS_OF_WORKERS = ["worker_killed"]
AT_ONCE = 6  # programs, which mostly wait
DEADLINE_S = 30.0
GONE_S = 15.0  # for workers of a main process that was killed

HELD = []


class Map(Dataset):
    def __init__(self, bad=None):
        self.bad = bad

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == self.bad:
            raise ValueError("sample error")
        return torch.full((100,), index)


class Iterable(IterableDataset):
    def __init__(self, bad=None):
        self.map = Map(bad)

    def __iter__(self):
        return (self.map[index] for index in range(len(self.map)))


def cases():
    """Of every program, what it is like."""
    for kind in ("map", "iterable"):
        yield from (f"{kind}-0_workers-held-{end}" for end in ENDS)
        yield from (f"{kind}-2_workers-{held}-{end}" for held in ("dropped", "held") for end in [*ENDS, *ENDS_OF_WORKERS])
    yield "map-1_workers-held-many_indices"


def program(Loader, case, report):
    kind, workers, held, end = case.split("-")
    dataset = {"map": Map, "iterable": Iterable}[kind](bad=7 if end == "sample_error" else None)
    workers = int(workers.partition("_")[0])
    if end == "many_indices":
        batches = [[0] * 40_960] * 10
        loader = Loader(dataset, batch_sampler=batches, collate_fn=len, num_workers=workers, prefetch_factor=10)
    else:
        loader = Loader(dataset, 2, num_workers=workers)
    iterator = iter(loader)
    pids = [worker.pid for worker in iterator._workers] if workers else []
    report.write_text(json.dumps(pids))
    if held == "held":
        HELD.append(iterator)
    for number, _ in enumerate(iterator):
        if end == "many_indices" or (end == "main_error" and number == 3):
            raise RuntimeError("main error")
        if end == "leaves_the_loop" and number == 3:
            break
        if end == "main_killed" and number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if end == "worker_killed" and number == 2:
            os.kill(pids[0], signal.SIGKILL)


def begin(Loader, case, directory):
    """Fork; in the child return None, having run the program or let its error through."""
    pid = os.fork()
    if pid:
        return pid
    output = os.open(directory / f"{case}.err", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    program(Loader, case, directory / f"{case}.pids")
    return None


def await_end(case, pid, directory):
    """The exit code of a program; None when it had to be ended by force."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def alive(pids):
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


def main(which, directory):
    module, name = LOADERS[which]
    Loader = getattr(importlib.import_module(module), name)
    gc.collect()
    gc.freeze()  # what is here already need not be looked at, and so not be copied, at the end of each program
    codes = {}
    running = {}
    for case in [*cases(), None]:
        while running and (case is None or len(running) >= AT_ONCE):
            first = next(iter(running))
            codes[first] = await_end(first, running.pop(first), directory)
        if case is not None:
            running[case] = begin(Loader, case, directory)
            if running[case] is None:
                return
    left = {case: json.loads((directory / f"{case}.pids").read_text()) for case in codes}
    deadline = time.monotonic() + GONE_S
    while any(map(alive, left.values())) and time.monotonic() < deadline:
        time.sleep(0.01)
    outcome = {}
    for case, code in codes.items():
        survivors = alive(left[case])
        outcome[case] = {"code": code, "survivors": survivors, "output": (directory / f"{case}.err").read_text()}
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)
    (directory / "outcome.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
