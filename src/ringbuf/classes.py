"""Namedtuple and dataclass types by name: found, never called.

A frame names a class by module and qualified name. A reader looks it up among the modules that are
loaded already, so bytes from another process can neither import nor run anything; only a reader that
trusts the writer (a loader and its own workers) may import.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib
import sys
import types

__all__ = ["dataclass_fields", "find_class", "make_namedtuple", "namedtuple_fields"]

MAX_MADE_FIELDS = 1024  # of a class made on a writer's word; each takes kilobytes


def find_class(module_name: str, qualname: str, *, imports: bool = False) -> type | None:
    """Look up a class as pickle would, but without running code of any module; None where there is none.

    imports: import the module if it is not loaded; an ImportError passes through.
    """
    module = sys.modules.get(module_name)
    if module is None and imports:
        module = importlib.import_module(module_name)
    if not isinstance(module, types.ModuleType):
        return None
    # Neither getattr nor vars: a module may define __getattr__, a lazy one loads itself on any attribute.
    namespace = object.__getattribute__(module, "__dict__")
    *outer, name = qualname.split(".")
    for part in outer:
        scope = namespace.get(part)
        if not isinstance(scope, type):
            return None
        namespace = type.__getattribute__(scope, "__dict__")
    found = namespace.get(name)
    return found if isinstance(found, type) else None


def namedtuple_fields(kind: type) -> tuple[str, ...] | None:
    """The field names of a namedtuple class; None for any other class."""
    names = getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
    if type(names) is tuple and all(type(name) is str for name in names):
        return names
    return None


@functools.lru_cache(maxsize=256)
def dataclass_fields(kind: type) -> tuple[str, ...] | None:
    """The field names of a dataclass whose instances can be made without calling it; None for others."""
    if not dataclasses.is_dataclass(kind):
        return None
    if hasattr(kind, "__del__"):  # would run on an instance that no constructor has checked
        return None
    try:
        object.__new__(kind)  # refused for a subclass of dict or Exception, whose state is not all in fields
    except TypeError:
        return None
    return tuple(field.name for field in dataclasses.fields(kind))


@functools.lru_cache(maxsize=256)
def make_namedtuple(qualname: str, names: tuple[str, ...]) -> type:
    """A namedtuple class to stand in for one that this process does not have; the same one each time."""
    if len(names) > MAX_MADE_FIELDS:
        raise ValueError(f"{qualname} has {len(names)} fields; import its module to read more than {MAX_MADE_FIELDS}")
    kind = collections.namedtuple(qualname.rpartition(".")[2], names, rename=True)
    if kind._fields != names:
        raise ValueError(f"{names!r} are not field names of a namedtuple")
    return kind
