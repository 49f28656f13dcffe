"""Fails one system call after another of a loader that starts, in its main process or in a worker, and looks at what comes of it.

    harness.py LIBRARY main|worker [--thorough]            all cases
    harness.py LIBRARY main|worker NTH PICK PERSISTENT     the one that a failure names

LIBRARY is library.c, built. The harness has everything imported and warm; each case is a fork of it, so that thousands are
feasible. Prints what failed, then {"figures": ...} as JSON; exits 77 where ptrace is not permitted.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import mmap
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a fork has one thread: be like it

import numpy as np

import ringbuf
from ringbuf import RingLoader

WORKERS = 2
SAMPLES, BATCH = 8, 2
PATIENCE_MS = 30000
END_S = 30.0
MOST_FAILURES = 25
PR_SET_CHILD_SUBREAPER = 36
UNTOUCHED, UNKNOWN_CALL = 0, 38


# Calls for which there is another way, or which only make things faster, or which are tried again.
DISPENSABLE = {
    b"pidfd_open",
    b"prctl(PR_SET_PDEATHSIG)",
    b"madvise(MADV_POPULATE_READ)",
    b"prlimit",
    b"sched_getaffinity",
    b"futex(WAKE)",
    b"futex(WAIT)",
    b"wait4",
}


class Plan(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("nth", "pick", "persistent", "patience_ms")]


class Seen(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("calls", "errors", "error", "injections", "status", "hung", "broken")),
        ("number", ctypes.c_long),
        ("name", ctypes.c_char * 32),
    ]


class Dataset:
    """Closes the window of the worker that makes its second sample: by then it has answered its first task."""

    close = None

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if self.close is not None and index >= BATCH * WORKERS:
            self.close()
        return {"x": np.full((3, 4), index, np.float32), "y": index}


def numbers(batch):
    assert (batch["x"] == batch["y"][:, None, None]).all()
    return batch["y"].tolist()


ALL = [list(range(at, at + BATCH)) for at in range(0, SAMPLES, BATCH)]


def target_of(descriptor):
    """What a descriptor leads to; None for what Python itself keeps, and for the one that lists them."""
    with contextlib.suppress(OSError):
        target = os.readlink(f"/proc/self/fd/{descriptor}")
        return None if target == "/dev/urandom" else target
    return None


def belongings():
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    with open("/proc/self/status") as status:
        threads = next(line for line in status if line.startswith("Threads:"))
    return {
        "descriptors": sorted(filter(None, map(target_of, os.listdir("/proc/self/fd")))),
        "mappings of rings": maps.count("memfd:ringbuf") + maps.count("/dev/shm/ringbuf."),
        "threads": int(threads.split()[1]),
    }


def whole_pass(loader):
    got: list = []
    for batch in loader:
        got.append(numbers(batch))
        del batch
    return got


def children_left():
    with contextlib.suppress(ChildProcessError):
        return [os.waitpid(-1, os.WNOHANG)]
    return []


class Wrong(Exception):
    """What a case did that it must not."""


def insist(condition, text):
    if not condition:
        raise Wrong(text)


# ---- the victim


def is_clean(error):
    """Whether an error is one that a person can act on, or at least a plain one."""
    if isinstance(error, MemoryError):
        return True
    if str(getattr(error, "filename", "")).startswith("/proc/"):  # where one looked for advice is nobody's concern
        return False
    return isinstance(error, (OSError, ringbuf.RingbufError)) and bool(str(error).strip())


def start_and_look(library, in_worker):
    """Start a loader with something failing. Returns how it went: "success", or the error's type and text."""
    loader = RingLoader(Dataset(), BATCH, num_workers=WORKERS)
    if in_worker:
        loader.dataset.close = library.fault_close
    outcome, got = "success", []
    iterator = None
    if library.fault_open() < 0:
        os._exit(77)
    try:
        iterator = iter(loader)
        got.append(numbers(next(iterator)))
        if not in_worker:
            library.fault_close()
        for batch in iterator:
            got.append(numbers(batch))
            del batch
    except Exception as error:
        library.fault_close()
        insist(is_clean(error), f"no clean error: {''.join(traceback.format_exception(error))}")
        outcome = f"{type(error).__name__}: {error}"
    finally:
        library.fault_close()
    if outcome == "success":
        insist(got == ALL, f"wrong batches: {got}")
    else:  # what other workers had finished comes before the error
        insist(got == [batch for batch in ALL if batch in got], f"wrong batches before the error: {got}")
    del iterator
    loader.dataset.close = None
    insist(whole_pass(loader) == ALL, "another pass of the same loader goes wrong")
    loader.close()
    return outcome


def be_victim(library, in_worker, report):
    try:
        before = belongings()
        outcome = start_and_look(library, in_worker)
        insist(whole_pass(RingLoader(Dataset(), BATCH, num_workers=WORKERS)) == ALL, "a new loader goes wrong")
        after = belongings()
        insist(after == before, f"left behind: {after} after {before}")
        insist(children_left() == [], f"a child is left: {children_left()}")
        said = {"outcome": outcome}
    except Wrong as wrong:
        said = {"wrong": str(wrong)}
    except BaseException:
        said = {"wrong": traceback.format_exc()}
    os.write(report, json.dumps(said).encode())


# ---- the tracer


