"""What NAME or PID on a command line means where it is a loader that runs."""

from __future__ import annotations

from ringbuf import telemetry
from ringbuf.cli.outcome import WrongUsage

__all__ = ["open_loader"]


def open_loader(text: str) -> telemetry.Reader:
    """A look at it. Raises WrongUsage where several have that name, and FileNotFoundError where none has."""
    try:
        try:
            return telemetry.open(text)
        except FileNotFoundError:
            if not text.isdecimal():
                raise
        return telemetry.open(int(text))
    except ValueError as error:
        raise WrongUsage(str(error)) from None
