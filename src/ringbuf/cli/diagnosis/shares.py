"""What follows from measures by arithmetic: shares of time, and what a batch costs."""

from __future__ import annotations

import math

from ringbuf.cli.diagnosis.forecast import MARGIN, Forecast, forecast
from ringbuf.cli.diagnosis.measures import Maker, Measures

__all__ = [
    "FINE", "SLOWER", "computes", "delay", "delayed", "idle", "known", "many_copies", "more_workers", "needed", "net_s",
    "others_compute", "processor_s", "share", "slow_worker", "threads", "worker_s",
]  # fmt: skip

FINE = 0.05  # of the trainer's time, spent waiting
COPIED = 0.1  # of the batches
SLOWER = 1.5  # than the others, or than usual
DELAYED = 0.15  # of the workers' work, without a processor
COMPUTING = 0.7  # of the workers' work, on a processor or without one
ALL = 0.8  # of the processors: more than that cannot be had of them


def worker_s(m: Measures) -> float:
    return sum(maker.busy_s + maker.wait_s for maker in m.makers)


def share(m: Measures, field: str) -> float:
    """Of the workers' time, what a field of theirs is."""
    total = worker_s(m)
    return sum(getattr(maker, field) for maker in m.makers) / total if total else 0.0


def idle(m: Measures) -> float:
    return share(m, "wait_s")


def slow_worker(m: Measures) -> tuple[Maker, float, float] | None:
    """The one that takes much longer than all others, what it takes, and what the slowest other one takes."""
    each = sorted(((maker.busy_s / maker.batches, maker.id, maker) for maker in m.makers if maker.batches >= 2), reverse=True)
    if len(each) < 2 or each[0][0] < SLOWER * each[1][0] or not each[1][0]:
        return None
    return each[0][2], each[0][0], each[1][0]


def known(m: Measures) -> bool:
    """Whether it is known what workers had of the processors."""
    return m.processor_s is not None


def delay(m: Measures) -> float:
    """The share of the workers' work in which they had no processor."""
    return min(1.0, (m.delay_s or 0.0) / m.busy_s) if m.busy_s else 0.0


def delayed(m: Measures) -> bool:
    return delay(m) >= DELAYED


def computes(m: Measures) -> bool:
    """Whether workers need a processor for most of their work, rather than wait for a disk or a network."""
    return m.processor_s is not None and m.processor_s + (m.delay_s or 0.0) >= COMPUTING * m.busy_s


def others_compute(m: Measures) -> bool:
    """Whether there was no processor for workers, and yet they and the trainer have not had all."""
    used = (m.processor_s or 0.0) + (m.trainer_processor_s or 0.0)
    return known(m) and delayed(m) and used < ALL * m.cores * m.seconds


def many_copies(m: Measures) -> bool:
    return m.workers > 0 and m.batches > 0 and m.copies >= COPIED * m.batches


def threads(m: Measures) -> float:
    """Processors that a worker keeps busy while it makes batches."""
    return (m.processor_s or 0.0) / m.busy_s if m.busy_s else 0.0


def net_s(m: Measures) -> float:
    """What a batch takes a worker that has a processor when it needs one."""
    return (m.make_s or 0.0) * (1 - delay(m))


def processor_s(m: Measures) -> float:
    """What of that is on a processor: all of it, where nothing is known."""
    if m.processor_s is None or not m.made:
        return net_s(m)
    return m.processor_s / m.made


def more_workers(m: Measures) -> Forecast | None:
    """How many more workers would do better; None where no more do, or nothing is known."""
    if not m.made or not m.batches:
        return None
    trainer_s = (m.trainer_processor_s or 0.0) / m.batches
    worker_s = processor_s(m)
    if not m.workers:  # one process does both: what is not known to be the one is the other
        trainer_s = max(0.0, trainer_s - worker_s)
    return forecast(
        make_s=net_s(m),
        processor_s=worker_s,
        trainer_s=trainer_s,
        use_s=0.0 if m.alone else m.use_s / m.batches,
        cores=m.cores,
        workers=m.workers,
    )


def needed(m: Measures) -> int | None:
    """Workers that could make batches as quickly as the trainer uses them; None where that is not known."""
    if not m.made or not m.batches or not m.use_s or m.alone:
        return None
    return max(1, math.ceil(MARGIN * net_s(m) * m.batches / m.use_s - 1e-9))
