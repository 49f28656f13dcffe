"""How far a measurement is, on stderr: one line that is written over on a terminal, else one when it begins."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from ringbuf.cli.terminal import is_terminal, size_of

__all__ = ["Tell", "progress"]

EVERY_S = 0.2

Tell = Callable[[str], None]


@contextlib.contextmanager
def progress(beginning: str) -> Iterator[Tell]:
    """A function that shows a line, as often as people can read. In the end no line of it is left on a terminal."""
    stream = sys.stderr
    terminal = is_terminal(stream)
    shown_at = 0.0

    def write(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it
            stream.write(text)
            stream.flush()

    def show(text: str) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if terminal and now - shown_at >= EVERY_S:
            shown_at = now
            write(f"\r\x1b[K{text[: size_of(stream)[0] - 1]}")

    if stream is not None and not terminal:
        write(f"ringbuf doctor: {beginning}\n")
    show(beginning)
    try:
        yield show
    finally:
        if terminal:
            write("\r\x1b[K")
