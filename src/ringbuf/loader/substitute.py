"""What a loader does about a sample whose making failed, where it does not raise: `on_error`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["LEFT_OUT", "FailedSample", "Substitute", "check_policy"]

MOST_IN_A_ROW = 1000  # failures of an iterator, which may have no sample that works behind them


class LeftOut:
    """In the place of a sample, or of a batch, that is left out."""

    def __repr__(self) -> str:
        return "<left out>"


LEFT_OUT = LeftOut()


class FailedSample(NamedTuple):
    """A sample that failed and was passed over."""

    index: Any
    """Its index; None from an iterable dataset."""
    error: str
    """Type and text of the exception."""
    replaced: bool
    """Whether something else took its place; otherwise its batch is shorter by one."""


class Substitute:
    """Acts on a policy: "skip", or a function of (index, exception) that returns a sample."""

    def __init__(self, policy: str | Callable[[Any, Exception], Any]):
        self._replace = None if policy == "skip" else policy
        self._notes: list[FailedSample] = []
        self._in_a_row = 0

    def sample(self, index: Any, error: Exception) -> Any:
        """What to use in the place of a sample: another one, or LEFT_OUT."""
        self._in_a_row += 1
        if index is None and self._in_a_row > MOST_IN_A_ROW:
            raise RuntimeError(f"the dataset's iterator failed {MOST_IN_A_ROW} times in a row") from error
        instead = LEFT_OUT if self._replace is None else self._replace(index, error)
        self._notes.append(FailedSample(index, f"{type(error).__qualname__}: {error}", self._replace is not None))
        return instead

    def relieve(self) -> None:
        """A sample worked."""
        self._in_a_row = 0

    def notes(self) -> list[FailedSample]:
        """Those since the last call."""
        notes, self._notes = self._notes, []
        return notes


def check_policy(policy: Any) -> None:
    """Raise for anything that `on_error` cannot be."""
    if policy not in ("raise", "skip") and not callable(policy):
        raise ValueError(
            f"on_error should be 'raise', 'skip' or a function of (index, exception) that returns a sample, got {policy!r}"
        )
