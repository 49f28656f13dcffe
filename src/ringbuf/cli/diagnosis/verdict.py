"""In words where the time of a training loop goes, and what to do: a function of measured shares alone.

There is one main finding, and there may be others; each has at most one piece of advice, and no two of them pull at the same
knob. How much waiting is how bad is as TensorFlow's input-pipeline analysis has it: less than 5 % of the time is fine, up to
20 % moderate, more is high.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ringbuf.cli.diagnosis import causes, shares
from ringbuf.cli.diagnosis.causes import Advice
from ringbuf.cli.diagnosis.measures import Measures
from ringbuf.cli.units import amount, duration, percent

__all__ = ["Diagnosis", "Finding", "diagnose"]

HIGH = 0.20  # of the trainer's time, spent waiting
MOSTLY_IDLE = 0.5  # of the workers' time: they are not what is slow
THREADS = 1.3  # processors that one worker uses
LATE_S, LATE = 2.0, 10  # a first batch: seconds, and times what a batch takes
FEW = 20  # batches from which little can be concluded


class Finding(NamedTuple):
    """level: "ok", "warning", or "bad". cause: of waiting, in a word."""

    kind: str
    level: str
    text: str
    advice: Advice | None = None
    cause: str | None = None


class Diagnosis(NamedTuple):
    main: Finding
    also: tuple[Finding, ...]
    remark: str
    """What the conclusions rest on."""

    @property
    def healthy(self) -> bool:
        return all(finding.level == "ok" for finding in (self.main, *self.also))


def diagnose(m: Measures) -> Diagnosis:
    share = m.wait_share
    if share is None:
        advice = Advice("patience", "look while it trains, or for longer: --seconds")
        main = Finding("idle", "ok", f"no pass was under way in these {duration(m.seconds)}", advice)
    elif m.batches and m.alone:
        main = _capacity(m)
    elif share >= shares.FINE:
        main = _input(m, share)
    else:
        main = _enough(m, share)
    return Diagnosis(main, tuple(_others(m, main)), _remark(m, main))


# ---- the main finding


def _input(m: Measures, share: float) -> Finding:
    why = causes.cause(m)
    how = "highly" if share > HIGH else "moderately"
    text = f"input-bound, {how}: the trainer waited {percent(share)} of the time{_spent(m)}; {why.text}"
    return Finding("input", "bad" if share > HIGH else "warning", text, why.advice, why.cause)


def _capacity(m: Measures) -> Finding:
    each = (m.wait_s + m.use_s) / m.batches
    text = (
        f"the loader gives at most {amount(1 / each)} batches/s: enough for a training step of {duration(each)} or more, and a "
        f"shorter one would wait{_spent(m)}"
    )
    why = causes.cause(m)
    if why.advice is not None:
        text += f"; {why.text}"
    return Finding("capacity", "ok", text, why.advice, why.cause)


def _enough(m: Measures, share: float) -> Finding:
    waited = f"the trainer waited {percent(share)} of the time"
    if not m.workers:
        return Finding("consumer", "ok", f"not input-bound: {waited}, making the batches itself")
    idle = shares.idle(m)
    if idle < MOSTLY_IDLE:
        return Finding(
            "balanced", "ok", f"balanced: {waited}, and its workers were idle {percent(idle)} of theirs: both keep pace"
        )
    text = f"consumer-bound: {waited}, and its workers {percent(idle)} of theirs: a faster loader would win nothing"
    needed = shares.needed(m)
    advice = None
    if needed is not None and needed < m.workers:
        advice = Advice("workers", f"num_workers={needed} instead of {m.workers} would do, should memory be short", needed)
    return Finding("consumer", "ok", text, advice)


# ---- other findings


def _others(m: Measures, main: Finding) -> list[Finding]:
    found = []
    if m.errors:
        what = f"{m.errors} sample{'s' if m.errors > 1 else ''} failed and were passed over"
        advice = Advice("errors", "stats().failed lists the last of them, with the reason")
        found.append(Finding("errors", "warning", what, advice))
    if m.restarts and main.cause != "restarts":
        found.append(Finding("restarts", "warning", *causes.dying(m)))
    if shares.many_copies(m) and main.cause != "kept":
        found.append(Finding("kept", "warning", *causes.short_of_slots(m)[1:]))
    if main.cause != "first" and _late(m):
        found.append(_first(m))
    if m.workers and shares.idle(m) < MOSTLY_IDLE and shares.threads(m) > THREADS and m.workers * shares.threads(m) > m.cores:
        what = f"a worker at work keeps {shares.threads(m):.1f} processors busy, and there are {m.cores:g} for {m.workers}"
        advice = Advice("threads", "one thread for each worker: OMP_NUM_THREADS=1, cv2.setNumThreads(0)")
        found.append(Finding("threads", "warning", what, advice))
    elif m.workers > m.cores and shares.delayed(m) and shares.computes(m):
        fewer = max(1, math.floor(m.cores))
        what = f"{m.workers} workers share {m.cores:g} processors, and wait {percent(shares.delay(m))} of their work for one"
        advice = Advice("workers", f"num_workers={fewer} would do as much", fewer)
        found.append(Finding("crowded", "warning", what, advice))
    knobs = {main.advice.knob} if main.advice else set()
    return [finding for finding in found if finding.advice is None or finding.advice.knob not in knobs]


def _late(m: Measures) -> bool:
    return m.first_batch_s is not None and m.first_batch_s > max(LATE_S, LATE * (m.make_s or 0.0))


def _first(m: Measures) -> Finding:
    text = f"the first batch took {duration(m.first_batch_s or 0.0)}"
    if not m.workers:
        return Finding("first", "warning", text)
    how = "" if m.persistent else "persistent_workers=True has them start once; "
    return Finding("first", "warning", text, Advice("start", f"{how}what a worker imports and unpickles is what it waits for"))


def _remark(m: Measures, main: Finding) -> str:
    parts = []
    if m.batches < FEW and main.kind != "idle":
        few = f"these are {m.batches} batches" if m.batches != 1 else "this is one batch"
        parts.append(f"{few} only: --seconds makes it surer")
    if main.advice is not None and main.advice.knob == "workers" and main.kind != "consumer":
        cost = f"{duration(shares.processor_s(m))} of" if shares.known(m) else "one of"
        parts.append(f"assumed: samples take as long with more workers, and a batch needs {cost} the {m.cores:g} processors")
    return "; ".join(parts)


def _spent(m: Measures) -> str:
    total = shares.worker_s(m)
    if not m.workers or not total:
        return ""
    load = sum(maker.load_s for maker in m.makers) / total
    collate = sum(maker.collate_s for maker in m.makers) / total
    idle = percent(shares.idle(m))
    return f"; workers spend {percent(load)} in the dataset, {percent(collate)} collating and copying, {idle} waiting"
