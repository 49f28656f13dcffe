"""Measurements in fresh interpreters: a command line in, what it printed as JSON out."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RUN_TIMEOUT_S = 600


def in_fresh_process(command: Sequence[str]) -> Any:
    """Run a command from the checkout's root and return the JSON that it prints. RuntimeError says why there is none."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no result within {RUN_TIMEOUT_S} s") from None
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(f"exit code {done.returncode}: {last}")
    return json.loads(done.stdout)


def at_least(least: int) -> Callable[[str], int]:
    """For argparse: a whole number, not below `least`."""

    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is too small, it takes {least} or more")
        return int(text)

    return number
