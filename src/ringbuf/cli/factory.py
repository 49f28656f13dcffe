"""What MODULE:OBJECT on a command line means: a source of batches, or what makes one."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from ringbuf.cli.outcome import WrongUsage
from ringbuf.loader.base import LoaderBase

__all__ = ["load"]

PER_EPOCH = {"epoch", "start"}  # who takes these is called by the server, for each epoch
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PREFETCH = 2  # what a loader without workers has not, and one with them needs


def load(target: str, workers: int | None = None) -> Any:
    """The source that `target`, MODULE:OBJECT, stands for; modules are looked for in the current folder too.

    An iterable is served as it is. A callable is called once, and what it returns is served; where that is an iterator, which
    ends once, the callable itself is, as what makes one for each epoch. A callable with a parameter `epoch` or `start` is too.
    workers: is given to a callable that takes it; a RingLoader gets it as num_workers.
    Raises WrongUsage, naming module, object and reason.
    """
    module_name, colon, path = target.partition(":")
    if (
        not colon
        or not module_name
        or not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")])
    ):
        raise WrongUsage(f"{target!r} is not MODULE:OBJECT, such as mypackage.data:make_loader")
    found = _look_up(_import(module_name), module_name, path)
    used = False
    if callable(found) and not isinstance(found, Iterable):
        found, used = _from_callable(found, target, workers)
    elif isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
        raise WrongUsage(f"{target} is neither callable nor an iterable of batches, but {_a(found)}")
    if workers is not None and not used:
        _set_workers(found, workers, target)
    return found


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise WrongUsage(
                f"there is no module {name!r}: {error} (looked for in {here} and where Python does)"
            ) from None
        raise WrongUsage(_raised(f"importing {name!r}", error)) from error
    except (Exception, SystemExit) as error:
        raise WrongUsage(_raised(f"importing {name!r}", error)) from error


def _look_up(found: Any, module: str, path: str) -> Any:
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            public = [name for name in dir(found) if not name.startswith("_")]
            near = difflib.get_close_matches(part, public, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise WrongUsage(f"module {module!r} has no {path!r}{hint}") from None
        except Exception as error:
            raise WrongUsage(_raised(f"looking up {module}:{path}", error)) from error
    return found


def _from_callable(function: Callable, target: str, workers: int | None) -> tuple[Any, bool]:
    """The source, and whether `workers` was given to it."""
    parameters = _parameters_of(function)
    takes_workers = workers is not None and "workers" in parameters
    given = {"workers": workers} if takes_workers else {}
    if parameters & PER_EPOCH:
        return (_PerEpoch(function, given) if given else function), takes_workers
    if inspect.isgeneratorfunction(function):
        return _PerEpoch(function, given), takes_workers
    try:
        made = function(**given)
    except (Exception, SystemExit) as error:
        raise WrongUsage(_raised(f"{target}()", error)) from error
    if isinstance(made, (str, bytes)) or not isinstance(made, Iterable):
        raise WrongUsage(f"{target}() should return an iterable of batches, and returned {_a(made)}")
    if isinstance(made, Iterator):
        return _PerEpoch(function, given, made), takes_workers
    return made, takes_workers


class _PerEpoch:
    """A callable that makes an iterator for each epoch.

    first: the one that it has made already.
    """

    def __init__(self, function: Callable, given: dict[str, Any], first: Iterator | None = None):
        self._function, self._given, self._first = function, given, first
        wanted = [
            inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in sorted(_parameters_of(function) & PER_EPOCH)
        ]
        self.__signature__ = inspect.Signature(wanted)  # by which the server sees what it takes

    def __call__(self, **place: int) -> Any:
        first, self._first = self._first, None
        return self._function(**self._given, **place) if first is None else first


def _set_workers(source: Any, workers: int, target: str) -> None:
    if not isinstance(source, LoaderBase):
        raise WrongUsage(f"--workers {workers}: {target} is no RingLoader, and no callable with a parameter `workers`")
    source.num_workers = workers
    if workers and not source.prefetch_factor:
        source.prefetch_factor = PREFETCH


def _parameters_of(function: Callable) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of some that are written in C
        return set()


def _raised(doing: str, error: BaseException) -> str:
    """That something raised, what, and where."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{doing} raised {type(error).__name__}{': ' if text else ''}{text}{where}"


def _is_machinery(filename: str) -> bool:
    """Whether this is no file of the user's."""
    return filename.startswith(("<frozen importlib", os.path.join(_PACKAGE, ""), importlib.__file__))


def _a(value: Any) -> str:
    text = " ".join(repr(value).split())
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
