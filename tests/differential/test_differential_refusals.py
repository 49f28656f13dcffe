"""What torch's loader does not take, ours does not take, for the same reason; and what it takes, we take."""

import multiprocessing
from dataclasses import dataclass

import pytest
import torch
from hypothesis import strategies as st
from torch.utils import data
from torch.utils.data import DataLoader

from differential.datasets import Stream, Tape, Told, as_they_are
from differential.runner import Raised, assert_same, differences, observe
from ringbuf.torch import RingLoader

DATASETS = {
    "map": lambda: Tape(5, Told()),
    "empty": lambda: Tape(0, Told()),
    "iterable": lambda: Stream(5, Told()),
    "list": lambda: [1, 2, 3],
    "tensors": lambda: data.TensorDataset(torch.arange(6), torch.rand(6)),
    "no length": lambda: object(),
    "dict": lambda: {0: 1.0, 1: 2.0},
    "none": lambda: None,
}

# Arguments as functions where they have a state, or cannot be printed.
ARGUMENTS = {
    "batch_size": [1, 3, 0, -1, None, 2.0, "2", True],
    "shuffle": [None, False, True, 1, "yes"],
    "sampler": [None, lambda: [1, 0], lambda: iter([0]), lambda: data.SequentialSampler(range(3)), 5, []],
    "batch_sampler": [None, lambda: [[0, 1], [2]], 7, []],
    "num_workers": [0, 0, 0, 1, -1, 1.5, "2", None],
    "collate_fn": [None, lambda: as_they_are, 3],
    "pin_memory": [False, True, None],
    "drop_last": [False, True, None],
    "timeout": [0, 5, -1, 0.5, float("nan"), "1"],
    "worker_init_fn": [None, 4],
    "multiprocessing_context": [None, "fork", "nothing", 3, lambda: multiprocessing.get_context("spawn"), object],
    "generator": [None, torch.Generator, 3],
    "prefetch_factor": [None, 2, 0, -1, 1.5],
    "persistent_workers": [False, True, None],
    "pin_memory_device": ["", "cuda", "nothing"],
    "in_order": [True, False],
}


@dataclass(frozen=True)
class Making:
    """Making a loader, and one pass where no workers would be started."""

    dataset: str
    chosen: dict
    seed: int = 0
    length: int = 0

    @property
    def passes(self) -> tuple:
        return (None,) if self.chosen.get("num_workers", 0) in (0, 1) and self._ends_early() else ()

    def _ends_early(self) -> bool:
        return self.chosen.get("num_workers", 0) == 0 or self.chosen.get("prefetch_factor") == 0

    def arguments(self) -> dict:
        made = {name: value() if callable(value) else value for name, value in self.chosen.items()}
        return {"dataset": DATASETS[self.dataset](), **made}


def one_thing_is_wrong_with_the_pass(making: Making) -> bool:
    """Which of two things a pass is refused for, when both are wrong, does not count."""
    return not (making.chosen.get("generator") == 3 and making.chosen.get("timeout"))


makings = st.builds(
    Making,
    st.one_of(st.just("map"), st.sampled_from(list(DATASETS))),
    st.lists(st.sampled_from(list(ARGUMENTS)), unique=True, max_size=4).flatmap(
        lambda names: st.fixed_dictionaries({name: st.sampled_from(ARGUMENTS[name]) for name in names})
    ),
).filter(one_thing_is_wrong_with_the_pass)


def test_arguments(check):
    check(makings, assert_same, examples=600)


@pytest.mark.parametrize(
    "name",
    "batch_size batch_sampler sampler drop_last dataset persistent_workers num_workers timeout collate_fn".split(),
)
@pytest.mark.parametrize("value", [3, None], ids=str)
def test_attributes_that_can_and_cannot_be_set_later(name, value):
    outcomes = []
    for Loader in (DataLoader, RingLoader):
        loader = Loader([1, 2, 3])
        try:
            setattr(loader, name, value)
        except Exception as error:
            outcomes.append((type(error), str(error).replace(Loader.__name__, "")))
        else:
            outcomes.append(getattr(loader, name))
    assert outcomes[0] == outcomes[1]


def test_the_comparison_notices_who_refuses():
    good, bad = Making("map", {"batch_size": 2}), Making("map", {"batch_size": 0})
    taken, refused = observe(DataLoader, good), observe(DataLoader, bad)
    assert isinstance(refused.made, Raised)
    assert differences(taken, refused) and differences(refused, taken) and not differences(refused, refused)
