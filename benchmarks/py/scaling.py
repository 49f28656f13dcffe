"""How the cost of a batch or message grows with their number, with workers and with slots: curves, not points.

    python -m benchmarks.py --only scaling                  # with the other parts of the benchmark
    python -m benchmarks.py.scaling batches 20000           # one curve up to there

batches     microseconds a small batch (8 KB) over a pass of 100 thousand (a million in the full set), 2 workers: flat, or
            something grows
workers     batches of 25 MB per second with 1 to 64 workers, and the time to the first of them; there are hardly that many cores
slots       nanoseconds of a put and a get of 64 bytes in one process, and the same with all slots but one lying filled
            before it, in rings of 8 to 4096 slots
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.py.turns import in_fresh_process
from benchmarks.py.workloads import Workload
from ringbuf import RingBuffer, RingLoader

POINTS = 50
SIZES = {
    "quick": {"batches": 100_000, "workers": 64, "slots": 4096},
    "full": {"batches": 1_000_000, "workers": 64, "slots": 4096},
    "tiny": {"batches": 200, "workers": 2, "slots": 16},
}
MESSAGE = bytes(64)
REPEATS = 2000


def _loader(workload: Workload) -> RingLoader:
    return RingLoader(
        workload.dataset(),
        batch_size=workload.batch_size,
        num_workers=workload.workers,
        prefetch_factor=workload.prefetch,
        multiprocessing_context="fork",
    )


def batches(most: int) -> list[dict[str, float]]:
    step = max(1, most // POINTS)
    points, seen = [], 0
    with _loader(Workload(name="small", batches=most, workers=2)) as loader:
        last = None
        for _ in loader:
            seen += 1
            if seen % step == 0:
                now = time.perf_counter()
                if last is not None:  # what comes before is the start
                    points.append({"batches": seen, "us": 1e6 * (now - last) / step})
                last = now
    if seen != most:
        raise ValueError(f"{most} batches were due, {seen} arrived")
    return points


def workers(most: int) -> list[dict[str, float]]:
    points, count = [], 1
    while count <= most:
        workload = Workload(name="mem", batches=max(4 * count, 64), workers=count)
        with _loader(workload) as loader:
            start, arrivals = time.perf_counter(), []
            for _ in loader:
                arrivals.append(time.perf_counter())
        steady = workload.batches - workload.unsteady
        rate = steady / (arrivals[-1] - arrivals[workload.unsteady - 1])
        points.append({"workers": count, "batches_per_s": rate, "first_s": arrivals[0] - start})
        count *= 2
    return points


def slots(most: int) -> list[dict[str, float]]:
    points, count = [], 8
    while count <= most:
        with RingBuffer(slots=count, slot_bytes=256) as ring:
            empty = _put_and_get(ring)
            for _ in range(count - 1):
                ring.put(MESSAGE)
            points.append({"slots": count, "empty_ns": empty, "full_ns": _put_and_get(ring)})
        count *= 2
    return points


def _put_and_get(ring: RingBuffer) -> float:
    """Nanoseconds for both, the best of some: nothing else is of interest in one process."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(REPEATS):
            ring.put(MESSAGE)
            ring.get()
        best = min(best, time.perf_counter() - start)
    return 1e9 * best / REPEATS


CURVES: dict[str, Callable[[int], list[dict[str, float]]]] = {"batches": batches, "workers": workers, "slots": slots}


def run_all(size: str) -> dict[str, Any]:
    """Every curve once, each in a fresh process."""
    result: dict[str, Any] = {"curves": {}, "failures": {}}
    for name, most in SIZES[size].items():
        try:
            points = in_fresh_process([sys.executable, "-m", "benchmarks.py.scaling", name, str(most)])["points"]
            result["curves"][name] = points
            said = ", ".join(f"{key} {value:,.4g}" for key, value in points[-1].items())
        except RuntimeError as error:
            result["failures"][name] = str(error)
            said = f"failed: {error}"
        print(f"scaling, {name}: {said}", flush=True)
    return result


if __name__ == "__main__":
    print(json.dumps({"points": CURVES[sys.argv[1]](int(sys.argv[2]))}))
