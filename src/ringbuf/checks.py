"""Arguments, looked at before any system call: what was given, and what is allowed."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")

NAME_MAX = 200  # RB_NAME_MAX
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def whole(label: str, value: Any, *, at_least: int, at_most: int) -> int:
    """Return `value` as an int, or say which whole numbers `label` may be."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{label} must be a whole number, got {value!r}") from None
    if not at_least <= number <= at_most:
        raise ValueError(f"{label} must be {at_least} to {at_most}, got {number}")
    return number


def ring_name(value: Any) -> str:
    """Return `value` if a ring may be called so: it becomes part of a file name."""
    if not isinstance(value, str):
        raise TypeError(f"a ring's name must be a str, got {value!r}")
    if len(value) > NAME_MAX or not _NAME.fullmatch(value):
        raise ValueError(
            f"a ring's name must be 1 to {NAME_MAX} of the characters A-Z a-z 0-9 . _ - and not begin with '.'; "
            f"got {len(value)}: {value[: NAME_MAX + 1]!r}"
        )
    return value


def choice(label: str, value: Any, choices: Mapping[Any, T]) -> T:
    """Return what `value` stands for, or name the values that `label` may have."""
    try:
        return choices[value]
    except (KeyError, TypeError):
        allowed = ", ".join(map(repr, choices))
        raise ValueError(f"{label} must be one of {allowed}; got {value!r}") from None


def seconds(label: str, value: float | None) -> None:
    """Refuse what is no time to wait: None waits for ever, 0 not at all."""
    if value is not None and (math.isnan(value) or value < 0):
        raise ValueError(f"{label} must be None (wait), 0 (do not wait) or a positive number; got {value!r} seconds")
