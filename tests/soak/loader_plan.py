"""What a round of the loader arena does, from the seed alone."""

from __future__ import annotations

import random
import signal
from typing import NamedTuple

from .plan import KILLS


class Fault(NamedTuple):
    """What happens to workers. Once batch `at` was received, and `delay_s` later."""

    at: int
    delay_s: float
    act: str  # kill, stop
    worker: int
    signal: int = 0
    seconds: float = 0.0  # of a stop


class Pass(NamedTuple):
    break_at: int | None
    close_at: int | None
    """When to close the loader, in the middle, with batches in hand."""
    faults: tuple[Fault, ...]


class LoaderRound(NamedTuple):
    iterable: bool
    method: str
    workers: int
    batch_size: int
    batches: int
    sample_bytes: int
    grow_every: int
    failing: frozenset[int]
    persistent: bool
    in_order: bool
    prefetch: int
    hold: int
    """Batches that are kept, at most."""
    sub_views: bool
    timeout: float
    pull: bool
    restart: bool
    """Whether dead workers are replaced, and nothing else may tell of them."""
    passes: tuple[Pass, ...]
    kill_main_s: float | None
    """Instead of all that: the loader is in a process of its own, which is killed after so many seconds."""

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self._asdict().items() if key != "passes")
        return "\n    ".join([options, *map(str, self.passes)])


def plan_loader_round(seed: str) -> LoaderRound:
    draw = random.Random(seed)
    iterable = draw.random() < 0.3
    workers, batch_size, batches = draw.randint(1, 3), draw.randint(1, 6), draw.choice([10, 40, 40, 100])
    samples = batch_size * batches
    grow = not iterable and draw.random() < 0.2
    later = random.Random(f"{seed}/later")  # of what came later: older plans are as they were
    failing = frozenset(draw.sample(range(samples), draw.randint(1, 3)) if not iterable and draw.random() < 0.3 else ())
    return LoaderRound(
        iterable=iterable,
        method=draw.choices(["fork", "spawn"], [93, 7])[0],
        workers=workers,
        batch_size=batch_size,
        batches=batches,
        sample_bytes=draw.choice([10, 1000, 30_000]) if not grow else 500,
        grow_every=batch_size * draw.randint(2, 12) if grow else 0,
        failing=failing,
        persistent=draw.random() < 0.4,
        in_order=draw.random() < 0.75,
        prefetch=draw.randint(1, 4),
        hold=draw.choice([0, 0, 1, 2, 5, 12, 40]),
        sub_views=draw.random() < 0.5,
        timeout=draw.choice([0, 0, 0, 0.05]),
        pull=not iterable and later.random() < 0.4,
        restart=later.random() < 0.5,
        passes=tuple(_pass(draw, workers, batches) for _ in range(draw.randint(1, 3))),
        kill_main_s=draw.uniform(0.0, 0.4) if draw.random() < 0.15 else None,
    )


def _pass(draw: random.Random, workers: int, batches: int) -> Pass:
    def sometimes(chance: float) -> int | None:
        return draw.randrange(batches) if draw.random() < chance else None

    faults = []
    for _ in range(draw.choices([0, 1, 2], [25, 50, 25])[0]):
        at, delay, worker = draw.randrange(batches), draw.choice([0.0, draw.uniform(0, 0.02)]), draw.randrange(workers)
        if draw.random() < 0.65:
            faults.append(Fault(at, delay, "kill", worker, draw.choice(KILLS)))
        else:
            faults.append(Fault(at, delay, "stop", worker, signal.SIGSTOP, draw.uniform(0.01, 0.4)))
    return Pass(sometimes(0.15), sometimes(0.1), tuple(sorted(faults)))
