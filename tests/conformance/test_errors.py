"""Exceptions of the dataset, of collate and of worker_init_fn: what is raised where, and what goes on afterwards.

Of torch's own suite: TestDataLoader's errors in dataset, __iter__ and worker_init_fn, the count of errors, timeouts; and
what ExceptionWrapper keeps of an exception.
"""

import multiprocessing
import subprocess

import pytest
import torch

from conformance.data import (
    CannotIterate,
    Counting,
    Numbers,
    Raises,
    RaisingStream,
    Stream,
    TwoArguments,
    Unpicklable,
    WaitsFor,
    WithMessage,
    fail_to_collate,
    fail_to_init,
    make_a_lambda,
)
from conformance.expect import chain, drain, either, is_ours, refuses_to_begin


def outcome(loader):
    """Numbers of the batches of a pass, and classes of its exceptions, in order."""
    return [type(part) if isinstance(part, Exception) else part.tolist() for part in drain(iter(loader))]


# ---- a map-style dataset ----------------------------------------------------------------------------------------


def test_an_error_comes_at_its_place_and_the_pass_goes_on(Loader, num_workers):
    loader = Loader(Raises(ValueError("bad sample")), 2, num_workers=num_workers)
    assert outcome(loader) == [[0, 1], ValueError, [4, 5], [6, 7]]


def test_without_batching_only_the_sample_is_missing(Loader, num_workers):
    loader = Loader(Raises(ValueError("bad sample"), length=5), None, num_workers=num_workers)
    assert outcome(loader) == [0, 1, 2, ValueError, 4]


def test_there_are_as_many_errors_as_batches(Loader, num_workers):
    loader = Loader(Raises(RuntimeError("each sample"), at=None, length=7), 2, num_workers=num_workers)
    assert outcome(loader) == [RuntimeError] * 4


def test_collate_errors_come_at_their_place(Loader, num_workers):
    loader = Loader(Numbers(5), 2, collate_fn=fail_to_collate, num_workers=num_workers)
    found = drain(iter(loader))
    assert [type(error) for error in found] == [ValueError] * 3
    assert "cannot collate 1 samples" in chain(found[-1])


def test_a_worker_that_raised_makes_the_next_batch(Loader):
    loader = Loader(Raises(ValueError("bad"), at=0, length=6), 1, num_workers=1, persistent_workers=True)
    for _ in range(2):
        assert outcome(loader) == [ValueError, [1], [2], [3], [4], [5]]


def test_the_workers_account_is_told(Loader):
    (error,) = drain(iter(Loader(Raises(ValueError("a reason"), at=None, length=1), num_workers=1)))
    text = chain(error)
    assert "Caught ValueError in DataLoader worker process 0" in text
    assert "Original Traceback (most recent call last)" in text
    assert "in __getitem__" in text and "ValueError: a reason" in text
    # Ours keeps the message as it was, and tells the rest as the cause.
    assert str(error).startswith(either(Loader, torch="Caught ValueError", ringbuf="a reason"))


def test_in_process_the_very_exception_is_raised(Loader):
    error = TwoArguments(3, "text")
    (found,) = drain(iter(Loader(Raises(error, at=None, length=1))))
    assert found is error


KEPT = [  # exception, its class where torch is
    (ValueError("text"), ValueError),
    (OSError(2, "No such file"), FileNotFoundError),
    (IndexError("out of range"), IndexError),
    (KeyError("key"), KeyError),
    (WithMessage(message="by keyword"), WithMessage),
    (TwoArguments(3, "text"), RuntimeError),
    (subprocess.CalledProcessError(1, "command"), RuntimeError),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"), RuntimeError),
    (TimeoutError("late"), TimeoutError),
    (MemoryError("too much"), MemoryError),
]


@pytest.mark.parametrize("error, of_torch", KEPT, ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "")
def test_the_class_of_an_exception_is_kept(Loader, error, of_torch):
    """By torch where it can be made from one text, by ours where it survives pickling, and then with its arguments."""
    (found,) = drain(iter(Loader(Raises(error, at=None, length=1), num_workers=1)))
    assert type(found) is either(Loader, torch=of_torch, ringbuf=type(error))
    assert type(error).__name__ in chain(found)
    if is_ours(Loader):
        assert found.args == error.args


def test_a_key_error_is_readable(Loader):
    (error,) = drain(iter(Loader(Raises(KeyError("a\nb"), at=None, length=1), num_workers=1)))
    assert isinstance(error, KeyError)
    assert "Original Traceback (most recent call last):\n" in chain(error)


