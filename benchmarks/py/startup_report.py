"""Start-up runs into figures, and figures into tables."""

from __future__ import annotations

from typing import Any

from benchmarks.py.figures import spread
from benchmarks.py.startup_cases import LABELS

TIMES = {
    "first": "first batch",
    "again": "new epoch",
    "restart": "restart",
    "gap": "gap",
    "gap_new": "gap (new)",
    "rounds": "left early, a round",
}
STOCK = {
    "processes": "processes",
    "descriptors": "descriptors",
    "threads": "threads",
    "shared_bytes": "bytes of shared memory",
    "shm_files": "files in /dev/shm",
}
MOMENTS = {"before": "before", "after_one": "1 round", "after_all": "all", "afterwards": "at the end"}


def in_short(run: dict[str, Any]) -> str:
    """One run in a few words, to show that it goes on."""
    if "kept" in run:
        return f"{run['kept']} kept"
    name = "first" if "first" in run else "rounds"
    return f"{TIMES[name]} {spread(run[name])['median']:.0f} ms"


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """What the runs of one case come to, for each loader, and the runs."""
    loaders = {}
    for loader, of_loader in runs.items():
        figures: dict[str, Any] = {
            name: spread([value for run in of_loader for value in run[name]])
            for name in TIMES
            if of_loader and name in of_loader[0]
        }
        if of_loader and "kept" in of_loader[0]:
            figures["kept"] = spread([run["kept"] for run in of_loader])
            figures["error"] = next((run["error"] for run in of_loader if run["error"]), None)
        loaders[loader] = {
            **figures,
            "runs": [{name: value for name, value in run.items() if name != "versions"} for run in of_loader],
        }
    return {"loaders": loaders}


def text(result: dict[str, Any]) -> str:
    cases = result["cases"]
    lines = _times({name: case for name, case in cases.items() if case["kind"] in ("epochs", "breaks")})
    for case in cases.values():
        if case["kind"] == "breaks":
            lines += _stock(case)
        if case["kind"] == "kept":
            lines += _kept(case)
    lines += [f"{whose} failed: {reason}" for whose, reason in result["failures"].items()]
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines += [
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, Linux {machine['kernel']}, "
        f"load {machine['load']:.1f} afterwards;",
        f"Python {machine['python']}, {versions}",
    ]
    return "\n".join(lines)


def _times(cases: dict[str, Any]) -> list[str]:
    lines = ["", f"{'Milliseconds, median (min - max)':34}" + "".join(f"{LABELS[loader]:>24}" for loader in LABELS) + "   ratio"]
    for name, case in cases.items():
        shown = [figure for figure in TIMES if all(figure in figures for figures in case["loaders"].values())]
        lines += [name]
        for figure in shown:
            spreads = {loader: figures[figure] for loader, figures in case["loaders"].items()}
            cells = [f"{s['median']:.0f} ({s['min']:.0f} - {s['max']:.0f})" for s in spreads.values()]
            ratio = spreads["ring"]["median"] / spreads["torch"]["median"]
            lines.append(f"  {TIMES[figure]:32}" + "".join(f"{cell:>24}" for cell in cells) + f"{ratio:8.2f}")
    return lines


def _stock(case: dict[str, Any]) -> list[str]:
    moments = "".join(f"{moment:>12}" for moment in MOMENTS.values())
    lines = ["", f"Left early {case['rounds']} times: what the process has{'':9}{moments}"]
    for loader, figures in case["loaders"].items():
        for name, title in STOCK.items():
            if figures["runs"]:
                stock = figures["runs"][-1]["stock"]
                cells = "".join(f"{stock[moment][name]:>12,}" for moment in MOMENTS)
                lines.append(f"  {LABELS[loader]:9}{title:36}{cells}")
    return lines


def _kept(case: dict[str, Any]) -> list[str]:
    lines = ["", f"Batches kept of {case['batches']:,}, with {case['descriptors']} descriptors to be had"]
    for loader, figures in case["loaders"].items():
        if figures["runs"]:
            error = f"   {figures['error'][:75]}" if figures["error"] else ""
            lines.append(f"  {LABELS[loader]:9}{figures['kept']['median']:,.0f}{error}")
    return lines
