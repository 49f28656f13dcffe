"""Runs into figures, and figures into text."""

from __future__ import annotations

from statistics import median
from typing import Any


def spread(values: list[float]) -> dict[str, Any]:
    return {"median": median(values), "min": min(values), "max": max(values), "runs": values}


def text(result: dict[str, Any]) -> str:
    lines = []
    for table in result["tables"].values():
        lines += ["", table["title"], *grid(result, table)]
    if result["recovery"]:
        lines += ["", "Slot of a killed process, from kill() until another has it, in ms; the others have no such thing"]
        lines += [f"  {title:42}{cell(figures)}" for title, figures in result["recovery"].items()]
    lines.append("")
    lines += [f"{name} is left out: {reason}" for name, reason in result["missing"].items()]
    lines += [f"failed: {failure}" for failure in result["failures"]]
    machine = result["machine"]
    versions = ", ".join(f"{peer['label']} {peer['version']}" for peer in result["peers"].values() if peer["version"] != "-")
    lines.append(
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, Linux {machine['kernel']}, "
        f"load {machine['load']:.1f} afterwards; compiler {result['compiler']}; {versions}"
    )
    return "\n".join(lines)


def grid(result: dict[str, Any], table: dict[str, Any]) -> list[str]:
    """A row for each peer, a column for each case: median (min - max)."""
    rows = [["", *table["columns"]]]
    notes = [""]
    for name, cells in table["rows"].items():
        peer = result["peers"][name]
        rows.append([peer["label"], *(cell(cells[column]) if column in cells else "-" for column in table["columns"])])
        notes.append(f"  ({peer['threads_only']})" if peer["threads_only"] and "-" in rows[-1] else "")
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for (label, *cells), note in zip(rows, notes):
        shown = "".join(f"  {text:>{width}}" for text, width in zip(cells, widths[1:]))
        lines.append(f"  {label:{widths[0]}}{shown}{note}")
    return lines


def cell(figures: dict[str, Any]) -> str:
    middle, least, most = (figures[name] for name in ("median", "min", "max"))
    return f"{digits(middle)} ({digits(least)} - {digits(most)})"


def digits(value: float) -> str:
    """Three of them, or all that stand before the point."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"
