"""Arguments that are numbers."""

from __future__ import annotations

import argparse
import math
import re

__all__ = ["count", "count_or_0", "seconds"]

MOST_S = 86400.0


def count(text: str) -> int:
    return _whole(text, at_least=1)


def count_or_0(text: str) -> int:
    return _whole(text, at_least=0)


def seconds(text: str) -> float:
    """From a tenth of a second to a day."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.1 <= value <= MOST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to {MOST_S:.0f}")
    return value


def _whole(text: str, at_least: int) -> int:
    if not re.fullmatch(r"\d{1,15}", text, re.ASCII) or int(text) < at_least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {at_least} on")
    return int(text)
