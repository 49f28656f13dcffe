"""What a loader does about a sample whose making failed, where it does not raise: `on_error`."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["LEFT_OUT", "MOST_KEPT", "NOTHING", "FailedSample", "PassedOver", "Substitute", "check_policy"]

MOST_IN_A_ROW = 1000  # failures of an iterator, which may have no sample that works behind them
MOST_KEPT = 64  # of all that failed; the others are counted
MOST_TEXT = 400


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


class PassedOver(NamedTuple):
    """Samples that failed, as they are reported: how many, and the last of them. Plain, since it travels."""

    count: int
    last: list[tuple]
    """The fields of FailedSamples."""

    def encode(self, room: int) -> bytes:
        """As bytes, of the last ones as many as there is room for; nothing for nothing."""
        if not self.count:
            return b""
        data = pickle.dumps(tuple(self), 5)
        return data if len(data) <= room else self._replace(last=self.last[len(self.last) // 2 + 1 :]).encode(room)

    @classmethod
    def decode(cls, data: Any) -> PassedOver:
        return cls(*pickle.loads(data)) if len(data) else NOTHING


NOTHING = PassedOver(0, [])


class Substitute:
    """Acts on a policy: "skip", or a function of (index, exception) that returns a sample."""

    def __init__(self, policy: str | Callable[[Any, Exception], Any]):
        self._replace = None if policy == "skip" else policy
        self._count = 0
        self._last: deque[tuple] = deque(maxlen=MOST_KEPT)
        self._in_a_row = 0

    def sample(self, index: Any, error: Exception) -> Any:
        """What to use in the place of a sample: another one, or LEFT_OUT."""
        self._in_a_row += 1
        if index is None and self._in_a_row > MOST_IN_A_ROW:
            raise RuntimeError(f"the dataset's iterator failed {MOST_IN_A_ROW} times in a row") from error
        instead = LEFT_OUT if self._replace is None else self._replace(index, error)
        text = f"{type(error).__qualname__}: {error}"
        if len(text) > MOST_TEXT:
            text = text[: MOST_TEXT - 3] + "..."
        self._count += 1
        self._last.append((index, text, self._replace is not None))
        return instead

    def relieve(self) -> None:
        """A sample worked."""
        self._in_a_row = 0

    def report(self) -> PassedOver:
        """What was passed over since the last call."""
        if not self._count:
            return NOTHING
        report = PassedOver(self._count, list(self._last))
        self._count = 0
        self._last.clear()
        return report


def check_policy(policy: Any) -> None:
    """Raise for anything that `on_error` cannot be."""
    if policy not in ("raise", "skip") and not callable(policy):
        raise ValueError(
            f"on_error should be 'raise', 'skip' or a function of (index, exception) that returns a sample, got {policy!r}"
        )
