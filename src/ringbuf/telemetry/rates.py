"""What two looks at a loader make: rates, and shares of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ringbuf.telemetry.snapshot import ConsumerSnapshot, Snapshot, WorkerSnapshot

__all__ = ["Rates", "WorkerRates", "between"]

LOAD, COLLATE, TASK, SLOT = range(4)
OPEN = {"loading": LOAD, "collating": COLLATE, "waiting for a task": TASK, "waiting for a slot": SLOT}
NOTHING = (0.0,) * 4


class WorkerRates(NamedTuple):
    """Of one worker. Shares are of the whole stretch, and include what is under way and not in the sums yet.

    load_s, collate_s: for one batch, of those that were made in it; None where none was.
    """

    id: int
    batches_per_s: float
    samples_per_s: float
    bytes_per_s: float
    load_s: float | None
    collate_s: float | None
    load: float
    collate: float
    wait_task: float
    wait_slot: float


class Rates(NamedTuple):
    """Of the trainer, and of each worker.

    wait, use: shares of the stretch: in next(), and between two calls of next(); what is left was between passes.
    waits: how many calls took how long, as ConsumerSnapshot.waits has it.
    copies: batches that were handed out as private copies.
    """

    seconds: float
    batches: int
    batches_per_s: float
    bytes_per_s: float
    wait: float
    use: float
    waits: tuple[int, ...]
    copies: int
    workers: tuple[WorkerRates, ...]

    @property
    def waited(self) -> float:
        """The share of its time in passes that the trainer was in next()."""
        return self.wait / (self.wait + self.use) if self.wait + self.use > 0 else 0.0


def between(before: Snapshot | None, after: Snapshot) -> Rates:
    """Of the stretch from one look to the other; None: since the loader began.

    A stretch of no length has rates of 0.
    """
    began_ns = after.started_ns if before is None else before.taken_ns
    seconds = max(0.0, (after.taken_ns - began_ns) / 1e9)
    earlier = {} if before is None else {worker.id: worker for worker in before.workers}
    was, now = None if before is None else before.consumer, after.consumer
    wait_s, use_s = _gained(_consumer_s(before), _consumer_s(after), seconds)
    batches = _more(was, now, "batches")
    return Rates(
        seconds=seconds,
        batches=batches,
        batches_per_s=_per(batches, seconds),
        bytes_per_s=_per(_more(was, now, "nbytes"), seconds),
        wait=_per(wait_s, seconds),
        use=_per(use_s, seconds),
        waits=tuple(max(0, count - old) for count, old in zip(now.waits, was.waits if was else (0,) * len(now.waits))),
        copies=_more(was, now, "copies"),
        workers=tuple(
            _worker(before, earlier.get(worker.id), after, worker, seconds) for worker in after.workers
        ),
    )


def _worker(
    before: Snapshot | None, was: WorkerSnapshot | None, after: Snapshot, now: WorkerSnapshot, seconds: float
) -> WorkerRates:
    earlier_s = _worker_s(was, before.taken_ns) if before and was else NOTHING
    shares = [_per(part_s, seconds) for part_s in _gained(earlier_s, _worker_s(now, after.taken_ns), seconds)]
    batches = _more(was, now, "batches")
    return WorkerRates(
        id=now.id,
        batches_per_s=_per(batches, seconds),
        samples_per_s=_per(_more(was, now, "samples"), seconds),
        bytes_per_s=_per(_more(was, now, "nbytes"), seconds),
        load_s=_more(was, now, "load_ns") / batches / 1e9 if batches else None,
        collate_s=_more(was, now, "collate_ns") / batches / 1e9 if batches else None,
        load=shares[LOAD],
        collate=shares[COLLATE],
        wait_task=shares[TASK],
        wait_slot=shares[SLOT],
    )


def _consumer_s(snapshot: Snapshot | None) -> Sequence[float]:
    """(waited, used), with what is under way."""
    if snapshot is None:
        return 0.0, 0.0
    consumer = snapshot.consumer
    open_s = max(0.0, (snapshot.taken_ns - consumer.since_ns) / 1e9)
    waiting, using = consumer.state == "waiting", consumer.state == "using"
    return consumer.wait_ns / 1e9 + open_s * waiting, consumer.use_ns / 1e9 + open_s * using


def _worker_s(worker: WorkerSnapshot, taken_ns: int) -> Sequence[float]:
    sums = [ns / 1e9 for ns in (worker.load_ns, worker.collate_ns, worker.wait_task_ns, worker.wait_slot_ns)]
    if worker.state in OPEN:
        sums[OPEN[worker.state]] += max(0.0, (taken_ns - worker.since_ns) / 1e9)
    return sums


def _gained(before_s: Sequence[float], after_s: Sequence[float], seconds: float) -> list[float]:
    """How much of the stretch each took, all together no more than it was long.

    What was under way counts as what it then was called, and may be divided otherwise when it ends.
    """
    gained = [max(0.0, after - before) for before, after in zip(before_s, after_s)]
    excess = sum(gained) / seconds if seconds > 0 else 0.0
    return [part / excess for part in gained] if excess > 1 else gained


def _more(
    was: ConsumerSnapshot | WorkerSnapshot | None, now: ConsumerSnapshot | WorkerSnapshot, what: str
) -> int:
    return max(0, getattr(now, what) - (getattr(was, what) if was is not None else 0))


def _per(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0
