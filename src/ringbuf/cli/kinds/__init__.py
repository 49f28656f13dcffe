"""Kinds of things that run and can be looked at. Each is a file of this folder, named in KINDS, with what thing.Kind says."""

from __future__ import annotations

import contextlib
from collections import Counter
from importlib import import_module
from typing import Any

from ringbuf.cli.kinds.thing import Kind, Thing
from ringbuf.cli.outcome import Failed

__all__ = ["KINDS", "NAMES", "NOTHING", "find", "kinds", "named", "there_is"]

KINDS = ("ring", "server", "loader")
NOTHING = f"no {', '.join(KINDS[:-1])} or {KINDS[-1]} of yours is there"
NAMES = "of a ring, server or loader, as `ringbuf ls` lists it; also a loader's PID, or PID/NAME"


def kinds() -> list[Any]:
    return [import_module(f"ringbuf.cli.kinds.{name}") for name in KINDS]


def find(everybody: bool = False) -> list[Thing]:
    """All things of all kinds."""
    return [thing for kind in kinds() for thing in kind.find(everybody)]


def named(name: str) -> list[tuple[Kind, dict[str, Any]]]:
    """(kind, snapshot) of everything with this name. Failed, which names what there is, where there is none."""
    found = []
    for kind in kinds():
        for key in kind.keys(name):
            with contextlib.suppress(FileNotFoundError):
                found.append((kind, kind.look(key)))
    if not found:
        raise Failed(f"nothing is named {name!r}; {there_is(find())}")
    return found


def there_is(things: list[Thing]) -> str:
    if not things:
        return NOTHING
    names = Counter((thing.kind, thing.name) for thing in things)
    told = [(thing.name if names[thing.kind, thing.name] == 1 else thing.key, thing.kind) for thing in things]
    return "there are: " + ", ".join(f"{name} ({kind})" for name, kind in told)
