"""get_worker_info(), torch's own, as datasets use it to find their share.

Of torch's own suite: TestDataLoader's worker info.
"""

import os

import pytest
import torch
from torch.utils.data import get_worker_info

from conformance.data import CountsInits, IdsOfSampler, Introspective, Numbers, collate_with_worker_id, mark_dataset


def test_each_worker_knows_who_it_is(Loader):
    torch.manual_seed(5)
    seed = torch.empty((), dtype=torch.int64).random_().item()
    torch.manual_seed(5)
    told = list(Loader(Introspective(6), None, num_workers=2))
    pids = {sample["pid"] for sample in told}
    assert len(pids) == 2 and os.getpid() not in pids
    for number, sample in enumerate(told):
        assert (sample["id"], sample["num_workers"], sample["seed"]) == (number % 2, 2, seed + number % 2)


def test_the_dataset_is_that_of_the_worker(Loader):
    dataset = Introspective()
    told = list(Loader(dataset, None, num_workers=2, worker_init_fn=mark_dataset))
    assert all(sample["same"] for sample in told)
    assert [sample["mark"] for sample in told] == [10, 11, 10, 11]
    assert dataset.mark == -1


def test_it_is_an_object_of_torchs_class_and_cannot_be_changed(Loader):
    told = list(Loader(Introspective(), None, num_workers=1))
    assert {sample["type"] for sample in told} == {"torch.utils.data._utils.worker.WorkerInfo"}
    assert all(sample["refuses"] for sample in told)


def test_there_is_none_in_the_main_process(Loader, num_workers):
    assert get_worker_info() is None
    iterator = iter(Loader(Numbers(3), num_workers=num_workers))
    next(iterator)
    assert get_worker_info() is None
    list(iterator)
    assert get_worker_info() is None


def test_collate_runs_in_the_worker_and_the_sampler_in_the_main_process(Loader):
    sampler = IdsOfSampler(6)
    loader = Loader(Numbers(6), 2, sampler=sampler, num_workers=2, collate_fn=collate_with_worker_id)
    assert list(loader) == [(0, 2), (1, 2), (0, 2)]
    assert sampler.places == [(os.getpid(), None)] * 6


def test_without_workers_collate_finds_none(Loader):
    assert list(Loader(Numbers(2), 2, collate_fn=collate_with_worker_id)) == [(-1, 2)]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_new_pass_has_new_workers_unless_they_persist(Loader, persistent):
    loader = Loader(CountsInits(), 2, num_workers=2, persistent_workers=persistent)
    pids = [set(torch.cat(list(loader))[:, 2].tolist()) for _ in range(2)]
    assert (pids[0] == pids[1]) == persistent
