"""RingLoader against torch's DataLoader, where moving the batches is all there is to do.

    python -m benchmarks.py.loader                          # five rounds, some two minutes on two cores
    python -m benchmarks.py.loader --quick                  # does it run? the figures mean nothing
    python -m benchmarks.py.loader --runs 9 --json out.json

Measured: how fast batches get from a dataset in memory through worker processes to the main process. Each
sample is a view of an image that lies in memory (uint8, 224 x 224 x 3), each batch is 256 of them and their
int64 labels, 38 MB. So every peer has to copy the same bytes once, and they differ in what they do besides:
mapping and faulting in memory, passing descriptors, pickling, waiting. The consumer checks the labels and a
few pixels of every batch, and drops it.

Against: torch's DataLoader with the same dataset, workers, prefetching and start method (fork), and an ideal
without any protocol: as many processes that stack the same samples into mapped slots whose pages exist.

Not measured: decoding and augmentation (where they dominate, every loader is as fast as they are), a consumer
that reads whole batches (which takes its share of the memory's bandwidth, and more time where the batch
lies in pages that were never mapped before), small batches, start by spawn, importing torch.

Peers take turns, each run in a fresh process; a figure is the median over the runs. GB are 10^9 bytes. The
ratios in the first table are those of whole iterations: starting the workers, faulting in memory and stopping
the workers included. Those in the second are of the steady rate. Where min and max lie far apart the machine
had other things to do, and the ratios say little; processor time, in the third table, suffers less.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.py import machine, report
from benchmarks.py.measure import command
from benchmarks.py.peers import NAMES
from benchmarks.py.turns import at_least, in_fresh_process
from benchmarks.py.workload import Workload

FULL = {"runs": 5, "batches": 256, "batch_size": 256, "side": 224}
QUICK = {"runs": 1, "batches": 16, "batch_size": 16, "side": 64}


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    workload = Workload(batches=options.batches, batch_size=options.batch_size, side=options.side)
    print(
        f"{workload.batches} batches of {workload.batch_bytes / 1e6:.1f} MB, {workload.workers} workers, "
        f"{workload.prefetch} batches ahead each; {options.runs} runs of each peer, in turn",
        flush=True,
    )
    runs, failures = take_turns(options.runs, workload)
    result = report.result(runs, failures, workload) | {"machine": machine.describe()}
    print(report.text(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 1 if failures else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.py.loader", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    helps = {
        "runs": (1, "runs of each peer"),
        "batches": (4, "batches of a run"),
        "batch_size": (1, "images of a batch"),
        "side": (1, "pixels along a side of an image"),
    }
    for name, (least, meaning) in helps.items():
        defaults = f"{FULL[name]}; quick: {QUICK[name]}"
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=at_least(least), metavar="N", help=f"{meaning} ({defaults})")
    parser.add_argument("--quick", action="store_true", help="small and once: shows that it runs, measures nothing")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything, single runs too, to PATH")
    options = parser.parse_args(arguments)
    for name, value in (QUICK if options.quick else FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def take_turns(rounds: int, workload: Workload) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Run every peer once in each round, and say how it goes. A peer that fails is left out from then on.

    Returns the runs of those that did not fail, and why the others did.
    """
    runs: dict[str, list[dict[str, Any]]] = {peer: [] for peer in NAMES}
    failures: dict[str, str] = {}
    for number in range(rounds):
        for peer in NAMES:
            if peer in failures:
                continue
            try:
                runs[peer].append(run_once(peer, workload))
                said = f"{report.rates(runs[peer][-1], workload)['total']:.2f} GB/s"
            except RuntimeError as error:
                failures[peer] = str(error)
                said = f"failed: {error}"
            print(f"round {number + 1} of {rounds}: {peer:5} {said}", flush=True)
    return {peer: of_peer for peer, of_peer in runs.items() if peer not in failures}, failures


def run_once(peer: str, workload: Workload) -> dict[str, Any]:
    """One run in a fresh interpreter. RuntimeError says why there is no result."""
    return in_fresh_process(command(peer, workload))


if __name__ == "__main__":
    sys.exit(main())
