"""Who holds up a loader, in one sentence, from shares of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ringbuf.cli.units import age, percent
from ringbuf.telemetry.rates import Rates, WorkerRates
from ringbuf.telemetry.snapshot import Snapshot, WorkerSnapshot

__all__ = ["Bottleneck", "find", "long_at_work"]

WORTH_NAMING = 0.1  # less of the time is no bottleneck
MOST = 0.9
LONG_S = 5.0  # for less than this nobody is said to hang
UNUSUAL = 3.0  # times as long as usual
AT_WORK = ("loading", "collating", "waiting for a slot")
OUT_OF_WORK = ("dead", "stopped")


class Bottleneck(NamedTuple):
    """kind: "start", "idle", "stuck", "trainer", "workers", "worker", "uneven" or "balanced". worker: the one that it names."""

    kind: str
    text: str
    worker: int | None = None


def find(snapshot: Snapshot, rates: Rates, since: str, *, stopped: bool = False) -> Bottleneck:
    """Name what the others wait for, from the last look and from the stretch before it.

    since: what that stretch is called: "the last 13 s". stopped: whether the trainer's process is.
    """
    if stopped:
        return Bottleneck("stuck", "the trainer: its process is stopped")
    trainer = snapshot.consumer
    state_s = _since_s(snapshot, trainer.since_ns)
    in_pass = rates.wait + rates.use
    if trainer.state not in ("waiting", "using") and (in_pass == 0 or state_s >= LONG_S):
        return Bottleneck("idle", f"no pass is under way, for {age(state_s)}")
    long = _is_long(state_s, _usual_s(snapshot))
    if trainer.state == "waiting" and (trainer.batches == 0 or long):
        return _waited_for(snapshot, state_s)
    if trainer.state == "using" and long:
        return Bottleneck("trainer", f"the trainer: it has not asked for a batch for {age(state_s)}")
    if in_pass == 0:
        return Bottleneck("start", "not known yet: the pass has just begun")
    if snapshot.num_workers == 0:
        return _alone(rates)
    return _of_shares(rates, since)


def long_at_work(snapshot: Snapshot) -> list[tuple[WorkerSnapshot, float]]:
    """Workers that are at one batch for unusually long, with the seconds; the longest first."""
    found = []
    for worker in snapshot.workers:
        at_it_s = _since_s(snapshot, worker.since_ns)
        usual_s = (worker.load_ns + worker.collate_ns) / worker.batches / 1e9 if worker.batches else 0.0
        if worker.state in AT_WORK and _is_long(at_it_s, usual_s):
            found.append((worker, at_it_s))
    return sorted(found, key=lambda one: -one[1])


def _waited_for(snapshot: Snapshot, waited_s: float) -> Bottleneck:
    """What the trainer waits for, of which there was not one yet, or for unusually long."""
    first = snapshot.consumer.batches == 0
    what = "the first batch" if first else "a batch"
    kind = "start" if first and waited_s < LONG_S else "stuck"
    if snapshot.num_workers == 0:
        return Bottleneck(kind, f"the trainer makes {what} itself, for {age(waited_s)}")
    for worker in snapshot.workers:
        if worker.state in OUT_OF_WORK:
            text = f"worker {worker.id}: its process {worker.pid} is {worker.state}, and the trainer waits for {what}"
            return Bottleneck("stuck", text, worker.id)
    at_work = [worker for worker in snapshot.workers if worker.state in AT_WORK]
    if kind == "start" or not at_work:
        nobody = "" if at_work else ", and no worker is at work"
        return Bottleneck(kind, f"the trainer waits for {what}, for {age(waited_s)}{nobody}")
    next_one = (snapshot.consumer.batch or 0) + 1
    slowest = min(at_work, key=lambda worker: (worker.batch != next_one, worker.since_ns))
    at_it_s = _since_s(snapshot, slowest.since_ns)
    batch = "" if slowest.batch is None else f" batch {slowest.batch}"
    doing = f"worker {slowest.id}, process {slowest.pid}: {slowest.state}{batch} for {age(at_it_s)}"
    return Bottleneck(kind, f"{doing}; the trainer waits for {what}, for {age(waited_s)}", slowest.id)


def _alone(rates: Rates) -> Bottleneck:
    """Without workers."""
    made = f"making batches takes {percent(rates.waited)} of the trainer's time"
    if rates.waited < WORTH_NAMING:
        return Bottleneck("balanced", f"balanced: {made}")
    return Bottleneck("workers", f"no workers: {made}{_spent(rates.workers)}")


def _of_shares(rates: Rates, since: str) -> Bottleneck:
    between = max(0.0, 1 - rates.wait - rates.use)
    idle = [_idle(worker, between) for worker in rates.workers]
    mean = sum(idle) / len(idle) if idle else 0.0
    trainer = f"the trainer waited {percent(rates.waited)} of {since}"
    workers = f"the workers {percent(mean)} for tasks"
    if max(rates.waited, mean) < WORTH_NAMING:
        return Bottleneck("balanced", f"balanced: {trainer}, {workers}")
    if rates.waited < WORTH_NAMING:
        return Bottleneck("trainer", f"the trainer: the workers waited {percent(mean)} of {since} for it to take batches")
    busiest = min(range(len(idle)), key=idle.__getitem__, default=0)
    others = [share for at, share in enumerate(idle) if at != busiest]
    if others and idle[busiest] < 1 - MOST and min(others) >= 0.5:
        slow = rates.workers[busiest]
        others_wait = f"the others {percent(sum(others) / len(others))} for tasks"
        return Bottleneck("worker", f"worker {slow.id}: {trainer}, {others_wait}{_spent([slow])}", slow.id)
    if mean >= 0.5:
        return Bottleneck("uneven", f"uneven: {trainer}, {workers}: some batches take much longer than others")
    return Bottleneck("workers", f"the workers: {trainer}{_spent(rates.workers)}")


def _spent(workers: Sequence[WorkerRates]) -> str:
    """What most of the time at work goes into."""
    load, collate = sum(worker.load for worker in workers), sum(worker.collate for worker in workers)
    slot = sum(worker.wait_slot for worker in workers)
    whole = load + collate + slot
    if whole <= 0:
        return ""
    if slot > max(load, collate):
        return "; there are too few slots"
    share, what = max((load, "in the dataset"), (collate, "collating"))
    return f"; {percent(share / whole)} of {'their' if len(workers) > 1 else 'its'} work is {what}"


def _idle(worker: WorkerRates, between: float) -> float:
    """The share of its time in passes that a worker waited for tasks.

    between: the share of the stretch that was between passes, in which it could not but wait. It may also have come later.
    """
    whole = worker.load + worker.collate + worker.wait_task + worker.wait_slot - between
    return min(1.0, max(0.0, worker.wait_task - between) / whole) if whole > 0 else 0.0


def _usual_s(snapshot: Snapshot) -> float:
    """From one batch to the next."""
    trainer = snapshot.consumer
    return (trainer.wait_ns + trainer.use_ns) / trainer.batches / 1e9 if trainer.batches else 0.0


def _is_long(seconds: float, usual_s: float) -> bool:
    return seconds >= max(LONG_S, UNUSUAL * usual_s)


def _since_s(snapshot: Snapshot, since_ns: int) -> float:
    return max(0.0, (snapshot.taken_ns - since_ns) / 1e9)
