"""Figures of several rounds: the median, and how far apart they lie."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

__all__ = ["ratio", "spread"]


def spread(rounds: Sequence[float]) -> dict[str, Any]:
    return {"median": median(rounds), "min": min(rounds), "max": max(rounds), "rounds": list(rounds)}


def ratio(ones: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Of what was measured in the same round each time: a machine that is slower for a while is so for both."""
    return spread([one / other for one, other in zip(ones, others, strict=True)])
