"""The negative control: the harness of the soak over other queues, to show that it can see a hang.

    python -m tests.soak.control --over multiprocessing --kills 300

Producers and consumers put and get in tight loops; one of them is killed at a random moment and replaced, again and
again. After each kill the survivors must go on: starting, killing, burying and the clock of a stall are those of the soak
(troupe.py, progress.py, journal.py). A queue whose lock or pipe the dead one has taken along moves nothing any more.
"""

from __future__ import annotations

import argparse
import queue
import random
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from .journal import LOOKS, MOVED, ROWS, Rows
from .progress import Stall
from .sandbox import contained
from .troupe import Actor, Troupe

SLOTS = 4
MESSAGE = bytes(range(256)) * 64
WAIT_S = 0.2
HANGS_S = 3.0  # nothing has moved for so long although producers and consumers live: ours may be held up for 1 s
AFTER_KILL = SLOTS + 1  # messages that must move until the next kill
CALM_MESSAGES = 3000  # where nobody is killed at all
CAST = (("producer", 0), ("producer", 1), ("consumer", 0), ("consumer", 1))
SKIPPED = 77


class Adapter(NamedTuple):
    """put and get of a queue, with a timeout in seconds; both raise queue.Full, queue.Empty."""

    put: Callable[[bytes, float], Any]
    get: Callable[[float], Any]


class Unavailable(Exception):
    """This queue is not installed."""


def over_ringbuf() -> Adapter:
    from ringbuf import RingBuffer

    ring = RingBuffer(SLOTS, len(MESSAGE) + 64)
    return Adapter(lambda message, wait: ring.put(message, timeout=wait), lambda wait: ring.get(timeout=wait))


def over_multiprocessing() -> Adapter:
    import multiprocessing

    other = multiprocessing.get_context("fork").Queue(SLOTS)
    return Adapter(lambda message, wait: other.put(message, True, wait), lambda wait: other.get(True, wait))


def over_faster_fifo() -> Adapter:
    try:
        import faster_fifo
        import faster_fifo_reduction  # noqa: F401  registers how it is pickled
    except ImportError as error:
        raise Unavailable(f"faster-fifo is not installed, or has no wheel for this Python: {error}") from None
    other = faster_fifo.Queue(max_size_bytes=SLOTS * (len(MESSAGE) + 1024))
    return Adapter(lambda message, wait: other.put(message, True, wait), lambda wait: other.get(True, wait))


QUEUES = {"ringbuf": over_ringbuf, "multiprocessing": over_multiprocessing, "faster-fifo": over_faster_fifo}


class Outcome(NamedTuple):
    kills: int
    hung: bool
    messages: int
    killed: str
    """The role of the last that was killed."""


def hammer(adapter: Adapter, rows: Rows, role: str, actor: Actor) -> None:
    """An actor's life: put, or get, and count."""
    row = rows.row(actor.number)
    while True:
        row[LOOKS] += 1
        try:
            if role == "producer":
                adapter.put(MESSAGE, WAIT_S)
            elif adapter.get(WAIT_S) == MESSAGE:
                row[MOVED] += 1
            else:
                raise AssertionError("a message was damaged")
        except (queue.Full, queue.Empty):
            pass


def kill_until_it_hangs(adapter: Adapter, seed: int, most_kills: int, within_s: float) -> Outcome:
    """Kill at most so many, and stop at the first hang."""
    draw = random.Random(seed)
    rows, troupe = Rows(), Troupe()
    kills, killed, hung = 0, "nobody", False
    until = time.monotonic() + within_s

    def cast(role: str, place: int) -> None:
        troupe.start(role, place, lambda actor: hammer(adapter, rows, role, actor))

    def goes_on(messages: int) -> bool:
        """Whether so many more messages come through."""
        stall, target = Stall(), rows.total(len(troupe.actors)) + messages
        while (moved := rows.total(len(troupe.actors))) < target:
            if stall.look(moved) > HANGS_S:
                return False
            time.sleep(0.001)
        return True

    try:
        for role, place in CAST:
            cast(role, place)
        if not goes_on(AFTER_KILL):
            raise AssertionError("it hangs before anybody was killed")
        hung = most_kills == 0 and not goes_on(CALM_MESSAGES)
        while not hung and kills < most_kills and time.monotonic() < until and len(troupe.actors) < ROWS:
            time.sleep(draw.uniform(0, 0.003))
            victim = troupe.at(*draw.choice(CAST))
            troupe.kill(victim)
            kills, killed = kills + 1, victim.role
            while not troupe.bury():
                time.sleep(0.0002)
            hung = not goes_on(AFTER_KILL)  # the survivors, one of each kind at least
            cast(victim.role, victim.place)
        if over := troupe.bury():
            raise AssertionError(f"ended by itself: {over}")
        return Outcome(kills, hung, rows.total(len(troupe.actors)), killed)
    finally:
        troupe.end()
        rows.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.control", description=__doc__.splitlines()[0])
    parser.add_argument("--over", choices=QUEUES, required=True)
    parser.add_argument(
        "--kills", type=int, default=300, help="at most (300); 0: see that it works while nobody is killed"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="at most (60)")
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if arguments.seed is None else arguments.seed

    def run() -> int:
        try:
            adapter = QUEUES[arguments.over]()
        except Unavailable as reason:
            print(reason)
            return SKIPPED
        outcome = kill_until_it_hangs(adapter, seed, arguments.kills, arguments.seconds)
        verdict = f"hung after {outcome.kills} kills, of a {outcome.killed}" if outcome.hung else "did not hang"
        print(f"{arguments.over} {verdict} (seed {seed})")
        print(f"figures: kills={outcome.kills} hung={int(outcome.hung)} messages={outcome.messages}", flush=True)
        return 0

    return contained(run)


if __name__ == "__main__":
    sys.exit(main())
