"""How many workers would do, from what a batch costs.

Assumed is that samples take as long as they did, however many workers make them, and that each batch needs its time on a
processor: where samples wait for a disk or a network, more workers than processors help; where they compute, they do not.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["MARGIN", "MOST_WORKERS", "Forecast", "forecast"]

MARGIN = 1.1  # batches do not all take the same
MOST_WORKERS = 255  # that a loader can have
WORTH_IT = 1.05  # less of a gain is none
MOST_PER_CORE = 8  # where nothing says how many are enough


class Forecast(NamedTuple):
    """With so many workers."""

    workers: int
    wait_share: float
    """Of the trainer's time; 0: it would wait no more."""
    batches_per_s: float


def forecast(
    *, make_s: float, processor_s: float, trainer_s: float, use_s: float, cores: float, workers: int
) -> Forecast | None:
    """The least number of workers that gives what can be had; None where no other number helps.

    make_s: what a batch takes a worker, less the time in which it had no processor.
    processor_s: what of that is on a processor.
    trainer_s: what a batch costs the trainer of its processor.
    use_s: what the trainer does with a batch takes; 0: nothing, it takes all that there is.
    workers: as many as there are now; 0: the trainer makes batches itself.
    """
    if make_s <= 0:
        return None
    wanted = 1 / use_s if use_s > 0 else math.inf
    cost_s = processor_s + trainer_s
    at_most = cores / cost_s if cost_s > 0 else math.inf
    reached = min(wanted, at_most)
    needed = make_s * (MARGIN * wanted if wanted <= at_most else at_most)
    limit = MOST_WORKERS if use_s > 0 else max(1, min(MOST_WORKERS, int(MOST_PER_CORE * cores)))
    number = max(1, math.ceil(needed - 1e-9)) if needed < limit else limit
    reached = min(reached, number / make_s)
    now = min(workers / make_s, at_most, wanted) if workers else 1 / (make_s + use_s)
    if number <= workers or reached < now * WORTH_IT:
        return None
    return Forecast(number, max(0.0, 1 - reached * use_s) if use_s > 0 else 0.0, reached)
