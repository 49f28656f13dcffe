"""Pages on a stream: once, or again and again on a terminal. With rich in colours, without it plain."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ringbuf.cli.page import Block, Line, lines_of, plain
from ringbuf.cli.terminal import fit, glyphs_for, is_terminal, size_of

__all__ = ["Screen", "screen", "show"]

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the other screen, without a cursor; and back


class Screen(Protocol):
    def draw(self, page: Sequence[Block], footer: str = "") -> None:
        """Put a page in the place of the last one. footer: stays in sight where a page is too long."""


def show(page: Sequence[Block]) -> None:
    """Write a page to stdout, once: on a terminal no wider than that is, else as wide as it is."""
    stream = sys.stdout
    if not is_terminal(stream):
        _write(stream, lines_of(page, None, glyphs_for(stream)))
        return
    lines = lines_of(page, size_of(stream)[0], glyphs_for(stream))
    rich = _rich()
    if rich is None:
        _write(stream, lines)
    else:
        rich.write(stream, lines)


@contextlib.contextmanager
def screen() -> Iterator[Screen]:
    """The whole terminal that stdout is; or none, and pages follow one another."""
    stream = sys.stdout
    if not is_terminal(stream):
        yield _Stream(stream)
        return
    rich = _rich()
    with _plain_screen(stream) if rich is None else rich.screen(stream) as drawn:
        yield drawn


def _rich() -> Any:
    """The module that paints with rich; None where that is not installed."""
    try:
        from ringbuf.cli import colours
    except ImportError:
        return None
    return colours


class _Stream:
    def __init__(self, stream: Any):
        self._stream = stream

    def draw(self, page: Sequence[Block], footer: str = "") -> None:
        _write(self._stream, [*lines_of(page, None, glyphs_for(self._stream)), []])


class _Plain:
    def __init__(self, stream: Any):
        self._stream = stream

    def draw(self, page: Sequence[Block], footer: str = "") -> None:
        lines = [plain(line) for line in fit(page, footer, self._stream)]
        self._stream.write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[J")
        self._stream.flush()


@contextlib.contextmanager
def _plain_screen(stream: Any) -> Iterator[_Plain]:
    stream.write(ENTER)
    try:
        yield _Plain(stream)
    finally:
        stream.write(LEAVE)
        stream.flush()


def _write(stream: Any, lines: list[Line]) -> None:
    for line in lines:
        print(plain(line), file=stream)
    if stream is not None:
        stream.flush()  # who reads wants it now
