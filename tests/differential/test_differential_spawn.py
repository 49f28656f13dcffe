"""Workers that are spawned and inherit nothing make the same batches as torch's."""

from dataclasses import dataclass

import pytest
import torch

from differential.datasets import COLLATES, Flow, Stream, Table, Tape, Told, init_draws
from differential.datasets import Batch as B
from differential.recipes import Array, Box, Tensor, Thing
from differential.runner import assert_same

BATCHES = [
    B(Box("MyDict", (Tensor("bfloat16", (3, 2)), Box("Pair", (Array(">i4", (2,)), Thing("str"))))), 3),
    B(Box("defaultdict", (Tensor("float8_e5m2", (4,)), Thing("nan"), Thing("bool"))), 2),
    B(Tensor("float32", (2,)), 2, {1: Tensor("float32", (3,))}),
]


@dataclass(frozen=True)
class Case:
    kind: str
    seed: int = 5
    passes: tuple = (None,)
    length: int | None = None

    def arguments(self) -> dict:
        common = {"num_workers": 1, "multiprocessing_context": "spawn", "timeout": 50}
        told = Told({4: "two arguments"}, draws="all", where=True)
        if self.kind == "samples":
            table = Table(BATCHES)
            return {"dataset": table, "batch_sampler": table.indices(), **common}
        if self.kind == "as they are":
            return {"dataset": Flow(BATCHES), "batch_size": 3, "collate_fn": COLLATES["as they are"], **common}
        common.update(worker_init_fn=init_draws, generator=torch.Generator(), batch_size=2)
        if self.kind == "stream":
            return {"dataset": Stream(7, told), **common}
        return {"dataset": Tape(7, told), "shuffle": True, "persistent_workers": True, **common}


@pytest.mark.parametrize(
    "kind", ["samples", "tape", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("as they are", "stream"))]
)
def test_spawned(kind):
    passes = (None, None) if kind == "tape" else (None,)
    record = assert_same(Case(kind, passes=passes))
    assert len(record.passes[0]) > 2
