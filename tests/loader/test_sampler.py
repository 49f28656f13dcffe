"""Which indices, in which order."""

import random

import numpy as np
import pytest

from ringbuf.loader.sampler import (
    BatchSampler,
    EndlessSampler,
    RandomSampler,
    SequentialSampler,
    draw_base_seed,
    random_stream,
)


def test_sequential_gives_every_index_in_order():
    assert list(SequentialSampler("abcd")) == [0, 1, 2, 3]


def test_random_gives_every_index_once_as_python_ints():
    order = list(RandomSampler(range(10_000), generator=np.random.default_rng(0)))
    assert sorted(order) == list(range(10_000))
    assert order != list(range(10_000))
    assert {type(index) for index in order} == {int}


def test_random_draws_a_new_order_for_each_pass():
    sampler = RandomSampler(range(100), generator=np.random.default_rng(0))
    assert list(sampler) != list(sampler)


def test_the_order_follows_from_the_generator():
    orders = [list(RandomSampler(range(100), generator=np.random.default_rng(7))) for _ in range(2)]
    assert orders[0] == orders[1]


def test_random_follows_a_dataset_that_grows():
    data = [0]
    sampler = RandomSampler(data)
    data.append(1)
    assert sorted(sampler) == [0, 1]
    assert len(sampler) == sampler.num_samples == 2


def test_an_empty_dataset_cannot_be_shuffled():
    with pytest.raises(ValueError, match="num_samples=0"):
        RandomSampler([])


def test_shuffling_without_a_generator_touches_no_global_stream():
    before = random.getstate(), np.random.get_state()[1].tolist()
    list(RandomSampler(range(100)))
    draw_base_seed(random_stream(None))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@pytest.mark.parametrize(
    ("drop_last", "batches"), [(False, [[0, 1, 2], [3, 4, 5], [6]]), (True, [[0, 1, 2], [3, 4, 5]])]
)
def test_batches_are_filled_in_order(drop_last, batches):
    sampler = BatchSampler(range(7), 3, drop_last)
    assert list(sampler) == batches
    assert len(sampler) == len(batches)


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_full_last_batch_is_never_dropped(drop_last):
    sampler = BatchSampler(range(6), 3, drop_last)
    assert list(sampler) == [[0, 1, 2], [3, 4, 5]]
    assert len(sampler) == 2


def test_a_batch_pulls_no_index_beyond_its_own():
    indices = iter(range(10))
    next(iter(BatchSampler(indices, 4, False)))
    assert next(indices) == 4


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, True, "3", None])
def test_a_batch_size_is_a_positive_int(batch_size):
    with pytest.raises(ValueError, match="positive integer value"):
        BatchSampler(range(3), batch_size, False)


def test_drop_last_is_a_bool():
    with pytest.raises(ValueError, match="boolean value"):
        BatchSampler(range(3), 1, 0)


def test_the_endless_sampler_has_no_end_and_no_length():
    sampler = iter(EndlessSampler())
    assert [next(sampler) for _ in range(3)] == [None] * 3
    with pytest.raises(TypeError):
        len(EndlessSampler())


def test_a_seed_stands_for_a_stream():
    assert random_stream(5).integers(1 << 60) == np.random.default_rng(5).integers(1 << 60)
    stream = np.random.default_rng(1)
    assert random_stream(stream) is stream


@pytest.mark.parametrize(("generator", "error"), [("7", TypeError), (1.5, TypeError), (-1, ValueError)])
def test_what_cannot_be_a_seed_is_refused(generator, error):
    with pytest.raises(error, match="generator should be"):
        random_stream(generator)


def test_without_a_generator_each_stream_is_another():
    assert draw_base_seed(random_stream(None)) != draw_base_seed(random_stream(None))
