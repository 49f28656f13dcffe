"""What is measured: cells, each a workload and the peers that take turns at it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from benchmarks.py.peers import NAMES
from benchmarks.py.workloads import TOUCHES, Workload

BATCHES = {"mem": 96, "img": 64, "small": 8_192, "seed": 20, "seed-pcg": 20, "jpeg": 12, "ragged": 256}
WORKERS = (1, 2, 4)
QUICK_RUNS = 3
FULL_RUNS = 5

LOADERS = ("ring", "ring_torch", "ring_pull", "torch")
MOVERS = ("iceoryx2", "faster_fifo", "ideal", "ideal_nt")
LARGE = ("ring", "ring_torch", "torch", "iceoryx2", "ideal", "ideal_nt")
QUICK = {
    ("mem", "nothing"): (*LOADERS, "ring_few", *MOVERS),
    ("mem", "all"): LARGE,
    ("img", "nothing"): LARGE,
    ("small", "nothing"): ("ring", "ring_torch", "torch", "iceoryx2", "faster_fifo", "pyzmq", "ideal"),
    ("seed", "nothing"): (*LOADERS, "ring_into", "ideal"),
    ("seed-pcg", "nothing"): (*LOADERS, "ring_into", "ideal"),
    ("jpeg", "nothing"): ("ring_torch", "torch"),
    ("ragged", "nothing"): ("ring", "ring_torch", "torch", "ideal"),
}
WATCHED = ("mem", "nothing")
"""The workload of which each peer gets one more run, to see how much memory it takes."""


@dataclass(frozen=True)
class Cell:
    workload: Workload
    peers: tuple[str, ...]

    @property
    def key(self) -> str:
        return key(self.workload.name, self.workload.touch, self.workload.workers)

    @property
    def watched(self) -> bool:
        return (self.workload.name, self.workload.touch) == WATCHED and self.workload.workers == max(WORKERS)


def key(name: str, touch: str = "nothing", workers: int = max(WORKERS)) -> str:
    return f"{name}/{touch}/{workers}"


def quick() -> list[Cell]:
    """4 workers only, and the peers that are easily had: minutes."""
    return [Cell(_workload(name, touch, max(WORKERS), epochs=2), peers) for (name, touch), peers in QUICK.items()]


def full() -> list[Cell]:
    """Everything: hours. What the consumer reads is varied for the large batches alone."""
    return [
        Cell(_workload(name, touch, workers, epochs=3), able(NAMES, name))
        for name in BATCHES
        for touch in (TOUCHES if name in ("mem", "img") else TOUCHES[:1])
        for workers in WORKERS
    ]


def tiny(cells: list[Cell]) -> list[Cell]:
    """The same cells with hardly any batches: shows that it runs, measures nothing."""
    return [replace(cell, workload=replace(cell.workload, workers=2, batches=9, epochs=2, tiny=True)) for cell in cells]


def able(peers: Collection[str], workload: str) -> tuple[str, ...]:
    return tuple(name for name in peers if not NAMES[name].only or workload in NAMES[name].only)


def _workload(name: str, touch: str, workers: int, epochs: int) -> Workload:
    return Workload(name=name, batches=BATCHES[name], workers=workers, touch=touch, epochs=epochs)
