"""Errors in user code come out of next(), at their batch's place, with the worker's own account."""

import contextlib
import gc
import pickle
import subprocess
import time
import traceback

import numpy as np
import psutil
import pytest
from loader_data import (
    CannotBeLoaded,
    FailsBesideADeath,
    KeywordOnly,
    Numbered,
    Raises,
    Sleeps,
    Stream,
    TwoArguments,
    fail_to_init,
)

from ringbuf import BatchTimeout, Closed, RingLoader, WorkerDied


def outcomes(iterator):
    """What each next() gives: an array's list, or the error."""
    found = []
    while True:
        try:
            found.append(next(iterator).tolist())
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)


def raise_it(samples):
    raise ArithmeticError(f"cannot add {samples}")




def give_lambda(samples):
    return {"meta": [lambda: samples]}


def give_file(samples):
    return (open("/dev/null"),)


def give_generator(samples):
    return [1, (sample for sample in samples)]


class Unreducible:
    def __reduce__(self):
        raise RuntimeError("not me")


class Endless:
    def __reduce__(self):
        return Endless, (self,)


def give_unreducible(samples):
    return {"a": Unreducible()}


def give_endless(samples):
    return {"a": Endless()}


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("in_order", [True, False])
def test_an_error_takes_its_batchs_place_and_the_others_still_come(num_workers, in_order):
    with RingLoader(Raises(ValueError("bad sample")), 2, num_workers=num_workers, in_order=in_order) as loader:
        found = outcomes(iter(loader))
    if in_order:
        assert isinstance(found.pop(2), ValueError)
        assert found == [[0, 1], [2, 3], [6, 7], [8, 9], [10, 11]]
    else:
        assert sum(isinstance(one, ValueError) for one in found) == 1
        assert sorted(one for one in found if isinstance(one, list)) == [[0, 1], [2, 3], [6, 7], [8, 9], [10, 11]]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_cause_tells_type_worker_sample_batch_and_traceback(method):
    with RingLoader(Raises(ValueError("bad sample")), 2, num_workers=2, multiprocessing_context=method) as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        with pytest.raises(ValueError, match=r"^bad sample$") as caught:
            next(iterator)
    assert caught.value.args == ("bad sample",)
    text = str(caught.value.__cause__)
    for part in (
        "Caught ValueError in DataLoader worker process 0",
        "at sample 5",
        "[4, 5]",
        "Original Traceback",
        "in __getitem__",
        "raise self.error",
        "ValueError: bad sample",
    ):
        assert part in text
    assert text in "".join(traceback.format_exception(caught.value))