def test_a_sample_may_not_end_the_epoch(Loader, num_workers):
    """torch takes StopIteration from a map-style dataset for the end, in silence. Ours says which index raised it."""
    loader = Loader(Raises(StopIteration(), at=3, length=6), 1, num_workers=num_workers)
    iterator = iter(loader)
    assert [next(iterator).item() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(either(Loader, torch=StopIteration, ringbuf=RuntimeError)) as caught:
        next(iterator)
    if is_ours(Loader):
        assert "3" in chain(caught.value) and "StopIteration" in chain(caught.value)
    assert [batch.item() for batch in iterator] == [4, 5]


def test_an_index_error_is_not_taken_for_the_end(Loader, num_workers):
    loader = Loader(Raises(IndexError("from a library"), at=1, length=3), 1, num_workers=num_workers)
    assert outcome(loader) == [[0], IndexError, [2]]


# ---- an iterable dataset ----------------------------------------------------------------------------------------


def test_an_error_of_an_iterable_comes_at_its_place_and_its_generator_has_ended(Loader, num_workers):
    loader = Loader(RaisingStream(), 1, num_workers=min(num_workers, 1))
    assert outcome(loader) == [[0], [1], ValueError]


def test_an_error_in_a_batch_of_an_iterable_takes_the_batch_along(Loader):
    assert outcome(Loader(RaisingStream(), 2, num_workers=1)) == [[0, 1], ValueError]
    assert outcome(Loader(RaisingStream(), 3, num_workers=1)) == [ValueError]


def test_a_dataset_that_cannot_be_iterated_says_so(Loader, num_workers):
    if num_workers == 0:
        with pytest.raises(ValueError, match="no way to iterate"):
            iter(Loader(CannotIterate()))
        return
    iterator = iter(Loader(CannotIterate(), num_workers=1, prefetch_factor=1))
    with pytest.raises(ValueError) as caught:
        next(iterator)
    assert "no way to iterate" in chain(caught.value)


# ---- set-up -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", [Numbers(4), Stream(4)], ids=["map", "iterable"])
def test_a_failure_of_worker_init_fn_is_the_first_batch(Loader, dataset):
    iterator = iter(Loader(dataset, num_workers=1, worker_init_fn=fail_to_init, prefetch_factor=1))
    with pytest.raises(ValueError) as caught:
        next(iterator)
    assert "no luck in worker 0" in chain(caught.value)


def test_worker_init_fn_is_not_called_without_workers(Loader):
    assert len(list(Loader(Numbers(4), worker_init_fn=fail_to_init))) == 4


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize(
    "options",
    [{"dataset": Unpicklable()}, {"collate_fn": lambda samples: samples}, {"worker_init_fn": lambda worker_id: None}],
    ids=["dataset", "collate_fn", "worker_init_fn"],
)
def test_what_cannot_be_pickled_cannot_be_given_to_a_spawned_worker(Loader, method, options):
    loader = Loader(**{"dataset": Numbers(2), "num_workers": 1, "multiprocessing_context": method} | options)
    with pytest.warns(UserWarning, match="pickl"):
        refuses_to_begin(loader, Exception, "pickle")


def test_what_cannot_be_pickled_can_be_inherited(Loader):
    assert len(list(Loader(Unpicklable(), num_workers=1, multiprocessing_context="fork"))) == 10


# ---- waiting too long -------------------------------------------------------------------------------------------


def test_a_timeout_is_a_runtime_error(Loader):
    event = multiprocessing.Event()
    iterator = iter(Loader(WaitsFor(event), num_workers=1, timeout=0.1))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.1 seconds") as caught:
        next(iterator)
    event.set()
    if is_ours(Loader):
        assert isinstance(caught.value, TimeoutError)


def test_a_timeout_that_is_not_reached_changes_nothing(Loader):
    assert torch.cat(list(Loader(Numbers(6), 2, num_workers=2, timeout=60))).tolist() == list(range(6))


def test_after_a_timeout_the_pass_may_go_on(Loader):
    event = multiprocessing.Event()
    iterator = iter(Loader(WaitsFor(event, at=1), num_workers=1, timeout=0.1))
    numbers = [patiently(iterator)]
    with pytest.raises(RuntimeError, match="timed out"):
        next(iterator)
    event.set()
    numbers += [patiently(iterator) for _ in range(3)]
    assert numbers == [0, 1, 2, 3]


def patiently(iterator):
    """The next number, however often the loader loses its patience."""
    for _ in range(300):
        try:
            return next(iterator).item()
        except RuntimeError as error:
            assert "timed out" in str(error)
    raise AssertionError("no batch in 30 s")


def test_a_batch_that_cannot_be_pickled(Loader):
    """torch's worker drops it with a message on stderr, and only a timeout tells; ours says what it is, at its place."""
    loader = Loader(Counting(1), collate_fn=make_a_lambda, num_workers=1, timeout=0.2 if not is_ours(Loader) else 0)
    with pytest.raises(either(Loader, torch=RuntimeError, ringbuf=Exception)) as caught:
        next(iter(loader))
    assert either(Loader, torch="timed out", ringbuf="lambda") in chain(caught.value)
