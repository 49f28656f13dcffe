"""The peers by name. A peer is a module with

    LABEL                       what the tables call it
    versions()                  {"package": "1.2.3"} of what is being measured
    open(workload, **options)   a context manager that yields an iterable of batches; iterated again, it is the next epoch

A batch is an array or tensor, or a tuple of them, in the order of the dataset's samples. Importing the module imports what
it measures; ImportError means that this peer cannot be measured here. Workers start when the first epoch does, and are
gone when the context manager has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

FRESH = ("seed", "seed-pcg")
STACKED = ("mem", "small", *FRESH)


@dataclass(frozen=True)
class Peer:
    """How to measure one."""

    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    """What it is called in place of the module's LABEL."""
    only: tuple[str, ...] = ()
    """The workloads that it can do, where it cannot do all."""
    fewer: Mapping[str, int] = field(default_factory=dict)
    """By workload: it does one in so many batches, being slow; its rates are comparable, its total times are not."""
    light: bool = True
    """Whether it is in the `bench` extra, and so in the quick set."""

    def load(self) -> ModuleType:
        return import_module(f"benchmarks.py.peers.{self.module}")


NAMES = {
    "ring": Peer("ring_numpy"),
    "ring_torch": Peer("ring_torch"),
    "ring_pull": Peer("ring_torch", {"dispatch": "pull"}, "ringbuf RingLoader (torch, pull)"),
    "ring_into": Peer("ring_numpy", {"into": True}, "ringbuf RingLoader (numpy, into)", only=STACKED),
    "ring_few": Peer("ring_numpy", {"slots": 6}, "ringbuf RingLoader (numpy, 6 slots)", only=("mem", "img")),
    "ring_spawn": Peer("ring_torch", {"start": "spawn"}, "ringbuf RingLoader (torch, spawn)", only=FRESH),
    "torch": Peer("torch_loader", fewer={"small": 8}),
    "torch_new": Peer("torch_loader", {"persistent": False}, "torch DataLoader (new workers)", fewer={"small": 8}),
    "torch_spawn": Peer("torch_loader", {"start": "spawn"}, "torch DataLoader (spawn)", only=FRESH),
    "torchdata": Peer("torchdata_loader", fewer={"small": 8}, light=False),
    "grain": Peer("grain_loader", fewer={"small": 8}, light=False),
    "spdl_threads": Peer("spdl_threads", fewer={"small": 4}, light=False),
    "spdl_arena": Peer("spdl_arena", light=False),
    "iceoryx2": Peer("iceoryx2_loan"),
    "faster_fifo": Peer("faster_fifo_queue"),
    "pyzmq": Peer("pyzmq"),
    "mp_queue": Peer("mp_queue", fewer={"mem": 4, "img": 4}),
    "ray": Peer("ray_actors", fewer={"small": 8}, light=False),
    "ideal": Peer("ideal"),
    "ideal_nt": Peer("ideal_nt", only=("mem", "img", "small", *FRESH)),
}
