"""Pictures of a result. Colours are told apart by the colour-blind too, and every bar has its figure beside it."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

from benchmarks.py import reach
from benchmarks.py.figures import digits, spread, values

OURS, OTHER, CEILING = "#D55E00", "#56B4E9", "#B8B8B8"
INK = "#333333"
MET, NOT_MET = "#0072B2", "#D55E00"
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
    "figure.dpi": 130,
}
TITLES = {"nothing": "", "page": ", a byte of every page read", "all": ", every byte read"}
BOUND_BY_MAKING = ("seed", "seed-pcg", "jpeg")


def draw(result: dict[str, Any], folder: Path) -> list[str]:
    """Draw what there is into `folder`, as NAME.png. Returns the names."""
    drawn = []
    with plt.rc_context(STYLE):
        for name, figure in _figures(result):
            figure.savefig(folder / f"{name}.png", bbox_inches="tight", metadata={"Software": None})
            plt.close(figure)
            drawn.append(name)
    return drawn


def _figures(result: dict[str, Any]) -> Any:
    rows = reach.table(result)
    if rows:
        yield "reach", _reach(rows)
    for key, cell in result["loaders"]["cells"].items():
        if cell["peers"]:
            name = key.replace("/", "-")
            yield name, _times(cell) if cell["workload"]["name"] in BOUND_BY_MAKING else _rates(cell)
    if result.get("messages", {}).get("peers"):
        yield "messages", _messages(result["messages"]["peers"])
    if result.get("scaling", {}).get("curves"):
        yield "scaling", _scaling(result["scaling"]["curves"])


def _colour(name: str) -> str:
    return OURS if name.startswith("ring") else CEILING if name in reach.CEILINGS else OTHER


def _rates(cell: dict[str, Any]) -> Any:
    workload = cell["workload"]
    in_bytes = workload["name"] in ("mem", "img")
    scale = workload["batch_bytes"] / 1e9 if in_bytes else 1e-3
    unit = "GB/s" if in_bytes else "thousand batches/s"
    bars = [
        (entry["label"], _colour(name), spread([scale * rate for rate in values(cell, name, "rate")]))
        for name, entry in cell["peers"].items()
    ]
    title = f"{workload['name']}: {workload['workers']} workers{TITLES[workload['touch']]}"
    return _bars(sorted(bars, key=lambda bar: bar[2]["median"]), title, f"steady rate, {unit}")


def _times(cell: dict[str, Any]) -> Any:
    """Whole epochs, where making the samples takes most of the time: shorter is better."""
    workload = cell["workload"]
    bars = [
        (entry["label"], _colour(name), spread(values(cell, name, "cold")))
        for name, entry in cell["peers"].items()
        if entry["runs"][0]["batches"] == workload["batches"]
    ]
    title = f"{workload['name']}: {workload['workers']} workers, {workload['batches']} batches; shorter is better"
    return _bars(sorted(bars, key=lambda bar: -bar[2]["median"]), title, "time of a cold epoch, seconds")


def _messages(peers: dict[str, Any]) -> Any:
    bars = [
        (entry["label"], _colour(name), spread([run["1p1c"] / 1e3 for run in entry["runs"]])) for name, entry in peers.items()
    ]
    title = "64 bytes from one process to another"
    return _bars(sorted(bars, key=lambda bar: bar[2]["median"]), title, "thousand messages/s")


def _bars(bars: list[tuple[str, str, dict[str, float]]], title: str, unit: str) -> Any:
    """Horizontal bars, upwards in the order given; the whiskers are least and largest."""
    figure, axes = plt.subplots(figsize=(7, 0.9 + 0.29 * len(bars)))
    longest = max(figures["max"] for _, _, figures in bars)
    for place, (_, colour, figures) in enumerate(bars):
        axes.barh(place, figures["median"], color=colour, height=0.72)
        axes.hlines(place, figures["min"], figures["max"], color=INK, linewidth=1)
        axes.text(figures["max"] + 0.012 * longest, place, digits(figures["median"]), va="center")
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.1 * longest)
    axes.set_xlabel(f"{unit}; median, line from least to largest")
    axes.set_title(title)
    return figure


def _reach(rows: list[dict[str, Any]]) -> Any:
    """How far each ratio is beyond its goal, or short of it, whichever way it is counted."""
    figure, axes = plt.subplots(figsize=(8, 1.1 + 0.27 * len(rows)))
    for place, row in enumerate(reversed(rows)):
        goal = float(row["goal"].split()[1])
        at_least = row["goal"].startswith("≥")
        reached = sorted(row[name] / goal if at_least else goal / row[name] for name in ("median", "min", "max"))
        colour = MET if row["met"] else NOT_MET
        axes.hlines(place, reached[0], reached[2], color=colour, linewidth=1.5)
        axes.plot(reached[1], place, "o" if row["met"] else "X", color=colour, markersize=6)
        text = f"{digits(row['median'])} ({row['goal']})"
        where = {"textcoords": "offset points", "va": "center", "fontsize": 8}
        axes.annotate(text, (reached[2], place), (7, 0), **where, bbox={"facecolor": "white", "linewidth": 0, "pad": 0.5})
    axes.axvline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    names = [f"{row['what']} / {row['theirs']}" for row in reversed(rows)]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}" if x >= 1 else f"1/{1 / x:g}")
    axes.margins(x=0.16, y=0.02)
    axes.set_xlabel("times the goal (right of the line: met); median, line from least to largest")
    axes.set_title("The ratio measured, and the goal")
    marks = [
        Line2D([], [], marker=mark, color=colour, linestyle="", label=label)
        for mark, colour, label in (("o", MET, "met"), ("X", NOT_MET, "not met"))
    ]
    axes.legend(handles=marks, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderpad=0, handletextpad=0)
    return figure


def _scaling(curves: dict[str, list[dict[str, float]]]) -> Any:
    figure, all_axes = plt.subplots(1, len(curves), figsize=(3.4 * len(curves), 2.9), squeeze=False, layout="constrained")
    for axes, (name, points) in zip(all_axes[0], curves.items()):
        x = [point[name] for point in points]
        if name == "batches":
            y = [point["us"] for point in points]
            axes.plot([n / 1e3 for n in x], y, color=OURS)
            axes.axhline(median(y), color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
            axes.annotate(f"median {digits(median(y))}", (x[-1] / 1e3, median(y)), (0, 5), textcoords="offset points", ha="right")
            axes.set_xlabel("thousand batches delivered")
            axes.set_title("µs for a batch of 8 KB")
        elif name == "workers":
            axes.plot(x, [point["batches_per_s"] for point in points], "o-", color=OURS)
            axes.set_xlabel("workers")
            axes.set_title("25 MB batches/s")
        else:
            axes.plot(x, [point["empty_ns"] / 1e3 for point in points], "o-", color=OURS, label="empty ring")
            axes.plot(x, [point["full_ns"] / 1e3 for point in points], "s--", color=MET, label="nearly full")
            axes.legend()
            axes.set_xlabel("slots")
            axes.set_title("µs for a put and a get")
        if name != "batches":
            axes.set_xscale("log", base=2)
            axes.set_xticks(x, [f"{n:g}" for n in x], rotation=45 if len(x) > 7 else 0, fontsize=8)
            axes.minorticks_off()
        axes.set_ylim(0, 1.15 * axes.dataLim.y1)
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    return figure
