"""A result as a picture. Whether there can be one is known before anything is measured."""

from __future__ import annotations

import os
from typing import Any

from ringbuf.cli.outcome import WrongUsage, one_line

__all__ = ["Picture"]

KINDS = (".pdf", ".png", ".svg")


class Picture:
    """A picture to be drawn at `path`. WrongUsage: it cannot be."""

    def __init__(self, path: str):
        try:
            from ringbuf.cli.bench import plot
        except Exception as error:  # whatever an installation of matplotlib may raise
            raise WrongUsage(
                f"--plot needs matplotlib, which cannot be imported ({one_line(error)}); pip install 'ringloader[bench]'"
            ) from None
        self._plot = plot
        self._path = _check(path)

    def draw(self, result: dict[str, Any]) -> str:
        """Draw, and return the path. OSError."""
        self._plot.draw(result, self._path)
        return self._path


def _check(path: str) -> str:
    folder = os.path.dirname(os.path.abspath(path))
    if not path.lower().endswith(KINDS):
        raise WrongUsage(f"--plot {path!r}: the name should end in {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if os.path.isdir(path):
        raise WrongUsage(f"--plot {path!r} is a folder; give the name of a file in it")
    if not os.path.isdir(folder):
        raise WrongUsage(f"--plot {path!r}: there is no folder {folder!r}; make it first")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise WrongUsage(f"--plot {path!r} may not be written by this user; give a path that may")
    return path
