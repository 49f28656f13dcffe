"""How a command ends."""

from __future__ import annotations

__all__ = [
    "DONE",
    "EXIT_CODES",
    "FAILED",
    "INTERRUPTED",
    "TERMINATED",
    "WRONG_USAGE",
    "Failed",
    "WrongUsage",
    "one_line",
]

DONE = 0
FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
TERMINATED = 143

EXIT_CODES = "exit codes: 0 done, 1 it failed, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM"


class Failed(Exception):
    """The command could not do its work; the text says why, in one line."""


class WrongUsage(Exception):
    """The command cannot do what it was asked for; the text says why, in one line."""


def one_line(error: BaseException) -> str:
    """What an exception says, in one line."""
    if isinstance(error, OSError) and error.strerror:
        about = "" if error.filename is None else f": {error.filename!r}"
        return f"{error.strerror}{about}"
    return " ".join(str(error).split()) or type(error).__name__
