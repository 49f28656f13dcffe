"""A loader run here, with nobody who works on its batches, or with somebody who pretends to."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

from ringbuf import telemetry
from ringbuf.cli.diagnosis.facts import Facts, facts
from ringbuf.cli.diagnosis.machine import Use
from ringbuf.cli.diagnosis.measures import Measures
from ringbuf.cli.diagnosis.progress import Tell
from ringbuf.cli.diagnosis.stretch import NOTE_S, Stretch
from ringbuf.cli.outcome import Failed, one_line
from ringbuf.loader.base import LoaderBase

__all__ = ["run_for"]


def run_for(loader: LoaderBase, seconds: float, step_s: float | None, tell: Tell) -> tuple[Measures, Facts, Use]:
    """Take its batches for so long, after a first one, in as many passes as that needs. It is a copy that runs: the loader
    itself stays as it was.

    step_s: how long a training step is pretended to take; it sleeps, as one does that waits for a GPU. None: there is none.
    Raises Failed where the loader raises, or has no batch.
    """
    name = f"doctor-{os.getpid()}"
    running = loader._copy_called(name)
    known, threads = facts(), threading.active_count() - 1
    with running:
        batches = _endless(running)
        tell("waiting for the first batch")
        began = time.monotonic()
        _next(batches)
        first_batch_s = time.monotonic() - began
        with telemetry.open(name) as reader:
            stretch = Stretch(reader)
            began = noted = time.monotonic()
            count = 0
            while (now := time.monotonic()) < began + seconds:
                if step_s is not None:
                    time.sleep(step_s)
                _next(batches)
                count += 1
                if now - noted >= NOTE_S:
                    noted = now
                    stretch.note()
                tell(f"running: {now - began:.0f} of {seconds:g} s, {count} batches")
            measures = stretch.measures(
                cores=known.cores,
                alone=step_s is None,
                first_batch_s=first_batch_s,
                custom_collate=loader.collate_fn not in (loader.dialect.collate, loader.dialect.convert),
                pull=loader.dispatch == "pull" or (not loader.in_order and not loader._iterable),
                persistent=loader.persistent_workers,
            )
        batches.close()
    context = loader.multiprocessing_context or multiprocessing.get_context()
    last = stretch.last
    method = context.get_start_method() if loader.num_workers else None
    return measures, known, Use(last.num_workers, last.slots * last.slot_bytes, method, threads)


def _endless(loader: LoaderBase) -> Iterator[Any]:
    while True:
        batch = nothing = object()
        for batch in loader:
            yield batch
        if batch is nothing:
            raise Failed("the loader gives no batch")


def _next(batches: Iterator[Any]) -> None:
    try:
        next(batches)
    except Failed:
        raise
    except Exception as error:
        raise Failed(f"the loader raised {type(error).__name__}: {one_line(error)}") from error
