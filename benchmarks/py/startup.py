"""How long a loader takes to start, to start again, and to be left: ringbuf.torch.RingLoader against torch's DataLoader.

    python -m benchmarks.py.startup                         # five rounds, some five minutes on two cores
    python -m benchmarks.py.startup --quick                 # does it run? the figures mean nothing
    python -m benchmarks.py.startup --runs 9 --json out.json

Measured, for batches of 8 KB and of 25 MB (32 x 3 x 256 x 256 float32, 20 of them to an epoch), with 2 and 4 workers:

    first batch       from iter() to the first batch, workers started by fork, in a process that did not do it before
    new epoch         the same for later epochs, with new workers in each
    restart           the same for later epochs, with persistent workers
    gap, gap (new)    from the last batch of an epoch to the first of the next, with persistent and with new workers
    left early        `for batch in loader: break`, again and again: a round, and what the process has afterwards
    batches kept      how many small batches can be kept when a process may have 64 descriptors

Making a sample costs nothing: it is a tensor that lies in memory. Both loaders run the same program and yield the
same tensors. They take turns, each run in a fresh process; a figure is the median over the runs (over all rounds of
all runs, where a run has many), with the least and the largest. More workers than cores are slower to start than any
loader can help. Not measured: start by spawn, importing torch, datasets that are large or slow to copy.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.py import machine, startup_report
from benchmarks.py.startup_cases import LOADERS, command
from benchmarks.py.turns import at_least, in_fresh_process

SMALL = {"batch_size": 32, "shape": [64]}
LARGE = {"batch_size": 32, "shape": [3, 256, 256]}
EPOCHS = {"batches": 20, "epochs": 5}
QUICK_EPOCHS = {"batches": 3, "epochs": 2}


def cases(quick: bool) -> dict[str, tuple[str, dict[str, Any]]]:
    """By name: which function of startup_cases, and its sizes."""
    workers = (2,) if quick else (2, 4)
    large = LARGE | {"shape": [3, 16, 16]} if quick else LARGE
    epochs = QUICK_EPOCHS if quick else EPOCHS
    return {
        **{
            f"{name} batches, {count} workers": ("epochs", size | epochs | {"workers": count})
            for name, size in (("small", SMALL), ("large", large))
            for count in workers
        },
        "left early": ("breaks", SMALL | {"batches": 20, "workers": 2, "rounds": 3 if quick else 200}),
        "batches kept": ("kept", SMALL | {"batches": 100 if quick else 1000, "workers": 2, "descriptors": 64}),
    }


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    chosen = cases(options.quick)
    runs: dict[str, dict[str, list[Any]]] = {name: {loader: [] for loader in LOADERS} for name in chosen}
    failures: dict[str, str] = {}
    for number in range(options.runs):
        for name, (case, size) in chosen.items():
            for loader in LOADERS:
                whose = f"{name}, {loader}"
                if whose in failures:
                    continue
                try:
                    runs[name][loader].append(in_fresh_process(command(case, loader, size)))
                    said = startup_report.in_short(runs[name][loader][-1])
                except RuntimeError as error:
                    failures[whose] = str(error)
                    said = f"failed: {error}"
                print(f"round {number + 1} of {options.runs}: {whose:32} {said}", flush=True)
    result = {
        "cases": {name: {"kind": case, **size, **startup_report.summary(runs[name])} for name, (case, size) in chosen.items()},
        "failures": failures,
        "machine": machine.describe(),
        "versions": next((run["versions"] for of in runs.values() for all in of.values() for run in all), {}),
    }
    print(startup_report.text(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 1 if failures else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.py.startup", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=at_least(1), metavar="N", help="runs of each loader (5; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="small and once: shows that it runs, measures nothing")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything, single runs too, to PATH")
    options = parser.parse_args(arguments)
    if options.runs is None:
        options.runs = 1 if options.quick else 5
    return options


if __name__ == "__main__":
    sys.exit(main())
