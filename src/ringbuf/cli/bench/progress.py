"""How far it is: on a terminal one line that is written again and again, elsewhere a line for each part."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any

from ringbuf.cli.page import cut
from ringbuf.cli.terminal import is_terminal, size_of

__all__ = ["Progress"]


class Progress:
    """Who reads may go away, or not be there at all; that ends nothing."""

    def __init__(self, stream: Any):
        self._stream = stream
        self._terminal = is_terminal(stream)
        self._part = ""
        self._done = 0
        self.runs = 1  # that there will be

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._terminal:
            self._write("\r\x1b[K")

    def part(self, text: str) -> None:
        """Another part begins."""
        self._part = text
        if self._terminal:
            self._tell("starting")
        else:
            self._write(f"ringbuf bench: {text}\n")

    def run(self, text: str) -> None:
        """One of `runs` begins."""
        self._tell(text)
        self._done += 1

    def _tell(self, text: str) -> None:
        if self._terminal:
            share = f"{100 * self._done // self.runs:3} %"
            self._write("\r\x1b[K" + cut(f"{share}  {self._part}: {text}", size_of(self._stream)[0] - 1))

    def _write(self, text: str) -> None:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
