"""Runs into figures: medians with their range, ratios of medians, and a text for reading."""

from __future__ import annotations

from dataclasses import asdict
from statistics import median
from typing import Any

from benchmarks.py.workload import Workload

RATES = {
    "total": "Whole iteration, from iter() to the end of the loop",
    "steady": "Steady rate, first batches left out",
}
NOTED = "first_s", "cpu_s", "workers_cpu_s", "peak_rss_bytes"
YARDSTICKS = "torch", "ideal"


def rates(run: dict[str, Any], workload: Workload) -> dict[str, float]:
    """Gigabytes (10⁹ bytes) of batches per second of one run."""
    return {
        "total": workload.batches * workload.batch_bytes / run["total_s"] / 1e9,
        "steady": (workload.batches - workload.unsteady) * workload.batch_bytes / run["steady_s"] / 1e9,
    }


def result(runs: dict[str, list[dict[str, Any]]], failures: dict[str, str], workload: Workload) -> dict[str, Any]:
    """All that is known afterwards, as plain values."""
    peers = {peer: summary(of_peer, workload) for peer, of_peer in runs.items()}
    return {
        "workload": asdict(workload) | {"batch_bytes": workload.batch_bytes},
        "peers": peers,
        "ratios": ratios(peers),
        "failures": failures,
    }


def summary(runs: list[dict[str, Any]], workload: Workload) -> dict[str, Any]:
    """One peer's runs and the median, least and largest of their figures."""
    each = [rates(run, workload) for run in runs]
    figures = {f"{kind}_gb_per_s": spread([rate[kind] for rate in each]) for kind in RATES}
    figures |= {name: spread([run[name] for run in runs]) for name in NOTED}
    times = [{name: value for name, value in run.items() if name not in ("label", "versions")} for run in runs]
    return {"label": runs[0]["label"], "versions": runs[0]["versions"], **figures, "runs": times}


def spread(values: list[float]) -> dict[str, float]:
    return {"median": median(values), "min": min(values), "max": max(values)}


def ratios(peers: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Each peer's median rates against those of torch and of the ideal, where there are any."""
    return {
        f"{peer}/{other}": {
            kind: figures[f"{kind}_gb_per_s"]["median"] / peers[other][f"{kind}_gb_per_s"]["median"] for kind in RATES
        }
        for other in YARDSTICKS
        if other in peers
        for peer, figures in peers.items()
        if peer != other
    }


def text(outcome: dict[str, Any]) -> str:
    """A table for each rate, one of what else was noted, and where it was measured."""
    peers, machine = outcome["peers"], outcome["machine"]
    wide = max((len(figures["label"]) for figures in peers.values()), default=0)
    lines = []
    for kind, title in RATES.items():
        lines += ["", title, f"  {'':{wide}}    GB/s      min - max   x torch  of ideal"]
        for peer, figures in peers.items():
            rate = figures[f"{kind}_gb_per_s"]
            span = f"{rate['min']:.2f} - {rate['max']:.2f}"
            against = [outcome["ratios"].get(f"{peer}/{other}", {}).get(kind) for other in YARDSTICKS]
            cells = "".join(f"{'' if ratio is None else format(ratio, '.2f'):>10}" for ratio in against)
            lines.append(f"  {figures['label']:{wide}}  {rate['median']:6.2f}  {span:>13}{cells}")
    lines += ["", "What else was noted, medians"]
    lines.append(f"  {'':{wide}}  first batch  consumer's CPU  workers' CPU  consumer's peak RSS")
    for figures in peers.values():
        first_s, cpu_s, workers_s, rss = (figures[name]["median"] for name in NOTED)
        lines.append(
            f"  {figures['label']:{wide}}  {first_s * 1e3:8.0f} ms  {cpu_s:12.2f} s  {workers_s:10.2f} s"
            f"  {rss / 2**20:15.0f} MiB"
        )
    lines += [""] + [f"{peer} failed: {reason}" for peer, reason in outcome["failures"].items()]
    versions = {name: version for figures in peers.values() for name, version in figures["versions"].items()}
    lines.append(
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, Linux "
        f"{machine['kernel']}, load {machine['load']:.1f} afterwards; Python {machine['python']}, "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
    )
    return "\n".join(lines)
