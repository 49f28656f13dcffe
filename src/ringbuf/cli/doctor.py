"""Say in words where the time of a training loop goes, and what to do about it.

Of a loader in a module a copy is run for some seconds, with nobody who works on its batches: that shows how many there can be
at most, and with --step MS how it goes with a training step that takes so long. Of a loader that runs two looks are taken, from
outside. Without an argument, and besides, what this machine and its limits have in the way is looked at.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import warnings
from typing import Any

from ringbuf.cli.counts import seconds
from ringbuf.cli.diagnosis import attached, trial
from ringbuf.cli.diagnosis.facts import Facts, facts
from ringbuf.cli.diagnosis.machine import Use, checks
from ringbuf.cli.diagnosis.measures import Measures
from ringbuf.cli.diagnosis.progress import progress
from ringbuf.cli.diagnosis.report import as_json, page
from ringbuf.cli.diagnosis.verdict import diagnose
from ringbuf.cli.factory import load
from ringbuf.cli.outcome import DONE, FAILED, Failed, WrongUsage, one_line
from ringbuf.cli.painter import show
from ringbuf.cli.running import open_loader
from ringbuf.cli.units import duration
from ringbuf.loader.base import LoaderBase

ABOUT = "say where the time of a loader goes, and what to do"

EXAMPLES = """\
  ringbuf doctor                               this machine and its limits
  ringbuf doctor jobs:make_loader              the most that this loader can give
  ringbuf doctor jobs:make_loader --step 50    with a training step of 50 ms
  ringbuf doctor train --seconds 30            a loader that runs: RingLoader(..., name="train")
  ringbuf doctor 4711 --json                   the one of the trainer with that pid
"""

EXIT_CODES = "exit codes: 0 done, and nothing to do; 1 something to do, or it failed; 2 wrong usage, 130 Ctrl-C"

SECONDS = 10.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "loader",
        nargs="?",
        metavar="MODULE:OBJECT|NAME|PID",
        help="a RingLoader, a DataLoader of torch, or a callable that returns one; or a loader that runs",
    )
    parser.add_argument(
        "--seconds", type=seconds, default=SECONDS, metavar="S", help=f"how long to measure, {SECONDS:g} by default"
    )
    parser.add_argument(
        "--step", type=_milliseconds, metavar="MS", help="pretend that a training step takes so many milliseconds, of a GPU"
    )
    parser.add_argument("--json", action="store_true", help="an object on stdout")


def run(options: argparse.Namespace) -> int:
    target = options.loader
    if target is None:
        if options.step is not None:
            raise WrongUsage("--step is for a loader in a module: give MODULE:OBJECT as well")
        known, use = facts(), Use(method=_start_method())
        return _tell(options, None, None, None, known, use)
    if ":" in target:
        with warnings.catch_warnings():  # the diagnosis says more about more workers than processors, and knows how it is
            warnings.filterwarnings("ignore", message=r"This (RingLoader has num_workers=|DataLoader will create) ?\d+")
            return _try(options, *_loader(target))
    if options.step is not None:
        raise WrongUsage(f"--step is for a loader in a module, and {target!r} runs, with steps of its own")
    try:
        reader = open_loader(target)
    except FileNotFoundError as error:
        raise Failed(f"{one_line(error)} (a loader in a module is MODULE:OBJECT)") from None
    with reader:
        with progress(f"looking at {reader.name} for {options.seconds:g} s") as tell:
            measures, known, use = attached.watch(reader, options.seconds, tell)
        about = {"name": reader.name, "pid": reader.pid, "program": reader.program}
        title = f"loader {reader.name} of process {reader.pid} ({reader.program})"
        return _tell(options, title, about, measures, known, use)


def _try(options: argparse.Namespace, loader: LoaderBase, like: str | None) -> int:
    step_s = None if options.step is None else options.step / 1e3
    with progress(f"running {options.loader} for {options.seconds:g} s") as tell:
        measures, known, use = trial.run_for(loader, options.seconds, step_s, tell)
    title = f"loader {options.loader}" + ("" if step_s is None else f", with a step of {duration(step_s)}")
    if like is not None:
        title += f", as ringbuf.torch.{like}"
    about = {"object": options.loader, "step_ms": options.step, "like": like}
    return _tell(options, title, about, measures, known, use)


def _tell(
    options: argparse.Namespace,
    title: str | None,
    about: dict[str, Any] | None,
    measures: Measures | None,
    known: Facts,
    use: Use,
) -> int:
    diagnosis = None if measures is None else diagnose(measures)
    machine = checks(known, use)
    told = as_json(about, measures, diagnosis, machine)
    if options.json:
        print(json.dumps(told, indent=1))
    else:
        if measures is not None:
            who = f"{measures.workers} worker{'s' if measures.workers != 1 else ''}"
            title = f"{title}: {measures.batches} batches in {duration(measures.seconds)}, {who}"
        show(page(title, measures, diagnosis, machine))
    return DONE if told["healthy"] else FAILED


def _loader(target: str) -> tuple[LoaderBase, str | None]:
    """The loader, and how it would be called, where it is of torch."""
    found = load(target)
    if isinstance(found, LoaderBase):
        return found, None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(found, torch.utils.data.DataLoader):
        return importlib.import_module("ringbuf.torch.likeness").like(found)
    kind = type(found).__name__
    raise WrongUsage(f"{target} is neither a RingLoader nor a DataLoader of torch, but a {kind}, of which nobody can tell more")


def _start_method() -> str:
    import multiprocessing

    return multiprocessing.get_context().get_start_method()


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 3600e3:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of milliseconds from 0 to an hour")
    return value
