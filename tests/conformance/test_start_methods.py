"""fork, spawn and forkserver, by name and by context: the batches are the same.

Of torch's own suite: TestDataLoader's start methods and contexts. A process that imports torch takes seconds to start, so there
is one loader for each method, and every test looks at what it gave.
"""

import multiprocessing

import pytest
import torch

from conformance.data import Everything, Numbers, Unpicklable, described, mark_dataset
from conformance.expect import refuses_to_begin, same
from conformance.streams import Streams, first_base_seed, generator

CONTEXTS = {
    "fork": lambda: "fork",
    "fork_context": lambda: torch.multiprocessing.get_context("fork"),
    "spawn": lambda: "spawn",
    "forkserver_context": lambda: multiprocessing.get_context("forkserver"),
}


@pytest.fixture(scope="module", params=list(CONTEXTS))
def passes(Loader, request):
    """What one persistent worker gave in two passes: (name of the collated type, sample)."""
    loader = Loader(
        Everything(3),
        None,
        num_workers=1,
        multiprocessing_context=CONTEXTS[request.param](),
        generator=generator(),
        worker_init_fn=mark_dataset,
        collate_fn=described,
        persistent_workers=True,
    )
    found = [list(loader), list(loader)]
    loader._iterator._shutdown_workers()
    return found


def test_each_method_gives_the_same_random_numbers(passes):
    stream = Streams(first_base_seed(), 0)
    for _, sample in passes[0] + passes[1]:
        expected = stream.draw()
        assert {name: int(sample[name]) for name in expected} == {name: int(value) for name, value in expected.items()}


def test_each_method_runs_worker_init_fn_and_collate_in_the_worker(passes):
    assert [(kind, sample["mark"]) for kind, sample in passes[0] + passes[1]] == [("dict", 10)] * 6


def test_each_method_tells_the_worker_who_it_is(passes):
    for _, sample in passes[0] + passes[1]:
        assert (sample["id"], sample["num_workers"], sample["same"], sample["refuses"]) == (0, 1, True, True)
        assert sample["threads"] == 1


def test_each_method_keeps_persistent_workers(passes):
    assert len({sample["pid"] for _, sample in passes[0] + passes[1]}) == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_name_becomes_a_context(Loader, method):
    context = Loader(Numbers(1), num_workers=1, multiprocessing_context=method).multiprocessing_context
    assert isinstance(context, multiprocessing.context.BaseContext) and context.get_start_method() == method


def test_a_context_stays_the_one_that_was_given(Loader):
    for module in (multiprocessing, torch.multiprocessing):
        context = module.get_context("fork")
        loader = Loader(Numbers(2), 2, num_workers=1, multiprocessing_context=context)
        assert loader.multiprocessing_context is context
        assert same(list(loader), [torch.tensor([0, 1])])


def test_without_a_context_workers_start_as_multiprocessing_starts_processes(Loader):
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        loader = Loader(Unpicklable(), num_workers=1)
        with pytest.warns(UserWarning, match="pickl"):
            refuses_to_begin(loader, Exception, "pickle")
        multiprocessing.set_start_method("fork", force=True)
        assert len(list(loader)) == 10
    finally:
        multiprocessing.set_start_method(before, force=True)
