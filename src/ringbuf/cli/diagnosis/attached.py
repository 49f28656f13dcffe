"""A loader that runs in another process: it is looked at from outside, and does not notice."""

from __future__ import annotations

import contextlib
import time

from ringbuf.cli.diagnosis.facts import Facts, facts
from ringbuf.cli.diagnosis.machine import Use
from ringbuf.cli.diagnosis.measures import Measures
from ringbuf.cli.diagnosis.progress import Tell
from ringbuf.cli.diagnosis.stretch import NOTE_S, Stretch
from ringbuf.cli.outcome import Failed
from ringbuf.telemetry import Reader, Snapshot

__all__ = ["watch"]


def watch(reader: Reader, seconds: float, tell: Tell) -> tuple[Measures, Facts, Use]:
    """For so long, or until it ends."""
    known = facts(reader.pid)
    stretch = Stretch(reader)
    first = stretch.last
    began = time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0 and reader.alive():
        time.sleep(min(NOTE_S, left))
        batches = stretch.note().consumer.batches - first.consumer.batches
        tell(f"looking at {reader.name}: {time.monotonic() - began:.0f} of {seconds:g} s, {batches} batches")
    if not reader.alive() and time.monotonic() - began < seconds / 2:
        raise Failed(f"the trainer with pid {reader.pid} ended while it was looked at")
    measures = stretch.measures(cores=known.cores)
    return measures, known, _use(stretch.last)


def _use(snapshot: Snapshot) -> Use:
    ring_bytes = snapshot.slots * snapshot.slot_bytes
    method = _method(snapshot.workers[0].pid) if snapshot.num_workers and snapshot.workers else None
    return Use(workers=snapshot.num_workers, ring_bytes=ring_bytes, method=method, runs=True)


def _method(worker: int) -> str | None:
    """How a worker was started, where its command line tells: after a fork it is the trainer's."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{worker}/cmdline", "rb") as file:
            words = file.read()
        for method, mark in (("spawn", b"multiprocessing.spawn"), ("forkserver", b"multiprocessing.forkserver")):
            if mark in words:
                return method
    return None
