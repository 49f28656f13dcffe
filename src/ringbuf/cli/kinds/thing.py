"""What `ringbuf ls`, `stat` and `top` know of everything that runs, whatever kind of thing it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ringbuf.cli.page import Block

__all__ = ["Kind", "Row", "Thing", "Watch"]


class Thing(NamedTuple):
    """Something with a name, as one look found it; None where a thing has no such number, or none that may be known.

    pid: its owner: of a ring, who is attached to it longest. alive: whether it is in use; slots: by state;
    note: what else there is to say. user: whose it is. key: a name that is no other thing's of its kind.
    """

    kind: str
    name: str
    key: str
    pid: int | None = None
    alive: bool | None = None
    mode: str | None = None
    slots: dict[str, int] | None = None
    nbytes: int | None = None
    age_s: float | None = None
    note: str = ""
    user: int = -1


class Row(NamedTuple):
    """A line about a thing in a list of several, over the last interval.

    share: of its slots, or of the batches that it keeps, those that wait to be taken.
    """

    messages_per_s: float | None
    bytes_per_s: float | None
    share: float | None
    note: str


class Watch(Protocol):
    """One thing, looked at again and again from outside."""

    def look(self) -> dict[str, Any]:
        """How it is, and rates since the last look, as JSON has them. FileNotFoundError: it is gone."""

    def page(self) -> list[Block]:
        """The last look, for people."""

    def row(self) -> Row:
        """The last look, in short."""


class Kind(Protocol):
    """A file of this folder."""

    KIND: str

    def find(self, everybody: bool) -> list[Thing]:
        """All there are, of this user or of everybody, by name."""

    def keys(self, name: str) -> list[str]:
        """Of all that a user may mean by a name."""

    def look(self, key: str) -> dict[str, Any]:
        """One snapshot, as JSON has it. FileNotFoundError."""

    def page(self, snapshot: dict[str, Any]) -> Sequence[Block]:
        """The same for people."""

    def watch(self, key: str) -> Watch:
        """FileNotFoundError may come from its first look()."""
