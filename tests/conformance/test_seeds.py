"""Random numbers: what a pass draws from which stream, and what the workers' streams are seeded with.

Of torch's own suite: TestDataLoader's worker seeds, seeding with and without numpy, worker_init_fn and random samplers.
"""

import random

import numpy as np
import pytest
import torch

from conformance.data import DrawingStream, Draws, Introspective, Numbers, SeedSeenByInit, note_seed, seed_anew
from conformance.expect import same
from conformance.streams import SEED, Streams, drawn, first_base_seed, generator, next_number

# ---- what a pass draws ------------------------------------------------------------------------------------------


def global_draws_of(make_pass):
    """How many numbers a pass takes from torch's global stream."""
    torch.manual_seed(SEED)
    make_pass()
    after = torch.get_rng_state()
    torch.manual_seed(SEED)
    for count in range(9):
        if torch.equal(torch.get_rng_state(), after):
            return count
        next_number()
    raise AssertionError("it drew something else from the global stream")


@pytest.mark.parametrize("shuffle, draws", [(False, 1), (True, 2)])
def test_a_pass_draws_a_base_seed_and_the_sampler_its_own(Loader, num_workers, shuffle, draws):
    loader = Loader(Numbers(4), 2, shuffle=shuffle, num_workers=num_workers)
    assert global_draws_of(lambda: list(loader)) == draws
    assert global_draws_of(lambda: [list(loader), list(loader)]) == 2 * draws


def test_a_persistent_loader_draws_its_base_seed_once(Loader):
    loader = Loader(Numbers(4), 2, shuffle=True, num_workers=1, persistent_workers=True)
    assert global_draws_of(lambda: list(loader)) == 2
    assert global_draws_of(lambda: list(loader)) == 1


def test_an_iterable_draws_a_base_seed(Loader, num_workers):
    assert global_draws_of(lambda: list(Loader(DrawingStream(), None, num_workers=num_workers))) in (
        {1} if num_workers else {5}  # in process, the dataset itself draws four
    )


def test_making_a_loader_draws_nothing(Loader):
    assert global_draws_of(lambda: Loader(Numbers(4), shuffle=True, num_workers=2)) == 0


def test_with_a_generator_the_global_stream_is_left_alone(Loader, num_workers):
    loader = Loader(Numbers(4), shuffle=True, num_workers=num_workers, generator=generator())
    assert global_draws_of(lambda: list(loader)) == 0


def test_other_global_streams_are_left_alone(Loader, num_workers):
    random.seed(SEED)
    np.random.seed(SEED)
    before = random.getstate(), np.random.get_state()[1].tolist()
    list(Loader(Numbers(4), shuffle=True, num_workers=num_workers))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


# ---- orders -----------------------------------------------------------------------------------------------------


def test_the_order_comes_from_the_second_number_of_the_global_stream(Loader, num_workers):
    torch.manual_seed(SEED)
    next_number()
    expected = torch.randperm(20, generator=generator(next_number()))
    torch.manual_seed(SEED)
    loader = Loader(Numbers(20), 6, shuffle=True, num_workers=num_workers)
    assert torch.equal(torch.cat(list(loader)), expected)


def test_the_order_comes_from_the_generator_itself(Loader, num_workers):
    stream = generator()
    loader = Loader(Numbers(20), 6, shuffle=True, num_workers=num_workers, generator=generator())
    orders = []
    for _ in range(2):
        next_number(stream)
        expected = torch.randperm(20, generator=stream)
        torch.randperm(20, generator=stream)  # the sampler's, for samples beyond a whole round: there are none
        orders.append(torch.cat(list(loader)))
        assert torch.equal(orders[-1], expected)
    assert not torch.equal(*orders)
    assert torch.equal(loader.generator.get_state(), stream.get_state())


# ---- workers' streams -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_generator", [False, True])
def test_workers_are_seeded_with_the_base_seed_and_their_id(Loader, own_generator):
    torch.manual_seed(SEED)
    loader = Loader(Draws(6), None, num_workers=2, generator=generator() if own_generator else None)
    streams = [Streams(first_base_seed(), worker_id) for worker_id in range(2)]
    expected = [streams[number % 2].draw() for number in range(6)]
    assert same(drawn(loader), drawn(expected))


def test_workers_of_an_iterable_are_seeded_before_it_is_iterated(Loader):
    torch.manual_seed(SEED)
    streams = [Streams(first_base_seed(), worker_id) for worker_id in range(2)]
    expected = [streams[number % 2].draw() for number in range(8)]
    assert same(drawn(Loader(DrawingStream(), None, num_workers=2)), drawn(expected))


def test_each_pass_has_streams_of_its_own_and_the_same_seed_gives_them_again(Loader):
    passes = []
    for _ in range(2):
        torch.manual_seed(SEED)
        loader = Loader(Draws(2), None, num_workers=2)
        passes += [drawn(loader), drawn(loader)]
    assert passes[:2] == passes[2:]
    for name in ("random", "numpy", "torch"):
        numbers = [sample[name] for samples in passes[:2] for sample in samples]
        assert len(set(numbers)) == len(numbers) == 4, name


def test_streams_of_persistent_workers_go_on(Loader):
    torch.manual_seed(SEED)
    loader = Loader(Draws(4), None, num_workers=2, persistent_workers=True)
    streams = [Streams(first_base_seed(), worker_id) for worker_id in range(2)]
    for _ in range(3):
        expected = [streams[number % 2].draw() for number in range(4)]
        assert same(drawn(loader), drawn(expected))


def test_streams_go_on_after_what_was_prefetched_for_a_pass_that_was_left(Loader):
    torch.manual_seed(SEED)
    loader = Loader(Draws(20), None, num_workers=1, persistent_workers=True, prefetch_factor=5)
    next(iter(loader))
    stream = Streams(first_base_seed(), 0)
    for _ in range(6):  # the one, and five prefetched
        stream.draw()
    assert same(drawn([next(iter(loader))]), drawn([stream.draw()]))


def test_worker_init_fn_has_the_last_word_on_seeds(Loader):
    samples = drawn(Loader(Draws(2), None, num_workers=2, worker_init_fn=seed_anew))
    for worker_id, sample in enumerate(samples):
        assert sample["initial"] == worker_id
        assert sample["random"] == random.Random(worker_id).getrandbits(60)
        assert sample["numpy"] == np.random.RandomState(worker_id).randint(1 << 60)
        assert sample["torch"] == torch.randint(1 << 60, (), generator=generator(worker_id))


def test_worker_init_fn_finds_the_seeds_set_and_the_worker_known(Loader):
    torch.manual_seed(SEED)
    base_seed = first_base_seed()
    for worker_id, seen in enumerate(drawn(Loader(SeedSeenByInit(), None, num_workers=2, worker_init_fn=note_seed))):
        worker_id %= 2
        assert seen == {"id": worker_id, "initial": base_seed + worker_id, "seed": base_seed + worker_id}


def test_in_process_the_dataset_draws_from_the_global_streams(Loader):
    torch.manual_seed(SEED)
    (sample,) = drawn(Loader(Draws(1), None))
    torch.manual_seed(SEED)
    next_number()
    assert sample["torch"] == torch.randint(1 << 60, ()).item() and sample["initial"] == SEED


def test_a_worker_computes_with_one_thread(Loader):
    before = torch.get_num_threads()
    assert {sample["threads"] for sample in Loader(Introspective(), None, num_workers=2)} == {1}
    assert torch.get_num_threads() == before