class Harness:
    def __init__(self, library, where):
        self.library = ctypes.CDLL(library)
        self.in_worker = where == "worker"
        self.where = where
        self.memory = mmap.mmap(-1, ctypes.sizeof(Seen))
        self.seen = Seen.from_buffer(self.memory)
        self.cases = self.injections = self.errors = self.failures = 0
        self.calls, self.outcomes = set(), {}
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)

    def case(self, nth, pick, persistent):
        """Run one. Returns how many errors there are to choose from at this call; 0: there is no such call."""
        plan = Plan(nth, pick, persistent, PATIENCE_MS)
        report, stderr = os.memfd_create("report"), os.memfd_create("stderr")
        pid = os.fork()
        if pid == 0:
            os.dup2(stderr, 2)
            be_victim(self.library, self.in_worker, report)
            os._exit(0)
        if self.in_worker:
            self.library.fault_run_in_child(pid, 1, ctypes.byref(plan), ctypes.byref(self.seen))
        else:
            self.library.fault_run(pid, ctypes.byref(plan), ctypes.byref(self.seen))
        status = self.await_end(pid)
        orphans = self.bury_orphans()
        said = self.read(report)
        printed = self.read(stderr)
        wrong = self.verdict(status, said, printed, orphans)
        seen = self.seen
        if wrong:
            self.failures += 1
            name = f"{self.where} {nth} {pick} {int(persistent)}"
            what = f"{seen.name.decode()}: {os.strerror(seen.error)}" if seen.error else "untouched"
            print(f"{name} ({what}): {wrong}", file=sys.stderr, flush=True)
            if self.failures >= MOST_FAILURES:
                sys.exit(1)
        if seen.injections:
            self.cases += 1
            self.injections += seen.injections
            self.calls.add(seen.name)
            outcome = json.loads(said or "{}").get("outcome", "?")
            self.errors += outcome != "success"
            kind = f"{seen.name.decode()}: {outcome[:160]}"
            self.outcomes[kind] = self.outcomes.get(kind, 0) + 1
        return seen.errors

    def await_end(self, pid):
        deadline = time.monotonic() + END_S
        if self.seen.status != -1 and not self.in_worker:
            return self.seen.status
        while time.monotonic() < deadline:
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                return self.seen.status
            if ended:
                return status
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return None

    def bury_orphans(self):
        """Processes that outlived the victim; they get a moment to end by themselves."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                ended, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return []
            if not ended:
                time.sleep(0.002)
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
            os.waitpid(int(child), 0)
        return children

    @staticmethod
    def read(descriptor):
        with open(descriptor, "rb") as file:
            file.seek(0)
            return file.read().decode(errors="replace")

    def verdict(self, status, said, printed, orphans):
        seen = self.seen
        if seen.broken == UNKNOWN_CALL:
            return f"the table of fault.h does not know system call {seen.number}"
        if seen.broken:
            return f"ptrace: {os.strerror(seen.broken)}"
        if seen.hung:
            return "hangs within the window"
        if status is None:
            return "hangs"
        if status == 77 << 8:
            sys.exit(77)
        if status != 0:
            return f"ended with status {status:#x}; said {said!r}, printed {printed!r}"
        said = json.loads(said)
        if "wrong" in said:
            return said["wrong"] + (f"; printed {printed!r}" if printed else "")
        if printed and not (self.in_worker and self.may_print(said["outcome"], printed)):
            return f"printed {printed!r}; {said['outcome']}"
        if seen.name in DISPENSABLE and said["outcome"] != "success":
            return f"fails, though it can do without: {said['outcome']}"
        if orphans:
            return f"left processes {orphans}"
        return None

    def may_print(self, outcome, printed):
        """A worker that could not even reach its loader says so where multiprocessing does, and the loader says that."""
        told = "which it printed" in outcome and "Its last words" not in outcome
        return told and printed.startswith("Process RingLoader worker") and "Traceback (most recent call last)" in printed

    # ---- all of them

    def sweep(self, thorough):
        nth, shown = 0, time.monotonic()
        while True:
            nth += 1
            errors = self.case(nth, nth, nth % 2)
            if not errors:
                break
            for pick in range(errors if thorough else 0):
                for persistent in (0, 1):
                    if (pick, persistent) != (nth % errors, nth % 2):
                        self.case(nth, pick, persistent)
            if thorough and time.monotonic() - shown > 3:
                shown = time.monotonic()
                print(f"{self.where}: call {nth}, {self.cases} cases", file=sys.stderr, flush=True)

    def figures(self):
        return {
            "cases": self.cases,
            "injections": self.injections,
            "system_calls": len(self.calls),
            "errors": self.errors,
            "successes": self.cases - self.errors,
        }


def main():
    library, where, *rest = sys.argv[1:]
    warnings.simplefilter("always")  # what is not closed says so on stderr, which shall be empty
    assert whole_pass(RingLoader(Dataset(), BATCH, num_workers=WORKERS)) == ALL
    gc.collect()
    gc.freeze()
    harness = Harness(library, where)
    if len(rest) == 3:
        harness.case(*map(int, rest))
    else:
        harness.sweep("--thorough" in rest)
    if "--outcomes" in rest or len(rest) == 3:
        for outcome, times in sorted(harness.outcomes.items()):
            print(f"{times:4} {outcome}")
    print(json.dumps({"figures": harness.figures()}))
    sys.exit(harness.failures > 0)


if __name__ == "__main__":
    main()
