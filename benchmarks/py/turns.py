"""Measurements in fresh interpreters: a command line in, what it printed as JSON out."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.py.usage import descendants, memory_bytes

ROOT = Path(__file__).parents[2]
RUN_TIMEOUT_S = 600
LOOK_EVERY_S = 0.02


def in_fresh_process(command: Sequence[str], *, watch: bool = False) -> Any:
    """Run a command from the checkout's root and return the JSON that it prints. RuntimeError says why there is none.

    watch: look at its memory and that of its children all the while, and put the peak into the JSON as `peak_bytes`.
    Looking takes time from it.
    """
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with _watched(process.pid) if watch else contextlib.nullcontext() as peak:
            try:
                output, errors = process.communicate(timeout=RUN_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"no result within {RUN_TIMEOUT_S} s") from None
            finally:
                process.kill()  # nothing, unless we leave early
    if process.returncode:
        last = errors.strip().rpartition("\n")[2]
        raise RuntimeError(f"exit code {process.returncode}: {last}")
    result = json.loads(output.strip().rpartition("\n")[2])
    return result | {"peak_bytes": max(peak)} if peak else result


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[list[int]]:
    """Yields a list that fills with what `pid` and its descendants had."""
    seen: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_EVERY_S):
            seen.append(memory_bytes(descendants(pid)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def at_least(least: int) -> Callable[[str], int]:
    """For argparse: a whole number, not below `least`."""

    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is too small, it takes {least} or more")
        return int(text)

    return number
