"""The ring in C against other queues: messages of 8 bytes between threads and between processes.

    python -m benchmarks.c                              # builds, then five rounds, some ten minutes
    python -m benchmarks.c --quick                      # does it run? the figures mean nothing
    python -m benchmarks.c --peers ringbuf ck --tables throughput --runs 9 --json out.json

Every message is checked: a run in which one was lost, doubled, changed or overtaken by its producer's next fails.
Peers take turns, each run in a fresh process; a figure is the median over the runs, with the least and the largest.
benchmarks/README.md says what is measured, what is not, and how waiting is made the same for all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.c import report
from benchmarks.c.build import Programs, build
from benchmarks.c.tables import RECOVERY, Table, plays, tables
from benchmarks.py import machine
from benchmarks.py.turns import ROOT, at_least

FULL = {"runs": 5, "ms": 200, "samples": 10}
QUICK = {"runs": 1, "ms": 10, "samples": 1}


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        if not options.no_build:
            print(f"building into {options.build} ...", flush=True)
            build(options.build)
        programs = Programs(options.build)
        peers = chosen(programs, options.peers)
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    wanted = [table for table in tables(options.ms) if not options.tables or table.name.startswith(tuple(options.tables))]
    recovery = options.samples if not options.tables or "recovery" in options.tables else 0
    result = measure(programs, peers, wanted, options.runs, recovery)
    result |= {"machine": machine.describe(), "options": {name: getattr(options, name) for name in FULL}}
    print(report.text(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 1 if result["failures"] else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.c", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(table.name for table in tables(1))
    helps = {
        "runs": "runs of each peer",
        "ms": "milliseconds that a run measures",
        "samples": "processes killed for each figure of recovery",
    }
    for name, meaning in helps.items():
        text = f"{meaning} ({FULL[name]}; quick: {QUICK[name]})"
        parser.add_argument(f"--{name}", type=at_least(1), metavar="N", help=text)
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="only these: the names of the programs in the build folder")
    parser.add_argument("--tables", nargs="+", metavar="NAME", help=f"only those that begin so: {names}, recovery")
    parser.add_argument("--build", type=Path, metavar="FOLDER", default=ROOT / "build/benchmarks", help="where to build")
    parser.add_argument("--no-build", action="store_true", help="take the programs as they are in the build folder")
    parser.add_argument("--quick", action="store_true", help="short and once: shows that it runs, measures nothing")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything, single runs too, to PATH")
    options = parser.parse_args(arguments)
    for name, value in (QUICK if options.quick else FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def chosen(programs: Programs, names: list[str] | None) -> dict[str, dict[str, Any]]:
    unknown = set(names or ()) - programs.peers.keys()
    if unknown:
        there = ", ".join(programs.peers)
        raise RuntimeError(f"--peers: there is no {', '.join(sorted(unknown))} in {programs.folder}; there are {there}")
    return {name: peer for name, peer in programs.peers.items() if not names or name in names}


def measure(
    programs: Programs, peers: dict[str, dict[str, Any]], wanted: list[Table], rounds: int, samples: int
) -> dict[str, Any]:
    """Run everything once in each round, and say how it goes. Whoever fails once has no figure in that column."""
    values: dict[tuple[str, ...], dict[str, list[float]]] = {}
    failures: dict[tuple[str, ...], str] = {}

    def run(key: tuple[str, ...], program: str, arguments: list[str], figures: Iterable[str], scale: float) -> str:
        if key in failures:
            return "failed before"
        try:
            printed = programs.run(program, *arguments)
        except RuntimeError as error:
            failures[key] = str(error)
            return f"failed: {error}"
        so_far = values.setdefault(key, {figure: [] for figure in figures})
        for figure, of_runs in so_far.items():
            of_runs.append(printed[figure] * scale)
        return "/".join(report.digits(of_runs[-1]) for of_runs in so_far.values())

    for number in range(rounds):
        prefix = f"round {number + 1} of {rounds}"
        for table in wanted:
            for column in table.columns:
                print(f"{prefix}: {table.name}, {column.name}:", end="", flush=True)
                arguments = [column.workload, *(f"{name}={value}" for name, value in column.arguments.items())]
                for name, peer in peers.items():
                    if plays(table, column, peer):
                        said = run((table.name, column.name, name), name, arguments, column.figures, column.scale)
                        print(f" {name} {said}", end="", flush=True)
                print(flush=True)
        for case in RECOVERY if samples and "ringbuf" in peers else ():
            said = run(("recovery", case), "recovery", [case, str(samples), str(number + 1)], ["recovery_ns"], 1e-6)
            print(f"{prefix}: recovery, {case}: {said} ms", flush=True)

    def figures(*key: str) -> dict[str, Any]:
        """By their names, of a cell that never failed."""
        return {} if key in failures else {figure: report.spread(runs) for figure, runs in values.get(key, {}).items()}

    def row(table: Table, peer: str) -> dict[str, Any]:
        cells = [(column.names(), figures(table.name, column.name, peer)) for column in table.columns]
        return {names[figure]: found for names, of_cell in cells for figure, found in of_cell.items()}

    def as_values(table: Table) -> dict[str, Any]:
        taking_part = [name for name, peer in peers.items() if any(plays(table, column, peer) for column in table.columns)]
        headings = [name for column in table.columns for name in column.names().values()]
        return {"title": table.title, "columns": headings, "rows": {name: row(table, name) for name in taking_part}}

    return {
        "peers": peers,
        "missing": programs.missing,
        "compiler": next(iter(peers.values()))["compiler"],
        "failures": [f"{', '.join(key)}: {reason}" for key, reason in failures.items()],
        "recovery": {title: found for case, title in RECOVERY.items() for found in figures("recovery", case).values()},
        "tables": {table.name: as_values(table) for table in wanted},
    }


if __name__ == "__main__":
    sys.exit(main())
