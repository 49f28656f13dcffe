"""Whatever way of loading is chosen, both loaders give the same batches, errors, warnings and random numbers."""

import dataclasses

import pytest
from hypothesis import strategies as st

from differential.datasets import Told
from differential.runner import FATAL, assert_same
from differential.strategies import SAMPLERS, STREAMS, Passes, passes

MAPS = ["map", "map", "together"]


def test_without_workers(check):
    check(passes(workers=st.just(0), styles=[*MAPS, *STREAMS]), assert_same, examples=150)


def test_of_map_style_datasets(check):
    check(passes(workers=st.sampled_from([2, 2, 1]), styles=MAPS), assert_same, examples=25)


def test_of_iterable_datasets(check):
    check(passes(workers=st.sampled_from([2, 2, 1]), styles=list(STREAMS)), assert_same, examples=25)


def in_any_order(case):
    """The same where batches come as they are finished, and which worker makes which is left to chance."""
    told = Told({index: name for index, name in case.told.fails.items() if name != "StopIteration"})
    collate = "default" if case.collate in ("with a note", "sometimes failing") else case.collate
    init = "none" if case.init == "marks" else case.init
    options = {**case.arguments_, "in_order": False}
    return dataclasses.replace(
        case, told=told, collate=collate, init=init, claims=None, passes=(None,) * len(case.passes), arguments_=options
    )


def test_out_of_order(check):
    check(passes(workers=st.just(2), styles=[*MAPS, "stream"]).map(in_any_order), assert_same, examples=8)


def test_with_more_workers_than_processors_and_batches(check):
    check(passes(workers=st.just(5), styles=["map", "stream"], most=7), assert_same, examples=4)


PLAIN = Passes(1, 9, Told(), "map", 1, {"timeout": 30}, "none", None, "default", "none", (None,), None)


@pytest.mark.parametrize("sampler", sorted(SAMPLERS.keys() - {"failing"}))
def test_each_sampler(sampler):
    record = assert_same(dataclasses.replace(PLAIN, sampler=sampler, generator=3 if sampler == "shuffle" else None))
    assert len(record.passes[0]) > 2


@pytest.mark.parametrize("what", [{"init": "fails"}, {"style": "stream", "claims": "broken"}], ids=["worker_init_fn", "__iter__"])
def test_workers_that_fail_at_once(what):
    record = assert_same(dataclasses.replace(PLAIN, **what))
    assert FATAL in record.passes[0][0].text and len(record.passes[0]) == 1
