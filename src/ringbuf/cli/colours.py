"""Pages in colours, by rich. NO_COLOR is heard by it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ringbuf.cli.page import Block, Line
from ringbuf.cli.terminal import fit, size_of

__all__ = ["screen", "write"]

STYLES = {
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "warn": "yellow",
    "bad": "red",
    "ready": "green",
    "reading": "cyan",
    "writing": "yellow",
    "free": "dim",
}


def write(stream: Any, lines: list[Line]) -> None:
    """Write lines that fit the terminal."""
    console = _console(stream)
    for line in lines:
        console.print(_text(line), no_wrap=True, overflow="crop", crop=False)


@contextlib.contextmanager
def screen(stream: Any) -> Iterator[_Screen]:
    """The whole terminal, until the end."""
    console = _console(stream)
    with Live(Text(), console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        yield _Screen(live, stream)


class _Screen:
    def __init__(self, live: Live, stream: Any):
        self._live, self._stream = live, stream

    def draw(self, page: Sequence[Block], footer: str = "") -> None:
        lines = fit(page, footer, self._stream)
        self._live.console.size = size_of(self._stream)
        self._live.update(Text("\n", no_wrap=True, overflow="crop").join(map(_text, lines)), refresh=True)


def _console(stream: Any) -> Console:
    columns, lines = size_of(stream)
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=columns, height=lines)


def _text(line: Line) -> Text:
    return Text.assemble(*((text, STYLES.get(style, "")) for text, style in line), no_wrap=True, overflow="crop")
