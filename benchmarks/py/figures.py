"""Figures of a run, medians and ranges of several, and ratios of runs that were taken in the same round."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

Run = dict[str, Any]

FIGURES: dict[str, Callable[[Run], float]] = {
    "cold": lambda run: run["epochs"][0]["total_s"],
    "later": lambda run: median(epoch["total_s"] for epoch in run["epochs"][1:]),
    "first": lambda run: run["epochs"][0]["first_s"],
    "restart": lambda run: median(epoch["first_s"] for epoch in run["epochs"][1:]),
    "cpu": lambda run: median(epoch["cpu_s"] for epoch in run["epochs"][1:]) / run["batches"],
    "workers_cpu": lambda run: run["workers_cpu_s"] / (run["batches"] * len(run["epochs"])),
    "faults": lambda run: run["faults"] / (run["batches"] * len(run["epochs"])),
    "workers_faults": lambda run: run["workers_faults"] / (run["batches"] * len(run["epochs"])),
}
"""Seconds, but for the faults; the last four for each batch."""


def batch_rate(run: Run, workload: dict[str, Any]) -> float:
    """Batches per second at the steady rate, the median of all epochs.

    An epoch of few batches has no steady part: what is left of it is under way when its first part ends. There it is the rate of
    whole later epochs.
    """
    unsteady = min(workload["unsteady"], run["batches"] // 2)
    if run["batches"] < 3 * unsteady:
        return run["batches"] / FIGURES["later"](run)
    return (run["batches"] - unsteady) / median(epoch["steady_s"] for epoch in run["epochs"])


def values(cell: dict[str, Any], peer: str, figure: str) -> list[float]:
    """A figure of all runs of a peer; "rate" is batches per second, "memory" the peak of the whole family of processes."""
    entry = cell["peers"][peer]
    if figure == "memory":
        return [entry["memory"]["peak_bytes"]] if "memory" in entry else []
    if figure == "rate":
        return [batch_rate(run, cell["workload"]) for run in entry["runs"]]
    return [FIGURES[figure](run) for run in entry["runs"]]


def spread(numbers: list[float]) -> dict[str, float]:
    return {"median": median(numbers), "min": min(numbers), "max": max(numbers)}


def paired(ours: list[float], theirs: list[float]) -> dict[str, float] | None:
    """The spread of the ratios of runs from the same rounds; None where there are none."""
    ratios = [one / other for one, other in zip(ours, theirs)]
    return spread(ratios) if ratios else None


def digits(number: float) -> str:
    """Three of them, or all that stand before the point."""
    size = abs(number)
    return f"{number:,.{0 if size >= 100 else 1 if size >= 10 else 2}f}"
