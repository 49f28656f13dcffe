"""Ctrl-C and SIGTERM in a command that starts processes.

Python runs callbacks at every fork, and an exception that a signal raises in one of them is printed and forgotten: the command
would go on. So while processes are started a signal waits.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from ringbuf.cli.sigterm import Terminated

__all__ = ["Signals"]

ERRORS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


class Signals:
    """As long as it is entered, either signal raises its exception here, and does in forked processes what it always does."""

    def __init__(self) -> None:
        self._own = os.getpid()
        self._held = False
        self._came: type[BaseException] | None = None

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._handle) for number in ERRORS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """The first signal that comes meanwhile raises at the end; a second, of somebody who does not want to wait, at once."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        came, self._came = self._came, None
        if came is not None:
            raise came

    def _handle(self, number: int, frame: object) -> None:
        if os.getpid() != self._own:
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
        elif self._held and self._came is None:
            self._came = ERRORS[signal.Signals(number)]
        else:
            raise ERRORS[signal.Signals(number)]
