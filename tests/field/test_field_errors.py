"""What goes wrong in user code, and what the main process is told."""

import builtins
import multiprocessing
import subprocess
import traceback
import urllib.error

import numpy as np
import pytest
from field_data import AskedTooOften, Filled, Given, Raises, StopsInside, Waits
from field_loaders import NumpyLoader, TorchLoader, both, outcomes, stream_for, workers_or_none

import ringbuf
from ringbuf import BatchTimeout

context = multiprocessing.get_context("fork")


class TwoArguments(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)


class TwoArgumentsForgotten(Exception):
    """Its args are not what its constructor takes."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")


class KeywordOnly(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")


class NeedsAKey(Exception):
    """A constructor that fails in a way that is no TypeError."""

    def __init__(self, details):
        super().__init__(str(details["why"]))


class Mapped(Exception):
    def __init__(self, details):
        self.details = details
        super().__init__(details)

    def __reduce__(self):
        raise KeyError("on purpose")


class LikeAString(Exception):
    def __str__(self):
        raise RuntimeError("not even this")


# How to make each, whether the very type arrives, and words that must be told.
ERRORS = {
    "two arguments": (lambda: TwoArguments(4, "no way"), True, "no way"),
    "two arguments, forgotten": (lambda: TwoArgumentsForgotten(4, "no way"), False, "4: no way"),
    "keyword only": (lambda: KeywordOnly(code=7), False, "code 7"),
    "a constructor with a KeyError": (lambda: NeedsAKey({"why": "no luck"}), False, "no luck"),
    "CalledProcessError": (lambda: subprocess.CalledProcessError(1, "x"), True, "non-zero exit status 1"),
    "HTTPError": (lambda: urllib.error.HTTPError("http://x", 404, "Not Found", {}, None), None, "404"),
    "UnicodeDecodeError": (lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad start"), True, "bad start"),
    "unpicklable": (lambda: Mapped({"a": 1}), False, "Mapped"),
    "no text": (LikeAString, True, "LikeAString"),
}
if hasattr(builtins, "ExceptionGroup"):
    ERRORS["group"] = (lambda: builtins.ExceptionGroup("many", [ValueError("one"), KeyError("two")]), True, "many")


@both
@pytest.mark.parametrize(("make", "kept", "words"), ERRORS.values(), ids=ERRORS)
def test_the_users_exception_is_never_replaced_by_one_about_its_own_constructor(Loader, make, kept, words):
    with Loader(Raises(make, at=2), 2, num_workers=2) as loader:
        found = outcomes(iter(loader))
    error = found[1]
    original = make()
    assert found[0] == [0, 1] and len(found) == 2
    if kept is not None:
        assert (type(error) is type(original)) == kept
    assert type(error) is type(original) or type(error) is RuntimeError
    assert type(error) is not type(original) or repr(error.args) == repr(original.args)
    told = str(error.__cause__)
    for part in (type(original).__name__, words, "worker process 1", "sample 2", "[2, 3]", "in __getitem__"):
        assert part in told
    assert told in "".join(traceback.format_exception(error))


@both
@pytest.mark.parametrize(("make", "kept", "words"), ERRORS.values(), ids=ERRORS)
def test_without_workers_the_users_exception_comes_as_it_is(Loader, make, kept, words):
    (error, *_) = outcomes(iter(Loader(Raises(make), 2)))
    assert type(error) is type(make())


@both
def test_a_key_errors_report_has_real_line_breaks_and_the_key(Loader):
    with Loader(Raises(lambda: KeyError("a\nb"), length=1), num_workers=1) as loader:
        (error,) = outcomes(iter(loader))
    assert type(error) is KeyError and error.args == ("a\nb",)
    printed = "".join(traceback.format_exception(error)).splitlines()
    assert any(line.strip().startswith('File "') and "__getitem__" in line for line in printed)
    assert r"KeyError: 'a\nb'" in printed


# ---- ends that are no ends ----------------------------------------------------------------------------------------


@both
@workers_or_none
@pytest.mark.parametrize("kind", [StopIteration, IndexError, StopAsyncIteration])
def test_an_epoch_is_never_shortened_by_what_a_sample_raises(Loader, num_workers, kind):
    with Loader(Raises(kind, at=1, length=6), 2, num_workers=num_workers) as loader:
        iterator = iter(loader)
        with pytest.raises((RuntimeError, kind)) as caught:
            next(iterator)
        assert [np.asarray(batch).tolist() for batch in iterator] == [[2, 3], [4, 5]]
    if kind is StopIteration:
        assert type(caught.value) is RuntimeError and "sample 1" in str(caught.value)
    elif num_workers:
        assert "sample 1" in str(caught.value.__cause__)


@both
@workers_or_none
def test_an_iterator_is_asked_nothing_after_its_end(Loader, num_workers):
    with Loader(stream_for(Loader, AskedTooOften()), 2, num_workers=num_workers) as loader:
        iterator = iter(loader)
        assert [np.asarray(batch).tolist() for batch in iterator] == [[1, 2], [3]]
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(iterator)


@both
@workers_or_none
def test_a_stop_iteration_that_gets_loose_in_a_generator_is_an_error(Loader, num_workers):
    with Loader(stream_for(Loader, StopsInside()), 1, num_workers=num_workers) as loader:
        iterator = iter(loader)
        assert np.asarray(next(iterator)).tolist() == [0]
        with pytest.raises(RuntimeError, match="generator raised StopIteration"):
            next(iterator)


# ---- what cannot be sent ------------------------------------------------------------------------------------------


class Unreducible:
    def __reduce__(self):
        raise RuntimeError("not me")


class Endless:
    def __reduce__(self):
        return Endless, (self,)


UNSENDABLE = {
    "lambda": (lambda samples: {"meta": [lambda: samples]}, r"batch\['meta'\]\[0\]", "function"),
    "open file": (lambda samples: (open("/dev/null"),), r"batch\[0\]", "TextIOWrapper"),
    "generator": (lambda samples: [1, (sample for sample in samples)], r"batch\[1\]", "generator"),
    "__reduce__ raises": (lambda samples: {"a": Unreducible()}, r"batch\['a'\]", "Unreducible"),
    "__reduce__ never ends": (lambda samples: {"a": Endless()}, r"batch\['a'\]", "Endless"),
}


@both
@pytest.mark.parametrize(("collate_fn", "path", "kind"), UNSENDABLE.values(), ids=UNSENDABLE)
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_a_result_that_cannot_be_sent_is_reported_with_its_path_and_the_worker_lives(Loader, collate_fn, path, kind):
    with Loader(Given([1, 2, 3]), 2, collate_fn=collate_fn, num_workers=1, timeout=30) as loader:
        iterator = iter(loader)
        for _ in range(2):
            with pytest.raises(TypeError, match=path) as caught:
                next(iterator)
            assert kind in str(caught.value)
        with pytest.raises(StopIteration):
            next(iterator)


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")
@both
@pytest.mark.parametrize("what", ["attribute", "collate_fn", "worker_init_fn"])
def test_what_cannot_be_given_to_a_spawned_worker_is_an_error_of_iter(Loader, what):
    dataset, options = Filled(), {}
    if what == "attribute":
        dataset.extra = lambda: 0
    else:
        options[what] = lambda *_: None
    with Loader(dataset, num_workers=1, multiprocessing_context="spawn", **options) as loader:
        with pytest.raises((AttributeError, TypeError, ValueError), match=r"lambda|pickle"):
            iter(loader)


# ---- timeouts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("Loader", "timeout"),
    [(NumpyLoader, -1), (TorchLoader, -1), (NumpyLoader, float("nan"))],  # torch's loader takes that one
    ids=str,
)
def test_a_timeout_that_is_no_time_is_refused(Loader, timeout):
    with pytest.raises(ValueError, match="timeout"):
        Loader(Given([1]), num_workers=1, timeout=timeout)


@both
@pytest.mark.parametrize("timeout", [0, 0.0, 30, 1e12, float("inf")])
def test_a_timeout_that_does_not_pass_changes_nothing(Loader, timeout):
    with Loader(Given([1, 2]), num_workers=1, timeout=timeout) as loader:
        assert [int(batch[0]) for batch in loader] == [1, 2]


@both
def test_a_timeout_without_workers_is_refused(Loader):
    with pytest.raises((ValueError, AssertionError)):
        iter(Loader(Given([1]), timeout=1))


@both
@pytest.mark.parametrize("in_order", [True, False])
def test_a_stuck_worker_is_named_with_its_indices_and_may_go_on(Loader, in_order):
    gate = context.Event()
    with Loader(Waits(gate, at=3, length=6), 2, num_workers=1, timeout=0.2, in_order=in_order) as loader:
        iterator = iter(loader)
        assert np.asarray(next(iterator)).tolist() == [0, 1]
        with pytest.raises(BatchTimeout, match=r"DataLoader timed out after 0.2 seconds.*\[2, 3") as caught:
            next(iterator)
        gate.set()
        rest = []
        while len(rest) < 2:
            try:
                rest.append(np.asarray(next(iterator)).tolist())
            except BatchTimeout:
                continue
    assert rest == [[2, 3], [4, 5]]
    for kind in (RuntimeError, TimeoutError, ringbuf.RingbufError):
        assert isinstance(caught.value, kind)
    assert "worker 0" in str(caught.value)


@both
def test_an_error_in_the_middle_leaves_the_same_iterator_usable_to_its_end(Loader):
    with Loader(Raises(ValueError, at=3, length=8), 1, num_workers=2, persistent_workers=True) as loader:
        for _ in range(3):
            found = outcomes(iter(loader))
            assert [type(one) for one in found] == [list] * 3 + [ValueError] + [list] * 4


def test_numpys_loader_names_the_place_of_what_it_cannot_batch():
    with NumpyLoader(Given([{"a": [1, {"b": object()}]}] * 2), 2, num_workers=1) as loader:
        (error,) = outcomes(iter(loader))
    assert r"batch['a'][1]['b']" in str(error)
