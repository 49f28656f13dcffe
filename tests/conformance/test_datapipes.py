"""torch's data pipes: graphs of iterables that a loader shuffles, seeds and shares out.

Of torch's own suite: IntegrationTestDataLoaderDataPipe, and TestDataLoader's data pipes.
"""

import warnings

import pytest
import torch
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

pytestmark = pytest.mark.filterwarnings("ignore:.*[Dd]atapipe:UserWarning", "ignore::FutureWarning")


def doubled(number):
    return number * 2


def numbers(loader):
    return torch.cat(list(loader)).tolist()


def test_a_pipe_of_iterables_is_iterated(Loader, num_workers):
    pipe = IterableWrapper(range(10)).map(doubled).sharding_filter()
    assert sorted(numbers(Loader(pipe, 3, num_workers=num_workers))) == list(range(0, 20, 2))


def test_a_pipe_that_is_not_shared_out_comes_from_every_worker(Loader):
    assert sorted(numbers(Loader(IterableWrapper(range(3)), num_workers=2))) == [0, 0, 1, 1, 2, 2]


def test_a_pipe_with_an_index_is_indexed(Loader, num_workers):
    pipe = SequenceWrapper(range(10)).map(doubled)
    loader = Loader(pipe, 4, num_workers=num_workers)
    assert len(loader) == 3 and numbers(loader) == list(range(0, 20, 2))
    torch.manual_seed(0)
    assert sorted(numbers(Loader(pipe, 4, shuffle=True, num_workers=num_workers))) == list(range(0, 20, 2))


@pytest.mark.parametrize("shuffle, shuffled", [(True, True), (False, False), (None, True)])
def test_the_loader_decides_whether_a_shuffler_shuffles(Loader, num_workers, shuffle, shuffled):
    pipe = IterableWrapper(range(40)).shuffle().sharding_filter()
    torch.manual_seed(0)
    order = numbers(Loader(pipe, shuffle=shuffle, num_workers=min(num_workers, 1)))
    assert (order != list(range(40))) == shuffled and sorted(order) == list(range(40))


def test_asking_to_shuffle_adds_a_shuffler_where_there_is_none(Loader):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = Loader(IterableWrapper(range(40)), shuffle=True)
    assert sorted(numbers(loader)) == list(range(40))


def test_a_shuffle_is_the_same_for_any_number_of_workers_and_seed_by_seed(Loader):
    orders = {}
    for workers in (0, 1, 2):
        for seed in (1, 2):
            loader = Loader(IterableWrapper(range(20)).shuffle().sharding_filter(), 1, num_workers=workers)
            torch.manual_seed(seed)
            orders[workers, seed] = numbers(loader)
            assert sorted(orders[workers, seed]) == list(range(20))
    for seed in (1, 2):
        assert orders[0, seed] == orders[1, seed] == orders[2, seed]
    assert orders[0, 1] != orders[0, 2]


@pytest.mark.parametrize("workers, persistent", [(0, False), (1, False), (2, True)])
def test_each_pass_is_shuffled_anew_and_in_the_same_way_from_the_same_seed(Loader, workers, persistent):
    loader = Loader(
        IterableWrapper(range(20)).shuffle().sharding_filter(), 1, num_workers=workers, persistent_workers=persistent
    )
    orders = []
    for seed in (5, None, 5):
        if seed is not None:
            torch.manual_seed(seed)
        orders.append(numbers(loader))
    assert orders[0] == orders[2] != orders[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_seed_of_a_shuffle_comes_from_the_generator(Loader, workers):
    orders = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(9)
        pipe = IterableWrapper(range(20)).shuffle().sharding_filter()
        torch.manual_seed(len(orders))
        state = torch.get_rng_state()
        orders.append(numbers(Loader(pipe, 1, num_workers=workers, generator=generator)))
        assert torch.equal(torch.get_rng_state(), state)
    assert orders[0] == orders[1]


def test_worker_init_fn_runs_after_the_pipe_was_shared_out(Loader):
    pipe = IterableWrapper(range(6)).sharding_filter()
    loader = Loader(pipe, None, num_workers=2, worker_init_fn=check_shares)
    assert sorted(loader) == [0, 1, 2, 3, 4, 5]


def check_shares(worker_id):
    pipe = torch.utils.data.get_worker_info().dataset
    parts = torch.utils.data.graph_settings.get_all_graph_pipes(torch.utils.data.graph.traverse_dps(pipe))
    assert any(getattr(part, "num_of_instances", None) == 2 and part.instance_id == worker_id for part in parts)


def test_a_pipe_has_the_length_it_says(Loader):
    assert len(Loader(IterableWrapper(range(10)), 4)) == 3
