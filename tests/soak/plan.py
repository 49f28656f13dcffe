"""What a round does, and which faults come when. From the seed alone, so that a failure can be repeated."""

from __future__ import annotations

import random
import signal
from typing import NamedTuple

KILLS = [signal.SIGKILL] * 7 + [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS]
PAGE = 4096


class Step(NamedTuple):
    """One thing that happens to one actor: kill, stop, continue, leave."""

    at_s: float
    act: str
    role: str
    place: int
    signal: int = 0

    def __str__(self) -> str:
        how = f" by {signal.Signals(self.signal).name}" if self.signal else ""
        return f"{self.at_s:.4f} s: {self.act} {self.role} {self.place}{how}"


class Round(NamedTuple):
    """A ring, who uses it, and what happens to them."""

    seed: int
    seconds: float
    mode: str
    full: str
    redeliver: bool
    named: bool
    frames: bool
    slots: int
    data_bytes: int
    producers: int
    takers: int
    hold: int
    """Messages that a taker looks at while it takes another one, at most."""
    ending: str
    """"finish": the ring is finished; "drain": takers leave when nothing comes any more."""
    leftover: bool
    """Whether a dead ring of the name is in the way (named rings)."""
    steps: tuple[Step, ...]

    @property
    def taker(self) -> str:
        return "reader" if self.mode == "broadcast" else "consumer"

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self._asdict().items() if key != "steps")
        return "\n    ".join([options, *map(str, self.steps)])


def plan_round(kind: str, seed: str, seconds: float) -> Round:
    """kind: "queue", "overwrite" or "broadcast"."""
    draw = random.Random(seed)
    mode = "broadcast" if kind == "broadcast" else "queue"
    named = draw.random() < 0.5
    slots = draw.choice([1, 2, 3, 4, 8, 16]) if kind != "broadcast" else draw.choice([2, 3, 4, 8, 16])
    producers, takers = draw.randint(1, 3), draw.randint(1, 3)
    length = seconds * draw.uniform(0.5, 1.0)
    roles = [("producer", place) for place in range(producers)]
    roles += [("reader" if mode == "broadcast" else "consumer", place) for place in range(takers)]
    return Round(
        seed=draw.getrandbits(32),
        seconds=length,
        mode=mode,
        full="overwrite" if kind == "overwrite" else "block",
        redeliver=draw.random() < 0.6,
        named=named,
        frames=draw.random() < 0.6,
        slots=slots,
        data_bytes=draw.choice([64, 1000, PAGE, 20_000, 100_000]),
        producers=producers,
        takers=takers,
        hold=min(4, (slots - 1) // takers),  # who together hold all slots would wait for each other
        ending=draw.choice(["finish", "drain"]),
        leftover=named and draw.random() < 0.3,
        steps=tuple(sorted(_steps(draw, roles, length))),
    )


def _steps(draw: random.Random, roles: list[tuple[str, int]], length: float) -> list[Step]:
    steps, at = [], 0.0
    while (at := at + draw.expovariate(6.0)) < length:
        steps += _fault(draw, roles, at)
    return steps


def _fault(draw: random.Random, roles: list[tuple[str, int]], at: float) -> list[Step]:
    """One fault, now and then a double one."""
    first, second, third = (draw.choice(roles) for _ in range(3))

    def kill(at_s: float, whom: tuple[str, int]) -> Step:
        return Step(at_s, "kill", *whom, draw.choice(KILLS))

    def stop(whom: tuple[str, int], seconds: float) -> list[Step]:
        return [Step(at, "stop", *whom), Step(at + seconds, "continue", *whom)]

    kind = draw.choices(
        ["kill", "two", "stop", "kill stopped", "reaper", "burst", "leave", "all"], [40, 10, 15, 5, 10, 5, 12, 3]
    )[0]
    if kind == "kill":
        return [kill(at, first)]
    if kind == "two":
        return [kill(at, first), kill(at, second)]
    if kind == "stop":
        return stop(first, draw.uniform(0.01, 0.6))
    if kind == "kill stopped":
        return [Step(at, "stop", *first), kill(at + draw.uniform(0.0, 0.2), first)]
    if kind == "reaper":  # one stands still, one dies, and who waits and may be about to look after it dies too
        return [
            *stop(first, draw.uniform(0.1, 0.4)),
            kill(at + 0.001, second),
            kill(at + 0.001 + draw.uniform(0.0, 0.12), third),
        ]
    if kind == "burst":
        return [kill(at + draw.uniform(0.0, 0.02), draw.choice(roles)) for _ in range(6)]
    if kind == "leave":
        return [Step(at, "leave", *first)]
    return [kill(at, whom) for whom in roles]
