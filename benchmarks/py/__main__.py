"""Everything that is measured from Python, one part after the other, and the page that shows it.

    python -m benchmarks.py                                 # the quick set, some ten minutes on two cores
    python -m benchmarks.py --full                          # every peer, 1, 2 and 4 workers, every way to read: hours
    python -m benchmarks.py --only mem small messages --peers ring torch ideal --runs 5 --json out.json
    python -m benchmarks.py --report-only out.json          # the page of figures that were taken before

Parts: the workloads by name, messages, scaling, startup, server (left out of the quick set unless it is asked for), and c,
which is benchmarks/c where that is built. Peers take turns, each run in a fresh process, so that what the machine does
besides hits all of them. A peer that cannot be imported is skipped, one that fails is left out of that table; either is said
while it runs and on the page. Without --only and --peers the page is docs/benchmarks.md, with its pictures beside it; else it
is written where --page says, if it does. benchmarks/README.md says what each part measures, and what it does not.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.py import loaders, machine, messages, page, plan, scaling
from benchmarks.py.channels import NAMES as CHANNELS
from benchmarks.py.peers import NAMES
from benchmarks.py.turns import ROOT, at_least

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
OTHER_PARTS = ("messages", "scaling", "startup", "server", "c")
LONG_PARTS = ("server",)  # left out of the quick set, unless --only asks for them
# Of the parts with programs of their own, what they are told: short, but of use; and at length.
STARTUP = {"tiny": ["--quick"], "quick": ["--runs=1"], "full": []}
SERVER = {"tiny": ["--quick"], "quick": ["--runs=3"], "full": []}
C = {"tiny": ["--quick"], "quick": ["--runs=3", "--ms=10", "--samples=3"], "full": []}


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.report_only:
        result = json.loads(options.report_only.read_text())
    else:
        result = measure(options)
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
        print(f"written: {options.json}", flush=True)
    if options.page:
        page.write(result, options.page)
        print(f"written: {options.page}", flush=True)
    print(page.summary(result))
    return 1 if page.failures(result) else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    size = parser.add_mutually_exclusive_group()
    for name, meaning in (
        ("tiny", "hardly any batches, once: shows that it runs, measures nothing"),
        ("quick", "4 workers, the peers that are easily had (the default)"),
        ("full", "everything"),
    ):
        size.add_argument(f"--{name}", dest="size", action="store_const", const=name, help=meaning)
    runs = f"runs of each peer ({plan.QUICK_RUNS}; full: {plan.FULL_RUNS})"
    parser.add_argument("--runs", type=at_least(1), metavar="N", help=runs)
    parts = (*plan.BATCHES, *OTHER_PARTS)
    parser.add_argument("--only", nargs="+", choices=parts, metavar="PART", help=f"of {', '.join(parts)}")
    peers = list(dict.fromkeys((*NAMES, *CHANNELS)))
    parser.add_argument("--peers", nargs="+", choices=peers, metavar="PEER", help=f"of {', '.join(peers)}")
    paths = {
        "--json": "where all figures go, single runs too (benchmarks/results/DATE.json)",
        "--page": "where the page goes (docs/benchmarks.md; with --tiny, --only or --peers: nowhere)",
        "--report-only": "measure nothing, show what is in this file",
    }
    for name, meaning in paths.items():
        parser.add_argument(name, type=Path, metavar="PATH", help=meaning)
    parser.set_defaults(size="quick")
    options = parser.parse_args(arguments)
    options.runs = options.runs or {"tiny": 1, "quick": plan.QUICK_RUNS, "full": plan.FULL_RUNS}[options.size]
    options.json = options.json or RESULTS / f"{datetime.datetime.now():%Y-%m-%d-%H%M}.json"
    if options.page is None and not (options.only or options.peers or options.size == "tiny"):
        options.page = PAGE
    return options


def measure(options: argparse.Namespace) -> dict[str, Any]:
    parts = [part for part in OTHER_PARTS if options.size == "full" or part not in LONG_PARTS]
    wanted = options.only or [*plan.BATCHES, *parts]
    started = datetime.datetime.now()
    result: dict[str, Any] = {
        "date": f"{started:%Y-%m-%d}",
        "size": options.size,
        "runs": options.runs,
        "machine": machine.describe(),
        "loaders": loaders.take_turns(_cells(options, wanted), options.runs),
    }
    channels = [name for name in CHANNELS if not options.peers or name in options.peers]
    if "messages" in wanted and channels:
        result["messages"] = messages.take_turns(options.runs, options.size, channels)
    if "scaling" in wanted:
        result["scaling"] = scaling.run_all(options.size)
    for part, module, told in (
        ("startup", "benchmarks.py.startup", STARTUP),
        ("server", "benchmarks.py.server", SERVER),
        ("c", "benchmarks.c", C),
    ):
        if part in wanted and importlib.util.find_spec(module):
            result[part] = _program(module, told[options.size], options.json.with_suffix(f".{part}.json"))
    result["load_afterwards"] = machine.describe()["load"]
    result["minutes"] = (datetime.datetime.now() - started).total_seconds() / 60
    return result


def _cells(options: argparse.Namespace, wanted: list[str]) -> list[plan.Cell]:
    cells = [cell for cell in (plan.full() if options.size == "full" else plan.quick()) if cell.workload.name in wanted]
    if options.peers:  # also those that the quick set leaves out
        cells = [replace(cell, peers=plan.able([p for p in NAMES if p in options.peers], cell.workload.name)) for cell in cells]
    if options.size == "tiny":
        cells = plan.tiny(cells)
    return [cell for cell in cells if cell.peers]


def _program(module: str, told: list[str], path: Path) -> dict[str, Any]:
    """What another program of the benchmark writes as JSON; it shows its progress itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([sys.executable, "-m", module, *told, f"--json={path}"], cwd=ROOT, check=False)
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {"failures": {module: f"exit code {done.returncode}, and no figures"}}
    finally:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
