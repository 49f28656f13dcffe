"""One run of one peer, in this process: `python -m benchmarks.py.measure PEER JSON [compare]`. Writes one line of JSON,
which is {"skipped": why} where the peer cannot be imported."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import warnings
from dataclasses import replace
from types import ModuleType
from typing import Any

from benchmarks.py.consumer import Consumer, compare
from benchmarks.py.peers import NAMES, Peer
from benchmarks.py.usage import memory_bytes
from benchmarks.py.workloads import Workload


def measure(name: str, workload: Workload, *, compared: bool = True) -> dict[str, Any]:
    """Run the epochs and say how long their parts took; then, if wanted, compare some batches whole, while no time runs.

    epochs: see `_epoch`. The first includes the start of the workers; a peer that can keep them does so for the others.
    workers_cpu_s: processor time of the workers, all epochs together, from their start to their end.
    faults, workers_faults: minor page faults, all epochs together, of the consumer and of the workers.
    memory_before_bytes: what this process had before the first epoch.
    """
    peer = NAMES[name]
    module = peer.load()
    if workload.name in peer.fewer:
        workload = workload.shortened(peer.fewer[workload.name])
    dataset, consumer = workload.dataset(), Consumer(workload)
    with module.open(workload, **peer.options) as batches:
        before, faults = memory_bytes([os.getpid()]), _faults(resource.RUSAGE_SELF)
        epochs = []
        for _ in range(workload.epochs):
            epochs.append(_epoch(batches, workload, consumer))
            faults_so_far = _faults(resource.RUSAGE_SELF) - faults
            consumer.finish(dataset)
            faults = _faults(resource.RUSAGE_SELF) - faults_so_far
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    if compared:
        _compare(module, peer, workload)
    return {
        "label": peer.label or module.LABEL,
        "versions": module.versions(),
        "batches": workload.batches,
        "epochs": epochs,
        "workers_cpu_s": workers.ru_utime + workers.ru_stime,
        "faults": faults_so_far,
        "workers_faults": workers.ru_minflt,
        "memory_before_bytes": before,
    }


def _epoch(batches: Any, workload: Workload, consumer: Consumer) -> dict[str, float]:
    """One epoch.

    total_s: from iter() to the end of the loop.
    first_s: from iter() to the first batch.
    steady_s: from the last batch that `workload.unsteady` leaves out to the last batch of all.
    cpu_s: processor time of the consuming process over total_s, all its threads.
    """
    first = mark = last = None
    leave_out = workload.unsteady
    cpu, start = time.process_time(), time.perf_counter()
    for number, batch in enumerate(batches, 1):
        consumer.look_at(batch)
        last = time.perf_counter()
        if first is None:
            first = last
        if number == leave_out:
            mark = last
    end = time.perf_counter()
    if first is None or mark is None:
        raise ValueError(f"{workload.batches} batches were due, the epoch ended before {leave_out} had arrived")
    return {
        "total_s": end - start,
        "first_s": first - start,
        "steady_s": last - mark,
        "cpu_s": time.process_time() - cpu,
    }


def _faults(whose: int) -> int:
    return resource.getrusage(whose).ru_minflt


def _compare(module: ModuleType, peer: Peer, workload: Workload) -> None:
    """Compare every byte of batches of one more epoch, short, but with slots used several times."""
    few = replace(workload, batches=min(workload.batches, 2 * workload.workers * workload.prefetch + 3), epochs=1)
    dataset = few.dataset()
    arrived = 0
    with module.open(few, **peer.options) as batches:
        for batch in batches:
            if arrived % few.kind.COMPARED == 0:
                compare(arrived, batch, dataset)
            arrived += 1
    if arrived != few.batches:
        raise ValueError(f"{few.batches} batches were due, {arrived} arrived")


def command(peer: str, workload: Workload, *, compared: bool = True) -> list[str]:
    """The command line that makes a fresh interpreter do it."""
    compare = ["compare"] if compared else []
    return [sys.executable, "-m", "benchmarks.py.measure", peer, json.dumps(workload.plain()), *compare]


def main(peer: str, workload: str, *rest: str) -> None:
    warnings.filterwarnings("ignore", message=".*workers", category=UserWarning)  # more of them than cores
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
    try:
        NAMES[peer].load()
    except ImportError as error:
        print(json.dumps({"skipped": str(error)}))
        return
    print(json.dumps(measure(peer, Workload(**json.loads(workload)), compared="compare" in rest)))


if __name__ == "__main__":
    main(*sys.argv[1:])
