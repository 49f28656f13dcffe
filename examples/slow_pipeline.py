"""A pipeline that is slow on purpose, what `ringbuf doctor` says about it, and what is won by doing that.

Its samples come from a disk far away: each one is waited for, and next to no processor is needed.

    python examples/slow_pipeline.py                                     # 10 s
    cd examples && ringbuf doctor slow_pipeline:make_loader --step 10    # the diagnosis alone
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from ringbuf import RingLoader

READ_S = 0.002  # that a sample takes to come
STEP_S = 0.010  # that the GPU takes for a batch, if we had one


class FarAway:
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        time.sleep(READ_S)
        return np.full((32, 32, 3), index % 256, np.uint8), index % 10


def make_loader(workers=1):
    return RingLoader(FarAway(), batch_size=16, num_workers=workers, persistent_workers=True)


def train(workers, seconds):
    """The share of the time that it waits for batches."""
    with make_loader(workers) as loader:
        batches = iter(loader)
        next(batches)  # the first one is what workers start for
        before, began = loader.stats().wait_ns, time.perf_counter()
        for _ in batches:
            time.sleep(STEP_S)  # your step
            if time.perf_counter() - began >= seconds:
                break
        return (loader.stats().wait_ns - before) / 1e9 / (time.perf_counter() - began)


def diagnose(seconds):
    """What doctor finds out in a process of its own."""
    target = f"{Path(__file__).stem}:make_loader"
    call = ["doctor", target, f"--step={STEP_S * 1e3}", f"--seconds={seconds}", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "ringbuf", *call], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    if not done.stdout:  # its exit code is 1 also where there is something to do
        sys.exit(done.stderr)
    return json.loads(done.stdout)["finding"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    seconds = parser.parse_args().seconds

    print(f"with 1 worker it waits {train(1, seconds):.0%} of the time")
    finding = diagnose(seconds)
    print(f"doctor: {finding['text']}")
    print(f"doctor: {finding['advice']['text']}")
    if finding["advice"]["knob"] == "workers":
        workers = finding["advice"]["value"]
        warnings.filterwarnings("ignore", "This RingLoader has num_workers")  # more than processors: these samples only wait
        print(f"with {workers} workers it waits {train(workers, seconds):.0%} of the time")


if __name__ == "__main__":
    main()
