"""Warnings that point at the user's line, however deep in here they arise."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn"]

OURS = {__package__.partition(".")[0], "contextlib"}  # which stands between a context manager of ours and its block


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, as if from the nearest caller outside this package."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth + 1)
