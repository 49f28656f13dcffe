"""The terminal, if there is one: how large it is, what it can show, and which keys are pressed."""

from __future__ import annotations

import contextlib
import locale
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from typing import Any

from ringbuf.cli.page import ASCII, UNICODE, Block, Glyphs, Line, lines_of

__all__ = ["Keys", "fit", "glyphs_for", "is_terminal", "keys", "size_of"]


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal that can write over what it shows."""
    try:
        return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    except (AttributeError, ValueError):  # None, or closed
        return False


def size_of(stream: Any) -> tuple[int, int]:
    """Columns and lines of a terminal."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return (columns or 80), (lines or 24)  # of some that were never told their size both are 0


def glyphs_for(stream: Any) -> Glyphs:
    """What the locale and the stream can show. Python itself writes UTF-8 also where LC_ALL is C: who set that meant ASCII."""
    try:
        if "utf" not in locale.nl_langinfo(locale.CODESET).lower():
            return ASCII
        (UNICODE.levels + "".join(UNICODE.slots.values())).encode(stream.encoding or "ascii")
    except (AttributeError, LookupError, UnicodeError):
        return ASCII
    return UNICODE


def fit(page: Sequence[Block], footer: str, stream: Any) -> list[Line]:
    """A page and its footer as lines that fit a terminal."""
    columns, height = size_of(stream)
    lines = lines_of(page, columns, glyphs_for(stream))[: max(0, height - 1)]
    return [*lines, [(footer[:columns], "dim")]] if footer else lines


class Keys:
    """wait() for the time to look again; "quit" and "resized" may come first."""

    def __init__(self, stdin: int | None, woken: int):
        self._stdin, self._woken = stdin, woken

    def wait(self, seconds: float) -> str | None:
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            watched = [self._woken] if self._stdin is None else [self._woken, self._stdin]
            ready = select.select(watched, [], [], max(0.0, left))[0]
            if self._woken in ready:
                os.read(self._woken, 4096)
                return "resized"
            if self._stdin in ready:
                pressed = os.read(self._stdin, 64)
                if not pressed or b"q" in pressed.lower():  # nothing: the terminal hung up
                    return "quit"
            if left <= 0:
                return None


@contextlib.contextmanager
def keys(terminal: bool) -> Iterator[Keys]:
    """Have keys come one by one and unseen, and leave the terminal as it was.

    terminal: whether there is one to write to; else no key is asked for.
    """
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    stdin = _stdin() if terminal else None
    before = None if stdin is None else termios.tcgetattr(stdin)

    def resized(*_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(wake, b"r")

    handler = signal.signal(signal.SIGWINCH, resized) if terminal else None
    try:
        if stdin is not None:
            tty.setcbreak(stdin, termios.TCSANOW)
            _do_not_suspend(stdin)
        yield Keys(stdin, woken)
    finally:
        if stdin is not None:
            termios.tcsetattr(stdin, termios.TCSANOW, before)
        if terminal:
            signal.signal(signal.SIGWINCH, handler)
        os.close(woken)
        os.close(wake)


def _do_not_suspend(terminal: int) -> None:
    """Ctrl-Z would leave the shell with our screen and without a cursor."""
    settings = termios.tcgetattr(terminal)
    settings[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(terminal, termios.TCSANOW, settings)


def _stdin() -> int | None:
    """The descriptor of stdin where that is a terminal that is ours to set."""
    try:
        descriptor = sys.stdin.fileno()
        if os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp():
            return descriptor
    except (AttributeError, OSError, ValueError):
        pass
    return None
