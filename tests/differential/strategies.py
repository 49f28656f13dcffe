"""What hypothesis thinks up: samples of all kinds, and ways to load them."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch.utils import data

from differential import datasets
from differential.datasets import COLLATES, ERRORS, INITS, Batch, Told
from differential.recipes import (
    ARRAY_DTYPES,
    ARRAY_FORMS,
    CONTAINERS,
    TENSOR_DTYPES,
    TENSOR_FORMS,
    THINGS,
    Array,
    Box,
    Tensor,
    Thing,
)

__all__ = ["passes", "samples_cases"]

SHAPES = [(), (2,), (3, 2), (0,), (2, 0, 3), (1, 2, 3, 2), (1,), (40, 30)]


def often(first: list, rest: list, weight: int = 2) -> st.SearchStrategy:
    """One of the first few about as often as one of all others."""
    return st.one_of(*[st.sampled_from(first)] * weight, st.sampled_from(rest))


shapes = often(SHAPES[:3], SHAPES)
# torch's workers send tensors without their conjugate and negative bits: other values arrive than were sent.
SENT_RIGHT = [form for form in TENSOR_FORMS if form not in ("conj", "neg")]
tensors = st.builds(Tensor, st.sampled_from(TENSOR_DTYPES), shapes, often(["plain"], SENT_RIGHT, 1))
arrays = st.builds(Array, st.sampled_from(ARRAY_DTYPES), shapes, often(["plain"], ARRAY_FORMS, 1))
things = st.builds(Thing, often(list(THINGS)[:5], list(THINGS), 1))
leaves = st.one_of(tensors, arrays, things)


def boxes(children: st.SearchStrategy) -> st.SearchStrategy:
    return st.builds(
        Box, often(["list", "tuple", "dict"], list(CONTAINERS), 1), st.lists(children, min_size=1, max_size=4).map(tuple)
    )


recipes = st.one_of(leaves, boxes(leaves), st.recursive(leaves, boxes, max_leaves=6))


@st.composite
def altered(draw: Any, recipe: Any) -> Any:
    """A recipe that differs in one place."""
    if isinstance(recipe, Box):
        what = draw(st.sampled_from(["inside", "inside", "inside", "inside", "fewer", "more", "kind"]))
        if what == "fewer":
            return dataclasses.replace(recipe, parts=recipe.parts[:-1])
        if what == "more":
            return dataclasses.replace(recipe, parts=(*recipe.parts, draw(leaves)))
        if what == "kind":
            return dataclasses.replace(recipe, kind=draw(st.sampled_from(list(CONTAINERS))))
        at = draw(st.integers(0, len(recipe.parts) - 1))
        return dataclasses.replace(recipe, parts=(*recipe.parts[:at], draw(altered(recipe.parts[at])), *recipe.parts[at + 1 :]))
    if isinstance(recipe, Thing):
        return draw(leaves)
    what = draw(st.sampled_from(["dtype", "shape", "form", "form", "all"]))
    if what == "all":
        return draw(leaves)
    dtypes, forms = (TENSOR_DTYPES, TENSOR_FORMS) if isinstance(recipe, Tensor) else (ARRAY_DTYPES, ARRAY_FORMS)
    choice = {"dtype": dtypes, "shape": SHAPES, "form": forms}[what]
    return dataclasses.replace(recipe, **{what: draw(st.sampled_from(choice))})


@st.composite
def batches(draw: Any, rows: int | None = None) -> Batch:
    recipe = draw(recipes)
    rows = draw(st.integers(1, 4)) if rows is None else rows
    others = {}
    if rows > 1 and draw(st.integers(0, 2)) == 0:
        others = {draw(st.integers(0, rows - 1)): draw(altered(recipe))}
    return Batch(recipe, rows, others)


@dataclass(frozen=True)
class Samples:
    """A pass over batches of samples, each batch of a kind of its own."""

    batches: list
    style: str = "map"
    collate: str = "default"
    workers: int = 2
    seed: int = 0
    passes: tuple = (None,)
    length: int | None = None

    def arguments(self) -> dict:
        common = {"collate_fn": COLLATES[self.collate], "num_workers": self.workers}
        common["timeout"] = 30 if self.workers else 0
        if self.style == "iterable":
            return {"dataset": datasets.Flow(self.batches), "batch_size": self.batches[0].rows, **common}
        kind = {"map": datasets.Table, "together": datasets.Together, "in a tuple": datasets.TogetherInATuple}
        table = kind.get(self.style, datasets.Table)(self.batches)
        if self.style == "alone":
            return {"dataset": table, "batch_size": None, "sampler": list(itertools.chain(*table.indices())), **common}
        return {"dataset": table, "batch_sampler": table.indices(), **common}


@st.composite
def samples_cases(draw: Any, *, workers: int, most: int, collate: str = "default", style: str | None = None) -> Samples:
    style = draw(st.sampled_from(["map", "map", "together", "in a tuple", "iterable"])) if style is None else style
    rows = draw(st.integers(1, 3)) if style == "iterable" else 1 if style == "alone" else None
    drawn = draw(st.lists(batches(rows), min_size=most // 2, max_size=most))  # to start workers takes longer than to use them
    return Samples(drawn, style, collate, workers)


@dataclass(frozen=True)
class Passes:
    """One or more passes over numbered samples."""

    seed: int
    length_of_data: int
    told: Told
    style: str
    workers: int
    arguments_: dict
    sampler: str
    generator: int | None
    collate: str
    init: str
    passes: tuple
    length: int | None
    claims: Any = None

    @property
    def unordered(self) -> bool:
        return not self.arguments_.get("in_order", True)

    def arguments(self) -> dict:
        made = {**self.arguments_, "num_workers": self.workers, "worker_init_fn": INITS[self.init]}
        made.update(collate_fn=COLLATES[self.collate])
        told = dataclasses.replace(self.told)
        if self.generator is not None:
            made["generator"] = torch.Generator()
            made["generator"].manual_seed(self.generator)
        if self.style in STREAMS:
            options = STREAMS[self.style]
            made["dataset"] = datasets.Stream(self.length_of_data, told, claims=self.claims, **options)
        else:
            made["dataset"] = (datasets.TapeTogether if self.style == "together" else datasets.Tape)(self.length_of_data, told)
            made.update(SAMPLERS[self.sampler](made["dataset"]))
        return made


STREAMS = {
    "stream": {},
    "generator": {"generator": True},
    "every worker": {"shared_out": False},
}


def _seeded(seed: int) -> torch.Generator:
    generator = torch.Generator()
    generator.manual_seed(seed)
    return generator


def _chunks(length: int, size: int) -> list:
    return [list(range(start, min(start + size, length))) for start in range(0, length, size)]


SAMPLERS = {
    "none": lambda dataset: {},
    "shuffle": lambda dataset: {"shuffle": True},
    "no shuffle": lambda dataset: {"shuffle": False},
    "list": lambda dataset: {"sampler": list(range(len(dataset)))[::-1]},
    "range": lambda dataset: {"sampler": range(0, len(dataset), 2)},
    "tensor": lambda dataset: {"sampler": torch.arange(len(dataset))},
    "sequential": lambda dataset: {"sampler": data.SequentialSampler(dataset)},
    "replacement": lambda dataset: {"sampler": data.RandomSampler(dataset, replacement=True, num_samples=7)},
    "own generator": lambda dataset: {"sampler": data.RandomSampler(dataset, generator=_seeded(3))},
    "more": lambda dataset: {"sampler": data.RandomSampler(dataset, num_samples=2 * len(dataset) + 1)},
    "subset": lambda dataset: {"sampler": data.SubsetRandomSampler(range(len(dataset) // 2))},
    "weighted": lambda dataset: {"sampler": data.WeightedRandomSampler([1.0 + n for n in range(len(dataset))], 6)},
    "drawing": lambda dataset: {"sampler": datasets.Drawing(len(dataset))},
    "eager": lambda dataset: {"sampler": datasets.Eager(len(dataset))},
    "failing": lambda dataset: {"sampler": datasets.Drawing(len(dataset), fails_at=5)},
    "distributed": lambda dataset: {"sampler": data.DistributedSampler(dataset, num_replicas=2, rank=1)},
    "batches": lambda dataset: {"batch_sampler": _chunks(len(dataset), 3)},
    "batches at once": lambda dataset: {"batch_sampler": datasets.Eager(len(dataset), 2)},
    "batches of tuples": lambda dataset: {"batch_sampler": datasets.Indices(_chunks(len(dataset), 2), tuple)},
    "batches of tensors": lambda dataset: {"batch_sampler": datasets.Indices(_chunks(len(dataset), 3), torch.tensor)},
    "an empty batch": lambda dataset: {"batch_sampler": [*_chunks(len(dataset), 2), [], [0]]},
    "batches by torch": lambda dataset: {"batch_sampler": data.BatchSampler(data.RandomSampler(range(9)), 2, True)},
    "batches of drawing": lambda dataset: {"batch_sampler": data.BatchSampler(datasets.Drawing(len(dataset)), 2, False)},
}


@st.composite
def passes(draw: Any, *, workers: st.SearchStrategy, styles: list, most: int = 12) -> Passes:
    count = draw(workers)
    style = draw(st.sampled_from(styles))
    iterable = style in STREAMS
    length = draw(st.one_of(st.integers(1, most), st.integers(0, most)))
    options: dict = {}
    sampler = "none" if iterable else draw(often(["none", "shuffle"], list(SAMPLERS), 1))
    if sampler == "failing" and count:  # ours hands out what came before it first
        sampler = "drawing"
    own_batches = sampler.startswith("batches") or sampler == "an empty batch"
    if not own_batches and draw(st.booleans()):
        options["batch_size"] = draw(st.sampled_from([2, 3, 3, 4, 5, 1, None, 20]))
        if options["batch_size"] is not None:
            options["drop_last"] = draw(st.booleans())
    if count:
        options["timeout"] = 30
        options["prefetch_factor"] = draw(st.sampled_from([None, None, 1, 3]))
        options["multiprocessing_context"] = draw(st.sampled_from([None, None, "fork"]))
    number = draw(st.sampled_from([1, 1, 2, 3]))
    if count and number > 1:
        options["persistent_workers"] = draw(st.booleans())
    fails = draw(
        st.one_of(st.just({}), st.dictionaries(st.integers(0, most - 1), st.sampled_from(list(ERRORS)), min_size=1, max_size=3))
    )
    if iterable:  # there it is the end
        fails = {index: name for index, name in fails.items() if name != "StopIteration"}
    told = Told(fails, draw(st.sampled_from(list(datasets.DRAWS))), draw(st.booleans()))
    collate = draw(often(["default"], list(COLLATES), 1))
    if options.get("batch_size", 1) is None:
        collate = draw(st.sampled_from(["default", "as they are", "nothing"]))
    # Where workers fail at once, torch's loader takes five seconds to stop each: see test_workers_that_fail_at_once.
    init = draw(often(["none"], [name for name in INITS if name != "fails"], 1)) if count else "none"
    claims = draw(st.sampled_from([None, None, "truly", 2] + ["broken"] * (not count))) if iterable else None
    stops = draw(st.lists(st.one_of(st.none(), st.none(), st.integers(0, 3)), min_size=number, max_size=number))
    generator = draw(st.one_of(st.none(), st.just(7)))
    asked = draw(st.one_of(st.none(), st.integers(0, len(stops))))
    seed = draw(st.sampled_from([0, 1, 123456789]))
    return Passes(
        seed, length, told, style, count, options, sampler, generator, collate, init, tuple(stops), asked, claims
    )
