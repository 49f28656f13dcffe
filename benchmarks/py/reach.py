"""What the loader is meant to reach, against what, and whether a result shows that it did."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.py.figures import paired, values
from benchmarks.py.plan import key

OURS = ("ring", "ring_torch", "ring_pull", "ring_into", "ring_few", "ring_spawn")
CEILINGS = ("ideal", "ideal_nt")
BEST = "best other"


@dataclass(frozen=True)
class Aim:
    """`ours` against `theirs` by one figure of one cell; `least` or `most` is what the ratio should be."""

    what: str
    cell: str
    figure: str
    ours: str
    theirs: str
    least: float | None = None
    most: float | None = None

    @property
    def goal(self) -> str:
        return f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"

    def met(self, ratio: float) -> bool:
        return ratio >= self.least if self.least is not None else ratio <= self.most


def _rates(name: str, cell: str, bounds: dict[tuple[str, str], float]) -> list[Aim]:
    return [Aim(f"{name}, rate", cell, "rate", ours, theirs, least=least) for (ours, theirs), least in bounds.items()]


LARGE = {
    ("ring_torch", "torch"): 5,
    ("ring", "ideal"): 1.0,
    ("ring", "ideal_nt"): 0.95,
    ("ring", "iceoryx2"): 1.1,
}
LARGE_READ = {("ring_torch", "torch"): 3.5, ("ring", "ideal"): 1.0, ("ring", BEST): 1.1}
MEMORY = ("ring_torch", "ring", "ring_few")
SEEDS = {"seed": "seed, legacy normals", "seed-pcg": "seed, PCG64"}

AIMS = [
    *_rates("mem", key("mem"), LARGE),
    *_rates("mem, every byte read", key("mem", "all"), LARGE_READ),
    *_rates("img", key("img"), LARGE),
    *_rates("small", key("small"), {("ring_torch", "torch"): 60, ("ring", "torch"): 60, ("ring", "faster_fifo"): 1.3}),
    *(
        aim
        for cell, name in SEEDS.items()
        for aim in (
            Aim(f"{name}, time of a cold epoch", key(cell), "cold", "ring_torch", "torch", most=0.9),
            Aim(f"{name}, time of a later epoch", key(cell), "later", "ring_torch", "torch", most=0.85),
            Aim(f"{name}, cold, written in place", key(cell), "cold", "ring_into", "torch", most=0.9),
            Aim(f"{name}, later, written in place", key(cell), "later", "ring_into", "torch", most=0.85),
            Aim(f"{name}, time to the first batch", key(cell), "first", "ring_torch", "torch", most=0.85),
            Aim(f"{name}, first batch, pulled", key(cell), "first", "ring_pull", "torch", most=0.6),
        )
    ),
    Aim("mem, the consumer's CPU for a batch", key("mem"), "cpu", "ring_torch", "torch", most=0.1),
    *(Aim("mem, peak memory of all processes", key("mem"), "memory", ours, "torch", most=0.6) for ours in MEMORY),
    Aim("mem, rate with 6 slots", key("mem"), "rate", "ring_few", "torch", least=5),
]
MESSAGES = {"faster_fifo": 3.0, "pyzmq": 1.0}
"""Messages of 64 bytes from one process to another, by put and get: how many times the rate of others."""


def table(result: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each aim that the result says anything about."""
    rows = []
    for aim in AIMS:
        cell = result["loaders"]["cells"].get(aim.cell)
        theirs = best_other(cell) if cell and aim.theirs == BEST else aim.theirs
        if cell is None or aim.ours not in cell["peers"] or theirs not in cell["peers"]:
            continue
        ratio = paired(values(cell, aim.ours, aim.figure), values(cell, theirs, aim.figure))
        if ratio:
            labels = (cell["peers"][name]["label"] for name in (aim.ours, theirs))
            rows.append(_row(aim.what, *labels, aim.goal, ratio, aim.met(ratio["median"])))
    peers = result.get("messages", {}).get("peers", {})
    for name, least in MESSAGES.items():
        if name in peers and "ring" in peers:
            ratio = paired(*([run["1p1c"] for run in peers[of]["runs"]] for of in ("ring", name)))
            labels = peers["ring"]["label"], peers[name]["label"]
            rows.append(_row("64 bytes, 1 to 1, messages/s", *labels, f"≥ {least:g}", ratio, ratio["median"] >= least))
    return rows


def _row(what: str, ours: str, theirs: str, goal: str, ratio: dict[str, float], met: bool) -> dict[str, Any]:
    return {"what": what, "ours": ours, "theirs": theirs, "goal": goal, **ratio, "met": met}


def best_other(cell: dict[str, Any]) -> str | None:
    """Who is fastest of those that are neither ours nor a ceiling."""
    others = [name for name in cell["peers"] if name not in OURS + CEILINGS]
    return max(others, key=lambda name: median(values(cell, name, "rate")), default=None)
