"""SIGTERM as an exception, for commands that have something to bring in order before they end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Terminated", "terminated_by_sigterm"]


class Terminated(BaseException):
    """SIGTERM came."""


@contextmanager
def terminated_by_sigterm() -> Iterator[None]:
    """As Ctrl-C does, SIGTERM ends the command in good order. Processes that fork from this one are ended as ever."""
    own = os.getpid()

    def end(*_: object) -> None:
        if os.getpid() == own:
            raise Terminated
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
