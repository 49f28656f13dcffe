"""The error tree: what an except clause written for the standard library catches."""

import pickle
import queue

import pytest

from ringbuf import errors


@pytest.mark.parametrize(
    ("name", "caught_as"),
    [
        ("Full", (queue.Full, TimeoutError)),
        ("Empty", (queue.Empty, TimeoutError)),
        ("Closed", (RuntimeError,)),
        ("BatchTooLarge", (ValueError,)),
        ("FrameError", (ValueError,)),
        ("CorruptSegment", (ValueError,)),
        ("VersionMismatch", (RuntimeError,)),
        ("PeerTableFull", (RuntimeError,)),
        ("WorkerDied", (RuntimeError,)),
    ],
)
def test_an_error_is_caught_as_its_standard_relative(name, caught_as):
    error = getattr(errors, name)("what happened")
    assert isinstance(error, errors.RingbufError)
    for base in caught_as:
        assert isinstance(error, base)
    assert str(error) == "what happened"


def test_closed_is_a_shutdown_where_python_knows_that_word():
    shutdown = getattr(queue, "ShutDown", RuntimeError)
    assert issubclass(errors.Closed, shutdown)


def test_a_full_ring_is_not_mistaken_for_an_empty_or_closed_one():
    assert not issubclass(errors.Full, queue.Empty)
    assert not issubclass(errors.Empty, queue.Full)
    assert not issubclass(errors.Closed, TimeoutError)


def test_every_error_is_exported_in_the_drawn_tree():
    defined = {n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, Exception)}
    assert defined == set(errors.__all__)
    assert errors.__all__ == sorted(errors.__all__)
    for name in defined:
        assert f" {name} " in errors.__doc__


@pytest.mark.parametrize(
    "error",
    [
        errors.Full("no slot"),
        errors.BatchTooLarge("9 > 8", needed_bytes=9, available_bytes=8),
        errors.WorkerDied("gone", worker_id=1, pid=42, exitcode=-9, indices=[3, 4]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_its_attributes_when_it_is_pickled(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert again.args == error.args
    assert vars(again) == vars(error)
