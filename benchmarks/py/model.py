"""A model of the loader's rate in four numbers, and how near it comes to what is measured.

    python -m benchmarks.py.model                 # a minute or two

    rate = min(n / w, 1 / c, p / (w + c))         batches per second
    w = s + W + B / copy                          seconds of a worker's processor for a batch
    c = C + step                                  seconds of the consumer's

n workers on p processors; samples that take s seconds of a batch to make; batches of B bytes; a consumer that needs `step`
seconds for a batch. W and C are what a batch costs besides its bytes, and `copy` is how many bytes per second a
processor copies while all of them do. These three are measured here: W and C as processor time of a pass over
batches of 8 KB, `copy` by as many processes as there are processors, from memory into slots. What follows from it stands
in docs/performance.md.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
import time
from statistics import median
from typing import Any

from benchmarks.py import machine
from benchmarks.py.figures import digits
from benchmarks.py.turns import in_fresh_process
from benchmarks.py.workloads import Workload
from ringbuf import RingBuffer, RingLoader
from ringbuf._core import copy_into

ROUNDS = 3
WORKERS = (1, 2, 4)
BATCHES = {"small": 20_000, "mem": 160}
COPY_S = 0.5


def measured(name: str, workers: int) -> dict[str, float]:
    """One pass: its steady rate, and the processor time that a batch took of the consumer and of a worker."""
    workload = Workload(name=name, batches=BATCHES[name], workers=workers)
    loader = RingLoader(
        workload.dataset(),
        batch_size=workload.batch_size,
        num_workers=workers,
        prefetch_factor=workload.prefetch,
        multiprocessing_context="fork",
    )
    arrivals, consumed = [], []
    with loader:
        for _ in loader:
            arrivals.append(time.perf_counter())
            consumed.append(time.process_time())
    first = workload.unsteady
    steady = len(arrivals) - first - 1
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "rate": steady / (arrivals[-1] - arrivals[first]),
        "consumer_s": (consumed[-1] - consumed[first]) / steady,
        "worker_s": (spent.ru_utime + spent.ru_stime) / len(arrivals),
    }


def samples_s() -> float:
    """What making the samples of a batch of `small` takes, without a loader."""
    dataset = Workload(name="small", batches=100, workers=1).dataset()
    began = time.process_time()
    for number in range(100):
        dataset.batch(number)
    return (time.process_time() - began) / 100


def copying() -> float:
    """Bytes per second of each of as many processes as there are processors, all at once."""
    processors = len(os.sched_getaffinity(0))
    fork = multiprocessing.get_context("fork")
    begin, results = fork.Barrier(processors), fork.SimpleQueue()
    processes = [fork.Process(target=_copy, args=(begin, results)) for _ in range(processors)]
    for process in processes:
        process.start()
    rates = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(rates) / processors


def _copy(begin: Any, results: Any) -> None:
    workload = Workload(name="mem", batches=8, workers=1)
    dataset = workload.dataset()
    samples = dataset.batch(0) + dataset.batch(1) + dataset.batch(2)
    with RingBuffer(slots=5, slot_bytes=workload.batch_bytes) as ring:
        slots = [memoryview(ring._core.claim()) for _ in range(5)]
        begin.wait()
        copied, began, turn = 0, time.perf_counter(), 0
        while (now := time.perf_counter()) - began < COPY_S:
            at = 0
            for row in range(workload.batch_size):
                sample = samples[(turn * workload.batch_size + row) % len(samples)]
                copy_into(slots[turn % 5][at : at + sample.nbytes], sample, streaming=True)
                at += sample.nbytes
            copied, turn = copied + at, turn + 1
        results.put(copied / (now - began))
        slots.clear()


def predicted(workers: int, processors: int, worker_s: float, consumer_s: float) -> float:
    """Batches per second."""
    return min(workers / worker_s, 1 / consumer_s, processors / (worker_s + consumer_s))


def main() -> int:
    points = [("copy", 0), *((name, workers) for name in BATCHES for workers in WORKERS)]
    runs: dict[tuple[str, int], list[Any]] = {point: [] for point in points}
    for number in range(ROUNDS):
        for name, workers in points:
            print(f"round {number + 1} of {ROUNDS}: {name}{f', {workers} workers' if workers else ''}", flush=True)
            command = [sys.executable, "-m", "benchmarks.py.model", name, str(workers)]
            runs[name, workers].append(in_fresh_process(command))
    processors = len(os.sched_getaffinity(0))
    copy = median(run["copy"] for run in runs["copy", 0])
    made = median(run["samples_s"] for run in runs["copy", 0])
    # With one worker and one consumer each has a processor of its own.
    alone = runs["small", 1]
    worker, consumer = (median(run[key] for run in alone) for key in ("worker_s", "consumer_s"))
    print(f"\nW = {1e6 * (worker - made):.0f} us, C = {1e6 * consumer:.0f} us, copy = {copy / 1e9:.1f} GB/s, p = {processors}")
    print(f"\n{'':8}{'workers':>8}{'predicted':>12}{'measured (min - max)':>30}{'ratio':>8}   batches per second")
    for name, workers in points[1:]:
        bytes_s = Workload(name=name, batches=8, workers=1).batch_bytes / copy if name == "mem" else 0.0
        guess = predicted(workers, processors, worker + bytes_s, consumer)
        rates = [run["rate"] for run in runs[name, workers]]
        found = f"{digits(median(rates))} ({digits(min(rates))} - {digits(max(rates))})"
        print(f"{name:8}{workers:8}{digits(guess):>12}{found:>30}{median(rates) / guess:8.2f}")
    about = machine.describe()
    print(f"\n{about['cpu']}, {about['cores']} cores, load {about['load']:.1f} afterwards")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(main())
    if sys.argv[1] == "copy":
        print(json.dumps({"copy": copying(), "samples_s": samples_s()}))
    else:
        print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
