"""The picture, by matplotlib: loaders by workers, and what copying alone would reach."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from ringbuf.cli.bench.table import MICROSECONDS, TIMES, Unit, unit_of
from ringbuf.cli.units import nbytes

__all__ = ["draw"]

OURS, TORCH, CEILING, INK = "#D55E00", "#56B4E9", "#999999", "#333333"  # told apart by the colour-blind too
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
}
BATCHES = {1.0: "", 1e3: "thousand ", 1e6: "million ", 1e9: "billion "}
WIDTH = 0.38  # of a bar; two workers are 1 apart


def draw(result: dict[str, Any], path: str) -> None:
    """Draw into a file, of the kind that its name ends in. OSError."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 4), layout="constrained")
        figure.suptitle(_about(result), x=0.01, ha="left", fontsize=8.5)
        for name, axes in zip(("large", "small"), figure.subplots(1, 2)):
            _loaders(axes, [cell for cell in result["loaders"] if cell["workload"] == name])
        figure.savefig(path, dpi=150)


def _about(result: dict[str, Any]) -> str:
    machine, messages, wake = result["machine"], result["messages_per_s"], result["wake_s"]
    torch = f", torch {result['torch']}" if result["torch"] else ""
    return (
        f"ringbuf {result['ringbuf']}{torch} on {machine['cores']} x {machine['processor']}\n"
        f"64 bytes by put and get: {unit_of(messages['median'], '/s').median(messages)}; a sleeper wakes after "
        f"{MICROSECONDS.median(wake)}. Medians of {result['rounds']} rounds, lines from min to max"
    )


def _loaders(axes: Any, cells: list[dict[str, Any]]) -> None:
    large = cells[0]["workload"] == "large"
    scale = cells[0]["batch_bytes"] if large else 1
    rates = [
        {key: cell["ringbuf_batches_per_s"][key] * scale for key in ("median", "min", "max")} for cell in cells
    ]
    unit = unit_of(max(rate["median"] for rate in rates), "B/s")
    compared = any(cell["torch_batches_per_s"] for cell in cells)
    for place, (cell, rate) in enumerate(zip(cells, rates)):
        _bar(axes, place - (WIDTH / 2 if compared else 0), rate, unit, OURS, "RingLoader" if place == 0 else None, _times(cell))
        if cell["torch_batches_per_s"]:
            torch = {key: cell["torch_batches_per_s"][key] * scale for key in ("median", "min", "max")}
            _bar(axes, place + WIDTH / 2, torch, unit, TORCH, None if place else "torch's DataLoader")
        if cell["copying_bytes_per_s"]:
            level = cell["copying_bytes_per_s"]["median"] / unit.size
            label = None if place else "copying, in as many threads"
            axes.hlines(level, place - 0.45, place + 0.45, color=CEILING, linestyle="--", linewidth=1.5, label=label)
    axes.set_xticks(range(len(cells)), [f"{cell['workers']} worker{'' if cell['workers'] == 1 else 's'}" for cell in cells])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(cells) - 0.4)
    axes.margins(y=0.3)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit.text if large else f"{BATCHES[unit.size]}batches/s")
    axes.set_title(f"{'large' if large else 'small'} batches, {nbytes(cells[0]['batch_bytes'])}")
    if large:
        axes.figure.legend(loc="outside lower center", ncols=3, fontsize=8, borderpad=0.2)


def _times(cell: dict[str, Any]) -> str:
    return f"{TIMES.figure(cell['ratio']['median'])} x torch" if cell["ratio"] else ""


def _bar(axes: Any, place: float, rate: dict[str, float], unit: Unit, colour: str, label: str | None, more: str = "") -> None:
    """A bar with its figure above it, and above that what else is to be said."""
    axes.bar(place, rate["median"] / unit.size, WIDTH * 0.94, color=colour, label=label)
    axes.vlines(place, rate["min"] / unit.size, rate["max"] / unit.size, color=INK, linewidth=1)
    text = unit.figure(rate["median"]) + (f"\n{more}" if more else "")
    where = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8}
    paper = {"facecolor": "white", "linewidth": 0, "pad": 0.5}  # over the line of copying
    axes.annotate(text, (place, rate["max"] / unit.size), (0, 2), **where, bbox=paper)
