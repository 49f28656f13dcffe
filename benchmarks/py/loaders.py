"""The loaders' part of a benchmark: every cell, every peer in turn, each run in a fresh process."""

from __future__ import annotations

from typing import Any

from benchmarks.py.figures import FIGURES, batch_rate
from benchmarks.py.measure import command
from benchmarks.py.plan import Cell
from benchmarks.py.turns import in_fresh_process


def take_turns(cells: list[Cell], rounds: int) -> dict[str, Any]:
    """Run every peer of every cell once in each round, and say how it goes. A peer that fails in a cell is left out there.

    Returns {"cells": {key: {"workload": ..., "peers": {name: {"label": ..., "runs": [...]}}}}, "skipped": {peer: why},
    "failures": {"key, peer": why}, "versions": {...}}. Run i of a peer and run i of another were taken in the same round.
    """
    result: dict[str, Any] = {"cells": {}, "skipped": {}, "failures": {}, "versions": {}}
    for cell in cells:
        workload = cell.workload.plain() | {"batch_bytes": cell.workload.batch_bytes, "unsteady": cell.workload.unsteady}
        result["cells"][cell.key] = {"workload": workload, "peers": {}}
    for number in range(rounds):
        for cell in cells:
            first = number % len(cell.peers)  # whoever follows a greedy peer should not always be the same
            for peer in cell.peers[first:] + cell.peers[:first]:
                _run(cell, peer, result, f"round {number + 1} of {rounds}", compared=number == 0)
    for cell in cells:
        if cell.watched:
            for peer in cell.peers:
                _run(cell, peer, result, "memory", compared=False, watch=True)
        order = result["cells"][cell.key]["peers"]
        result["cells"][cell.key]["peers"] = {peer: order[peer] for peer in cell.peers if order.get(peer, {}).get("runs")}
    return result


def _run(cell: Cell, peer: str, result: dict[str, Any], moment: str, *, compared: bool, watch: bool = False) -> None:
    """Run a peer once and put what came out into the result."""
    whose = f"{cell.key}, {peer}"
    if peer in result["skipped"] or whose in result["failures"]:
        return
    workload = cell.workload
    entry = result["cells"][cell.key]["peers"].setdefault(peer, {"runs": []})
    try:
        run = in_fresh_process(command(peer, workload, compared=compared), watch=watch)
    except RuntimeError as error:
        result["failures"][whose] = str(error)
        entry["runs"].clear()  # what did arrive before may be as wrong
        print(f"{moment}: {whose} failed: {error}", flush=True)
        return
    if "skipped" in run:
        result["skipped"][peer] = run["skipped"]
        print(f"{moment}: {peer} is skipped: {run['skipped']}", flush=True)
        return
    entry["label"] = run.pop("label")
    result["versions"] |= run.pop("versions")
    if watch:
        entry["memory"] = {name: run[name] for name in ("memory_before_bytes", "peak_bytes")}
        said = f"{run['peak_bytes'] / 1e6:.0f} MB at its peak"
    else:
        entry["runs"].append(run)
        described = result["cells"][cell.key]["workload"]
        rate = batch_rate(run, described)
        first_ms = 1e3 * FIGURES["first"](run)
        said = f"{rate * described['batch_bytes'] / 1e9:6.2f} GB/s {rate:9,.1f} batches/s, first after {first_ms:.0f} ms"
    print(f"{moment}: {whose:32} {said}", flush=True)
