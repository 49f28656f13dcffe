"""Whatever samples are made of, both loaders make the same batches of them."""

from differential.runner import assert_same
from differential.strategies import samples_cases


def test_without_workers(check):
    check(samples_cases(workers=0, most=10), assert_same, examples=60)


def test_collated_by_default(check):
    check(samples_cases(workers=2, most=24), assert_same, examples=20)


def test_collated_by_a_function_that_returns_them_as_they_are(check):
    check(samples_cases(workers=2, most=24, collate="as they are"), assert_same, examples=15)


def test_delivered_one_by_one(check):
    check(samples_cases(workers=2, most=24, style="alone"), assert_same, examples=15)
