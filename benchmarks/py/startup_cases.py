"""One case of the start-up benchmark for one loader, in this process: `... -m benchmarks.py.startup_cases CASE LOADER JSON`.

Writes one line of JSON. Times are in milliseconds.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import ringbuf
from ringbuf.torch import RingLoader

LOADERS = {"torch": DataLoader, "ring": RingLoader}
LABELS = {"torch": "torch", "ring": "ringbuf"}
POOL = 64  # samples that lie in memory


class Samples(Dataset):
    """Sample i is one of some tensors in memory, and i. Making it costs nothing."""

    def __init__(self, length: int, shape: tuple[int, ...]):
        self._length = length
        self._pool = torch.rand((min(length, POOL), *shape))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._pool[index % len(self._pool)], index


def epochs(make: Callable[..., Any], size: dict[str, Any]) -> dict[str, Any]:
    """Some epochs with the same workers, then some with new workers in each.

    first: from iter() to the first batch, workers started; the first such epoch of the process.
    again: the same in later epochs, with new workers: what can be kept warm is.
    restart: from iter() to the first batch of a later epoch, with the same workers.
    gap: from the last batch of an epoch to the first of the next one, the same workers.
    gap_new: the same with new workers.
    """
    data = Samples(size["batches"] * size["batch_size"], tuple(size["shape"]))
    common = {"batch_size": size["batch_size"], "num_workers": size["workers"], "multiprocessing_context": "fork"}
    result: dict[str, Any] = {}
    for persistent, later, gap in ((True, "restart", "gap"), (False, "again", "gap_new")):
        loader = make(data, persistent_workers=persistent, **common)
        firsts, gaps = _timed(loader, size["epochs"], size)
        if persistent:
            result["first"] = [firsts[0]]
        result |= {later: firsts[1:], gap: gaps}
        _end(loader)
    return result


def _timed(loader: Any, count: int, size: dict[str, Any]) -> tuple[list[float], list[float]]:
    firsts, gaps, last = [], [], None
    for _ in range(count):
        began, seen = time.perf_counter(), 0
        for _, indices in loader:
            now = time.perf_counter()
            if seen == 0:
                firsts.append(1e3 * (now - began))
                if last is not None:
                    gaps.append(1e3 * (now - last))
            if indices[0] != seen * size["batch_size"] or len(indices) != size["batch_size"]:
                raise ValueError(f"batch {seen} begins with sample {int(indices[0])} and has {len(indices)}")
            seen += 1
            last = now
        if seen != size["batches"]:
            raise ValueError(f"{size['batches']} batches were due, {seen} arrived")
    return firsts, gaps


def breaks(make: Callable[..., Any], size: dict[str, Any]) -> dict[str, Any]:
    """Time `for batch in loader: break` again and again, and see what it leaves behind.

    Taken stock of: before the first round, after it, after the last one, and when the loader is gone.
    """
    data = Samples(size["batches"] * size["batch_size"], tuple(size["shape"]))
    stock = [_stock()]
    loader = make(data, batch_size=size["batch_size"], num_workers=size["workers"], multiprocessing_context="fork")
    rounds = []
    for _ in range(size["rounds"]):
        began = time.perf_counter()
        for batch in loader:  # noqa: B007  what is left must hold one
            break
        rounds.append(1e3 * (time.perf_counter() - began))
        del batch
        if len(rounds) == 1:
            stock.append(_stock())
    stock.append(_stock())
    _end(loader)
    del loader, data
    gc.collect()
    stock.append(_stock())
    return {"rounds": rounds, "stock": dict(zip(("before", "after_one", "after_all", "afterwards"), stock))}


def _children(task: Path) -> int:
    try:
        return len((task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
        return 0


def _stock() -> dict[str, int]:
    """What this process has, of what a loader may leave behind."""
    maps = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    shared = [line[0].split("-") for line in maps if len(line) > 5 and line[5].startswith(("/memfd:", "/dev/shm/"))]
    return {
        "processes": sum(map(_children, Path("/proc/self/task").iterdir())),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "shared_bytes": sum(int(end, 16) - int(start, 16) for start, end in shared),
        "shm_files": len(_shm_files()),
    }


def _shm_files() -> list[str]:
    return [name for name in os.listdir("/dev/shm") if name.startswith((f"torch_{os.getpid()}_", "ringbuf."))]


def kept(make: Callable[..., Any], size: dict[str, Any]) -> dict[str, Any]:
    """Keep every batch, with few descriptors to be had."""
    data = Samples(size["batches"] * size["batch_size"], tuple(size["shape"]))
    loader = make(data, batch_size=size["batch_size"], num_workers=size["workers"], multiprocessing_context="fork")
    resource.setrlimit(resource.RLIMIT_NOFILE, (size["descriptors"], resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    batches: list[Any] = []
    error = None
    try:
        batches.extend(loader)
    except (RuntimeError, OSError) as refused:
        error = f"{type(refused).__name__}: {str(refused).splitlines()[0]}"
    for number, (_, indices) in enumerate(batches):
        if indices[0] != number * size["batch_size"]:
            raise ValueError(f"kept batch {number} begins with sample {int(indices[0])}")
    return {"kept": len(batches), "error": error}


def _end(loader: Any) -> None:
    """Have it stop its workers before anything else is measured."""
    if isinstance(loader, RingLoader):
        loader.close()
    else:
        loader._iterator = None


CASES = {"epochs": epochs, "breaks": breaks, "kept": kept}


def command(case: str, loader: str, size: dict[str, Any]) -> list[str]:
    """The command line that makes a fresh interpreter do it."""
    return [sys.executable, "-m", "benchmarks.py.startup_cases", case, loader, json.dumps(size)]


def main(case: str, loader: str, size: str) -> None:
    warnings.filterwarnings("ignore", message=".*workers", category=UserWarning)  # more of them than cores
    warnings.filterwarnings("ignore", message="RingLoader: .* slots are still looked at")  # that is the point of `kept`
    outcome = CASES[case](LOADERS[loader], json.loads(size))
    print(json.dumps(outcome | {"versions": {"torch": torch.__version__, "ringbuf": ringbuf.__version__}}))


if __name__ == "__main__":
    main(*sys.argv[1:])
