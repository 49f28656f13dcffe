"""One run of one peer, in this process: `python -m benchmarks.py.measure PEER WORKLOAD-AS-JSON`.

Writes one line of JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict
from importlib import import_module
from typing import Any

from benchmarks.py.peers import NAMES
from benchmarks.py.workload import Images, Inspector, Workload


def measure(peer: str, workload: Workload) -> dict[str, Any]:
    """Run one epoch and say how long its parts took.

    total_s: from iter() to the end of the loop, with starting the workers and stopping them.
    first_s: from iter() to the first batch.
    steady_s: from the last batch that `workload.unsteady` leaves out to the last batch of all.
    cpu_s: processor time of the consuming process over total_s.
    workers_cpu_s: processor time of its workers, from their start to their end.
    peak_rss_bytes: largest resident set of the consuming process, shared pages that it touched included.
    """
    module = import_module(f"benchmarks.py.peers.{NAMES[peer]}")
    dataset = Images(workload)
    inspector = Inspector(dataset, workload)
    arrivals = []
    with module.open(dataset, workload) as batches:
        cpu, start = time.process_time(), time.perf_counter()
        for images, labels in batches:
            inspector.look_at(images, labels)
            arrivals.append(time.perf_counter())
        total_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
        inspector.finish()
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "label": module.LABEL,
        "versions": module.versions(),
        "total_s": total_s,
        "first_s": arrivals[0] - start,
        "steady_s": arrivals[-1] - arrivals[workload.unsteady - 1],
        "cpu_s": cpu_s,
        "workers_cpu_s": workers.ru_utime + workers.ru_stime,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def command(peer: str, workload: Workload) -> list[str]:
    """The command line that makes a fresh interpreter do it."""
    return [sys.executable, "-m", "benchmarks.py.measure", peer, json.dumps(asdict(workload))]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Workload(**json.loads(sys.argv[2])))))
