"""What a loader did over a stretch of time, from two looks at its page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringbuf.telemetry import Event, Snapshot, WorkerSnapshot

__all__ = ["Maker", "Measures", "batch_times", "measure"]

WAITING = {"waiting for a task": "wait_task_ns", "waiting for a slot": "wait_slot_ns"}
MAKING = {"loading": "load_ns", "collating": "collate_ns"}
OF_WORKERS = WAITING | MAKING


@dataclass(frozen=True)
class Maker:
    """A worker, or the trainer itself where there are none. Times are in seconds of that stretch."""

    id: int
    batches: int
    load_s: float
    """In the dataset."""
    collate_s: float
    """Collating and copying."""
    wait_task_s: float
    wait_slot_s: float

    @property
    def busy_s(self) -> float:
        return self.load_s + self.collate_s

    @property
    def wait_s(self) -> float:
        return self.wait_task_s + self.wait_slot_s


@dataclass(frozen=True)
class Measures:
    """All that a verdict is made of. Times are in seconds, and sums over the stretch."""

    seconds: float
    """How long the stretch was."""
    batches: int
    """Handed out."""
    wait_s: float
    """The trainer's, in next()."""
    use_s: float
    """The trainer's, between two calls of next()."""
    workers: int
    """Processes; 0 where the trainer makes batches itself."""
    makers: tuple[Maker, ...]
    cores: float
    """Processors that trainer and workers may use together."""
    passes: int = 0
    """That were begun."""
    first_wait_s: float = 0.0
    """What of `wait_s` the first batches of passes may have taken: the longest waits, one for each pass that was begun."""
    state: str = "using"
    """What the trainer is at in the end."""
    state_s: float = 0.0
    """Since when."""
    copies: int = 0
    held: int = 0
    slots: int = 0
    restarts: int = 0
    errors: int = 0
    processor_s: float | None = None
    """What workers had of processors; None: not known."""
    delay_s: float | None = None
    """For how long they could have gone on, and had no processor."""
    trainer_processor_s: float | None = None
    typical_s: float | None = None
    """What half of the batches took no longer than to be made."""
    slow_s: float | None = None
    """What one of twenty batches took longer than."""
    alone: bool = False
    """Whether nobody works on the batches: what is measured is all that the loader can give."""
    first_batch_s: float | None = None
    """From the beginning of the first pass to its first batch; None where nobody was there to see it."""
    custom_collate: bool | None = None
    pull: bool | None = None
    """Whether any worker may make the next batch."""
    persistent: bool | None = None

    @property
    def busy_s(self) -> float:
        return sum(maker.busy_s for maker in self.makers)

    @property
    def made(self) -> int:
        return sum(maker.batches for maker in self.makers)

    @property
    def make_s(self) -> float | None:
        """What a batch takes one worker. Time in which it had no processor counts, too."""
        return self.busy_s / self.made if self.made else None

    @property
    def wait_share(self) -> float | None:
        """Of the trainer's time within passes; None where there was none."""
        within = self.wait_s + self.use_s
        return self.wait_s / within if within > 0 else None


def measure(before: Snapshot, after: Snapshot, *, cores: float, **more: object) -> Measures:
    """What came between two looks.

    more: fields of Measures that a page does not tell.
    """
    a, b = before.consumer, after.consumer
    earlier = {worker.id: worker for worker in before.workers}
    passes = max(0, after.passes - before.passes)
    wait_ns = _grown(before, after, "waiting", "wait_ns")
    waits = [max(0, new - old) for old, new in zip(a.waits, b.waits)]
    return Measures(
        seconds=max(0, after.taken_ns - before.taken_ns) / 1e9,
        batches=max(0, b.batches - a.batches),
        wait_s=wait_ns / 1e9,
        use_s=_grown(before, after, "using", "use_ns") / 1e9,
        workers=after.num_workers,
        makers=tuple(_maker(earlier.get(worker.id), worker, before, after) for worker in after.workers),
        cores=cores,
        passes=passes,
        first_wait_s=min(wait_ns, _longest_ns(waits, passes)) / 1e9,
        state=b.state,
        state_s=max(0, after.taken_ns - b.since_ns) / 1e9,
        copies=max(0, b.copies - a.copies),
        held=b.held,
        slots=after.slots,
        restarts=max(0, b.restarts - a.restarts),
        errors=max(0, b.errors - a.errors),
        **more,
    )


def batch_times(events: Iterable[Event]) -> tuple[float | None, float | None]:
    """What half of the batches, and what all but one of twenty, took no longer than to be made, in seconds. (None, None) of
    less than twenty batches."""
    took: dict[tuple[int | None, int, int | None], int] = {}
    for event in events:
        if event.kind in ("load", "collate") and event.worker is not None:
            key = event.worker, event.number, event.batch
            took[key] = took.get(key, 0) + event.duration_ns
    times = sorted(took.values())
    if len(times) < 20:
        return None, None
    return times[len(times) // 2] / 1e9, times[len(times) * 19 // 20] / 1e9


def _maker(old: WorkerSnapshot | None, new: WorkerSnapshot, before: Snapshot, after: Snapshot) -> Maker:
    def grown_s(word: str) -> float:
        then = 0 if old is None else getattr(old, word) + _under_way(old, word, before.taken_ns)
        return max(0, getattr(new, word) + _under_way(new, word, after.taken_ns) - then) / 1e9

    return Maker(
        id=new.id,
        batches=new.batches - (0 if old is None else old.batches),
        load_s=grown_s("load_ns"),
        collate_s=grown_s("collate_ns"),
        wait_task_s=grown_s("wait_task_ns"),
        wait_slot_s=grown_s("wait_slot_ns"),
    )


def _under_way(worker: WorkerSnapshot, word: str, now_ns: int) -> int:
    """What it is at counts only when it is over: what there is of it so far. A look may be older than what it sees."""
    return max(0, now_ns - worker.since_ns) if OF_WORKERS.get(worker.state) == word else 0


def _grown(before: Snapshot, after: Snapshot, state: str, word: str) -> int:
    def so_far(snapshot: Snapshot) -> int:
        consumer = snapshot.consumer
        going_on = max(0, snapshot.taken_ns - consumer.since_ns) if consumer.state == state else 0
        return getattr(consumer, word) + going_on

    return max(0, so_far(after) - so_far(before))


def _longest_ns(waits: Sequence[int], number: int) -> int:
    """About how long so many waits were together, the longest of a histogram: place b has those between 2**(b-1) and 2**b."""
    total = 0
    for place in reversed(range(len(waits))):
        taken = min(number, waits[place])
        total += taken * 3 * (1 << place) // 4
        number -= taken
    return total
