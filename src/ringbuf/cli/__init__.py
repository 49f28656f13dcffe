"""The command `ringbuf`. Each command is a file of this folder, named in COMMANDS; it has

ABOUT                 one line for the list of commands
EXAMPLES              what `--help` ends with
arguments(parser)     its options
run(options) -> int   its work; returns the exit code
EXIT_CODES            what these mean, where that is not what they mean elsewhere
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn, TextIO

from ringbuf.building import ANSWERS
from ringbuf.cli.outcome import DONE, EXIT_CODES, FAILED, INTERRUPTED, WRONG_USAGE, Failed, WrongUsage, one_line
from ringbuf.errors import RingbufError

__all__ = ["main"]

COMMANDS = ("serve", "ls", "stat", "top", "doctor", "trace", "bench", "rm", "keygen")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what went wrong is one line on stderr.

    arguments: without the program's name; None for those of this process.
    """
    try:
        code = _run(arguments)
    except BrokenPipeError:  # who read our output has had enough of it
        code = DONE
    except KeyboardInterrupt:
        _tell("ringbuf: stopped by Ctrl-C")
        code = INTERRUPTED
    return _flush(sys.stderr, _flush(sys.stdout, code))


def _run(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
        if options.command is None and not options.answers:
            parser.error("the following arguments are required: COMMAND")
    except SystemExit as end:  # of --help and --version, and of wrong usage, which is told by then
        return int(end.code or 0)
    try:
        if options.answers:
            print(*(answer() for answer in options.answers))
            return DONE
        return options.run(options)
    except BrokenPipeError:
        raise
    except WrongUsage as error:
        _tell(f"ringbuf {options.command}: {one_line(error)}")
        return WRONG_USAGE
    except (Failed, RingbufError, OSError, ImportError) as error:
        _tell(f"ringbuf {options.command or ''}".rstrip() + f": {one_line(error)}")
        return FAILED


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it
        print(line, file=sys.stderr)


def _flush(stream: TextIO | None, code: int) -> int:
    """Have all that was written go out now, so that it cannot fail when Python exits. Returns what the exit code is then."""
    try:
        if stream is not None:
            stream.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        if code == DONE and not isinstance(error, BrokenPipeError):
            _tell(f"ringbuf: the output could not be written: {one_line(error)}")
            return FAILED
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(WRONG_USAGE)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ringbuf",
        description="Batches of arrays between processes, in shared memory and from a server.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ringbuf {sys.modules['ringbuf'].__version__}")
    builders = parser.add_argument_group("for builders in C, C++ and Cython", "print, for the libringbuf in this installation")
    for name, (answer, about) in ANSWERS.items():
        builders.add_argument(f"--{name}", action="append_const", dest="answers", const=answer, help=about)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for name in COMMANDS:
        module = import_module(f"ringbuf.cli.{name}")
        command = commands.add_parser(
            name,
            help=module.ABOUT,
            description=module.__doc__,
            epilog=f"examples:\n{module.EXAMPLES.rstrip()}\n\n{getattr(module, 'EXIT_CODES', EXIT_CODES)}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.arguments(command)
        command.set_defaults(run=module.run)
    return parser
