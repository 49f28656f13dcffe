"""Kinds of things that run and can be looked at. Each is a file of this folder, named in KINDS, with what thing.Kind says."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ringbuf.cli.kinds.thing import Kind, Thing
from ringbuf.cli.outcome import Failed

__all__ = ["KINDS", "NOTHING", "find", "kinds", "named", "there_is"]

KINDS = ("ring", "server")
NOTHING = f"no {' and no '.join(KINDS)} of yours is there"


def kinds() -> list[Any]:
    return [import_module(f"ringbuf.cli.kinds.{name}") for name in KINDS]


def find(everybody: bool = False) -> list[Thing]:
    """All things of all kinds."""
    return [thing for kind in kinds() for thing in kind.find(everybody)]


def named(name: str) -> list[tuple[Kind, dict[str, Any]]]:
    """(kind, snapshot) of everything with this name. Failed, which names what there is, where there is none."""
    found = []
    for kind in kinds():
        try:
            found.append((kind, kind.look(name)))
        except FileNotFoundError:
            continue
    if not found:
        raise Failed(f"nothing is named {name!r}; {there_is(find())}")
    return found


def there_is(things: list[Thing]) -> str:
    if not things:
        return NOTHING
    return "there are: " + ", ".join(f"{thing.name} ({thing.kind})" for thing in things)
