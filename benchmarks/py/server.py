"""How fast batches of 38 MB get from a server to trainers, on this machine and over TCP.

    python -m benchmarks.py.server                          # five rounds, some ten minutes on two cores
    python -m benchmarks.py.server --quick                  # does it run? the figures mean nothing
    python -m benchmarks.py.server --only tcp bare fuel --runs 9 --json out.json

Ways take turns, each run in a fresh process, and ratios are those of runs of one round. The rate is from the first batch to
the last. Local ways serve a RingLoader whose workers copy images from memory; over TCP the batches lie ready, so that what is
compared is their way, which is the loopback interface: no network is as fast. *Server's CPU* is that of the server with its
workers, for each batch. Not measured: small batches, several machines, encryption.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.py import machine
from benchmarks.py.figures import spread
from benchmarks.py.server_cases import LABELS, workload
from benchmarks.py.turns import at_least, in_fresh_process

BATCHES, QUICK_BATCHES = 192, 6
NEEDS = {"tcp_lz4": ("lz4",), "tcp_zstd": ("backports.zstd", "compression.zstd")}
AIMS = (
    # what, figure, ours, theirs, goal, at least (or at most)
    ("rate, local client", "rate", "local", "loader", 0.95, True),
    ("server's CPU, two clients", "cpu", "broadcast_2", "broadcast_1", 1.1, False),
    ("rate, TCP", "rate", "tcp", "fuel", 2.0, True),
    ("rate, TCP", "rate", "tcp", "bare", 0.6, True),
)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    batches = QUICK_BATCHES if options.quick else BATCHES
    cases = [case for case in LABELS if case in (options.only or LABELS)]
    runs: dict[str, list[Any]] = {case: [] for case in cases}
    failures = {case: f"{NEEDS[case][0]} is not installed" for case in cases if not _there(case)}
    for number in range(options.runs):
        for case in cases:
            if case in failures:
                continue
            try:
                run = in_fresh_process(_command(case, batches))
                runs[case].append(figures(run))
                said = f"{runs[case][-1]['rate']:6.2f} GB/s, server {1e3 * runs[case][-1]['cpu']:5.1f} ms a batch"
            except RuntimeError as error:
                failures[case] = said = f"failed: {error}"
            print(f"round {number + 1} of {options.runs}: {case:12} {said}", flush=True)
    result = {"labels": LABELS, "runs": runs, "failures": failures, "aims": aims(runs), "machine": machine.describe()}
    print(text(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if any(runs.values()) else 1


def _command(case: str, batches: int) -> list[str]:
    return [sys.executable, "-m", "benchmarks.py.server_cases", "receive", case, str(batches)]


def figures(run: dict[str, Any]) -> dict[str, float]:
    return {
        "rate": run["batches"] * workload(1).batch_bytes / run["seconds"] / 1e9,
        "cpu": run["server_cpu_s"] / (run["batches"] + 1),
        "first_s": run["first_s"],
    }


def aims(runs: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Each aim, with the ratios of the rounds."""
    rows = []
    for what, figure, ours, theirs, goal, at_least_so in AIMS:
        ratios = [a[figure] / b[figure] for a, b in zip(runs.get(ours, []), runs.get(theirs, [])) if b[figure]]
        if ratios:
            middle = median(ratios)
            met = middle >= goal if at_least_so else middle < goal
            rows.append({"what": what, "ours": ours, "theirs": theirs, "goal": f"{'≥' if at_least_so else '<'} {goal:g}"})
            rows[-1] |= {**spread(ratios), "met": met}
    return rows


def text(result: dict[str, Any]) -> str:
    lines = ["", f"{'':64}{'GB/s':>22}{'CPU, ms a batch':>20}{'first s':>10}"]
    for case, runs in result["runs"].items():
        if runs:
            rate, cpu, first = (spread([run[name] for run in runs]) for name in ("rate", "cpu", "first_s"))
            shown = f"{rate['median']:.2f} ({rate['min']:.2f} - {rate['max']:.2f})"
            lines.append(f"{result['labels'][case]:64}{shown:>22}{1e3 * cpu['median']:>20.1f}{first['median']:>10.2f}")
    lines += ["", f"{'':32}{'goal':>8}{'ratio':>8}{'min - max':>16}"]
    for row in result["aims"]:
        mark = "met" if row["met"] else "not met"
        span = f"{row['min']:.2f} - {row['max']:.2f}"
        lines.append(f"{row['what']:32}{row['goal']:>8}{row['median']:8.2f}{span:>16}  {mark}: {row['ours']} / {row['theirs']}")
    return "\n".join(lines + [f"{case}: {why}" for case, why in result["failures"].items()])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.py.server", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=at_least(1), metavar="N", help="runs of each way (5; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="short and once: shows that it runs, measures nothing")
    parser.add_argument("--only", nargs="+", choices=list(LABELS), metavar="WAY", help=f"of {', '.join(LABELS)}")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything, single runs too, to PATH")
    options = parser.parse_args(arguments)
    options.runs = options.runs or (1 if options.quick else 5)
    return options


def _there(case: str) -> bool:
    def found(module: str) -> bool:
        try:
            return find_spec(module) is not None
        except ModuleNotFoundError:
            return False

    return case not in NEEDS or any(map(found, NEEDS[case]))


if __name__ == "__main__":
    sys.exit(main())