SAME_TYPE = [
    KeyError("a\nb"),
    IndexError(7),
    subprocess.CalledProcessError(1, "x"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    FileNotFoundError(2, "gone", "there"),
    ValueError(np.arange(3)),
    MemoryError(),
    TimeoutError("mine"),
]


@pytest.mark.parametrize("error", SAME_TYPE, ids=repr)
def test_an_error_that_survives_pickling_is_the_same(error):
    with RingLoader(Raises(error, at=0, length=1), num_workers=1) as loader:
        (found,) = outcomes(iter(loader))
    assert type(found) is type(error)
    assert repr(found.args) == repr(error.args)
    assert vars(found).keys() >= vars(error).keys()
    assert type(error).__name__ in str(found.__cause__)


@pytest.mark.parametrize("error", [TwoArguments(4, "no way"), KeywordOnly(code=5)], ids=repr)
def test_an_error_that_cannot_be_made_again_becomes_a_runtime_error_that_tells_all(error):
    with RingLoader(Raises(error, at=3, length=4), 4, num_workers=1) as loader:
        (found,) = outcomes(iter(loader))
    assert type(found) is RuntimeError
    for part in (type(error).__name__, str(error), "worker process 0", "at sample 3", "Original Traceback"):
        assert part in str(found)
    assert found.__cause__ is not None


def test_without_workers_the_error_is_the_very_object():
    error = TwoArguments(4, "no way")
    (found,) = outcomes(iter(RingLoader(Raises(error, at=0, length=1))))
    assert found is error


@pytest.mark.parametrize("num_workers", [0, 1])
def test_stop_iteration_from_a_sample_never_shortens_the_epoch(num_workers):
    with RingLoader(Raises(StopIteration(), at=5), 4, num_workers=num_workers) as loader:
        found = outcomes(iter(loader))
    assert [found[0], found[2]] == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert isinstance(found[1], RuntimeError)
    assert "sample 5" in str(found[1])


@pytest.mark.parametrize("num_workers", [0, 1])
def test_index_error_from_a_sample_never_shortens_the_epoch(num_workers):
    with RingLoader(Raises(IndexError("beyond"), at=5), 4, num_workers=num_workers) as loader:
        found = outcomes(iter(loader))
    assert len(found) == 3
    assert isinstance(found[1], IndexError)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_in_collate_fn_is_reported(num_workers):
    with RingLoader([1, 2, 3], 2, collate_fn=raise_it, num_workers=num_workers) as loader:
        found = outcomes(iter(loader))
    assert [str(error) for error in found] == ["cannot add [1, 2]", "cannot add [3]"]
    assert all(isinstance(error, ArithmeticError) for error in found)


@pytest.mark.parametrize(
    ("collate_fn", "path"),
    [
        (give_lambda, r"batch\['meta'\]\[0\]"),
        (give_file, r"batch\[0\]"),
        (give_generator, r"batch\[1\]"),
        (give_unreducible, r"batch\['a'\]"),
        (give_endless, r"batch\['a'\]"),
    ],
)
def test_a_result_that_cannot_be_sent_is_a_type_error_naming_its_path(collate_fn, path):
    began = time.monotonic()
    with RingLoader([1, 2, 3], 2, collate_fn=collate_fn, num_workers=1) as loader:
        for _ in range(2):
            iterator = iter(loader)
            with pytest.raises(TypeError, match=path):
                next(iterator)
    assert time.monotonic() - began < 10


def test_a_custom_collate_fn_may_return_none_and_objects():
    with RingLoader([1, 2, 3, 4], 2, collate_fn=returns_parts, num_workers=1) as loader:
        assert list(loader) == [(None, {1, 2}, 3 + 0j), (None, {3, 4}, 7 + 0j)]


def returns_parts(samples):
    return None, set(samples), complex(sum(samples))


def test_an_error_larger_than_a_slot_arrives_whole():
    error = ValueError("x" * 1_000_000)
    with RingLoader(Raises(error, at=0, length=2), num_workers=1) as loader:
        found = outcomes(iter(loader))
    assert found[0].args == error.args
    assert found[1] == [1]


def test_an_error_larger_than_a_slot_arrives_whole_although_another_worker_died():
    with RingLoader(FailsBesideADeath(), num_workers=2) as loader:
        iterator = iter(loader)
        with pytest.raises(ValueError) as caught:
            next(iterator)
        with pytest.raises(WorkerDied):
            next(iterator)
    assert len(caught.value.args[0]) == 1_000_000


@pytest.mark.parametrize("where", ["dataset", "sampler"])
def test_an_error_keeps_no_workers_alive_once_it_is_dropped(where):
    wrong = {"dataset": Raises(ValueError("bad"), at=3, length=100)}.get(where, Numbered(100))
    with RingLoader(wrong, num_workers=2, sampler=fails_after(3) if where == "sampler" else None) as loader:
        gc.disable()  # the last reference ends them, not a collection that may be minutes away
        try:
            iterator = iter(loader)
            workers = [psutil.Process(worker.pid) for worker in iterator._workers]
            with contextlib.suppress(ValueError):
                list(iterator)
            del iterator
            assert not any(worker.is_running() for worker in workers)
        finally:
            gc.enable()


def fails_after(count):
    yield from range(count)
    raise ValueError("no further index")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_error_in_worker_init_fn_comes_first_and_stays(num_workers):
    with RingLoader(Numbered(20), num_workers=num_workers, worker_init_fn=fail_to_init) as loader:
        iterator = iter(loader)
        for _ in range(3):
            with pytest.raises(ValueError, match=r"^no luck in worker 0$") as caught:
                next(iterator)
        assert "before its first batch" in str(caught.value.__cause__)
        assert iterator._workers == []


def run_dry(worker_id):
    next(iter(()))


def test_a_stop_iteration_in_worker_init_fn_does_not_pass_for_the_end_of_the_data():
    with RingLoader(Numbered(20), num_workers=1, worker_init_fn=run_dry) as loader:
        with pytest.raises(RuntimeError, match="Caught StopIteration in DataLoader worker process 0"):
            next(iter(loader))


class StreamThatFails(Stream):
    def __iter__(self):
        raise OSError(5, "unreadable")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_in_iter_is_reported(num_workers):
    with RingLoader(StreamThatFails(3), num_workers=num_workers) as loader:
        with pytest.raises(OSError, match="unreadable"):
            next(iter(loader))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_dataset_that_cannot_be_loaded_in_the_worker_is_reported_with_its_traceback(method):
    with RingLoader(CannotBeLoaded(), num_workers=1, multiprocessing_context=method) as loader:
        with pytest.raises(ImportError, match="some library is missing here") as caught:
            next(iter(loader))
    assert "refuse_to_load" in str(caught.value.__cause__)


def test_a_dataset_that_cannot_be_pickled_fails_in_iter_says_why_it_had_to_be_and_leaves_nothing():
    dataset = Numbered()
    dataset.extra = lambda: 0
    with RingLoader(dataset, num_workers=2, multiprocessing_context="spawn") as loader:
        with pytest.raises(Exception, match="lambda"), pytest.warns(UserWarning, match="start method 'spawn'"):
            iter(loader)


# ---- timeout ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [True, False])
def test_a_timeout_names_worker_and_indices_and_the_workers_go_on(in_order):
    with RingLoader(Sleeps(1.0, at=2), 2, num_workers=1, timeout=0.3, in_order=in_order) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == [0, 1]
        with pytest.raises(BatchTimeout, match=r"DataLoader timed out after 0.3 seconds.*worker 0.*\[2, 3") as caught:
            next(iterator)
        assert isinstance(caught.value, RuntimeError)
        assert isinstance(caught.value, TimeoutError)
        found = []
        deadline = time.monotonic() + 10
        while len(found) < 3 and time.monotonic() < deadline:
            try:
                found.append(next(iterator).tolist())
            except BatchTimeout:
                pass
    assert found == [[2, 3], [4, 5], [6, 7]]


def test_an_error_that_is_a_timeout_is_not_ours():
    with RingLoader(Raises(TimeoutError("mine"), at=0, length=1), num_workers=1, timeout=5) as loader:
        (found,) = outcomes(iter(loader))
    assert type(found) is TimeoutError




class Indices:
    """A sampler whose sixth index cannot be sent to another process."""

    def __iter__(self):
        yield from range(5)
        yield lambda: None


def test_an_index_that_cannot_be_pickled_is_an_error_at_its_place():
    got = []
    with (
        RingLoader(list(np.arange(10)), batch_size=None, sampler=Indices(), num_workers=2) as loader,
        pytest.raises((AttributeError, TypeError, pickle.PicklingError), match=r"pickle|lambda"),
    ):
        for item in loader:
            got.append(int(item))
    assert got == list(range(5))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_whose_loader_is_closed_does_not_look_finished(workers):
    loader = RingLoader(list(np.arange(100)), num_workers=workers, persistent_workers=workers > 0)
    batches = iter(loader)
    next(batches)
    batches.close()
    with pytest.raises(Closed, match="closed before this pass was over"):
        next(batches)
    loader.close()


def test_a_finished_pass_stays_finished_when_it_is_closed():
    with RingLoader(list(np.arange(4)), num_workers=1) as loader:
        batches = iter(loader)
        assert sum(1 for _ in batches) == 4
        batches.close()
        with pytest.raises(StopIteration):
            next(batches)


@pytest.mark.parametrize(
    "wrong", [{"num_workers": 2.5}, {"num_workers": "2"}, {"timeout": "x"}, {"num_workers": 1, "prefetch_factor": 1.5}]
)
def test_an_argument_of_the_wrong_type_is_named(wrong):
    name, value = list(wrong.items())[-1]
    with pytest.raises(TypeError, match=f"{name} must be a .*number.*, got {value!r}"):
        RingLoader([1, 2, 3], **wrong)
