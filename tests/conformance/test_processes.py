"""What workers inherit from, and do to, the process they come from: cores, thread pools, libraries.

Of torch's own suite: TestSetAffinity, TestConvAfterFork, fork with a native thread pool alive, large batches of indices at exit.
"""

import os

import torch

from conformance.data import Affinity, Convolves, Numbers, ParallelAdd, bind_to_last_core


def test_cores_that_worker_init_fn_chose_stay_chosen(Loader):
    before = os.sched_getaffinity(0)
    for cores in Loader(Affinity(), None, num_workers=2, worker_init_fn=bind_to_last_core):
        assert cores == [max(before)]
    assert os.sched_getaffinity(0) == before


def test_a_worker_can_convolve_after_its_parent_has(Loader):
    expected = torch.nn.functional.conv2d(torch.ones(1, 1, 8, 8), torch.ones(1, 1, 3, 3))[0]
    batches = list(Loader(Convolves(), num_workers=1, multiprocessing_context="fork"))
    assert [torch.equal(batch[0], expected) for batch in batches] == [True, True]


def test_a_worker_can_compute_after_its_parents_threads_have(Loader):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert (torch.ones(1 << 17) + 1).sum() == 1 << 18  # by a pool, which a fork does not copy
        batches = list(Loader(ParallelAdd(), None, num_workers=1, multiprocessing_context="fork"))
        assert [batch.item() for batch in batches] == [1 << 17, 1 << 18]
        assert (torch.ones(1 << 17) + 1).sum() == 1 << 18
    finally:
        torch.set_num_threads(threads)


def test_a_batch_of_very_many_indices_arrives(Loader):
    count = 40_960
    sampler = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    loader = Loader(Numbers(count), batch_sampler=[sampler.tolist()] * 3, num_workers=1, prefetch_factor=3)
    for batch in loader:
        assert torch.equal(batch, sampler)
