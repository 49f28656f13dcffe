"""What producers, consumers and readers do, until they are told to leave or are killed.

Every step is written down before and after, see journal.py: what is found there when a process is dead says exactly what
may have become of the message it had in hand.
"""

from __future__ import annotations

import random
import time
from typing import Any

from ringbuf import Closed, Empty, Full, RingBuffer, attach
from ringbuf._core import Ring

from . import journal
from .journal import (
    ABORTING,
    CLAIMING,
    COMMITTING,
    DONE,
    DRAINED,
    HOLDING,
    IDLE,
    INTENT,
    LEAVE,
    LOOKS,
    MOVED,
    PHASE,
    PUTTING,
    RELEASED,
    RELEASING,
    REST,
    TAKING,
    WRITING,
    Receipts,
    Rows,
)
from .payload import ABORTED, NUMBER, Payload, scribble
from .plan import Round
from .troupe import Actor

WAIT_S = 0.2  # a wait that ends by itself, after which an actor sees what it was told
REST_S = 0.3  # for how long nothing must come, once producers are gone, for a taker to leave


class Stage:
    """What all actors of a round share."""

    def __init__(self, plan: Round, ring: RingBuffer, rows: Rows):
        self.plan, self.ring, self.rows, self.name = plan, ring, rows, ring.name
        self.payload = Payload(plan.seed, plan.data_bytes)


def reach(stage: Stage, draw: random.Random) -> RingBuffer:
    """The ring, by one of the ways that lead to it."""
    ways = ["inherit", "descriptor"] + ["attach"] * (2 if stage.plan.named else 0)
    way = draw.choice(ways)
    if way == "attach":
        return attach(stage.name, timeout=5.0)
    if way == "descriptor":
        return RingBuffer._attached(Ring.attach_fd(stage.ring._core.fileno()))
    return stage.ring


# ---- producers


def produce(stage: Stage, actor: Actor) -> None:
    draw = random.Random(f"{stage.plan.seed}/{actor.number}")
    row = stage.rows.row(actor.number)
    ring = reach(stage, draw)
    publish = _publish_frame if stage.plan.frames else _publish_raw
    number = aborted = 0
    while not row[LEAVE]:
        for _ in range(draw.choice([1, 1, 3, 20, 100])):
            if row[LEAVE]:
                break
            abort = draw.random() < 0.03
            identity = actor.number << 32 | (ABORTED | aborted + 1 if abort else number + 1)
            row[INTENT] = identity
            row[LOOKS] += 1
            # Without a limit too: takers are there until producers have left.
            wish = {"tag": identity, "timeout": draw.choice([WAIT_S, WAIT_S, None])}
            try:
                publish(stage, ring, row, wish, identity, abort)
            except Full:
                row[PHASE] = IDLE
                continue
            if abort:
                aborted += 1
            else:
                number += 1
                row[DONE] = number
            row[PHASE] = IDLE
        if draw.random() < 0.3:
            time.sleep(draw.uniform(0, 0.003))
    ring.close()


class _Abort(Exception):
    pass


def _publish_frame(stage: Stage, ring: RingBuffer, row: Any, wish: dict, identity: int, abort: bool) -> None:
    payload = stage.payload
    if not abort and identity % 2:
        tree = payload.tree(identity, payload.data(identity).copy())
        row[PHASE] = PUTTING
        ring.put(tree, **wish)
        return
    row[PHASE] = CLAIMING
    try:
        with ring.reserve(**wish) as slot:
            row[PHASE] = WRITING
            slot.value = payload.tree(identity, slot.empty(payload.length(identity), "u1"))
            if abort:
                row[PHASE] = ABORTING
                raise _Abort
            row[PHASE] = COMMITTING
    except _Abort:
        pass


def _publish_raw(stage: Stage, ring: RingBuffer, row: Any, wish: dict, identity: int, abort: bool) -> None:
    ring._write_only(**wish)
    row[PHASE] = CLAIMING
    claim = ring._core.claim(**wish)
    row[PHASE] = WRITING
    nbytes = stage.payload.write(claim, identity)
    if abort:
        row[PHASE] = ABORTING
        claim.abort()
    else:
        row[PHASE] = COMMITTING
        claim.commit(nbytes)


# ---- takers


class Held:
    """A message in hand."""

    def __init__(self, entry: int, identity: int, message: Any):
        self.entry, self.identity, self.message = entry, identity, message


def take(stage: Stage, actor: Actor, receipts: Receipts) -> None:
    """A consumer's or a reader's life."""
    plan, payload = stage.plan, stage.payload
    draw = random.Random(f"{plan.seed}/{actor.number}")
    row = stage.rows.row(actor.number)
    ring = reach(stage, draw)
    if plan.mode == "broadcast":
        ring.subscribe()
        _note_what_came_before(stage, receipts)
    get = ring.get if plan.frames else ring._core.take
    check = payload.check_tree if plan.frames else payload.check_raw
    spoil = plan.mode == "queue" and not plan.redeliver
    held: list[Held] = []
    entry = 0

    def let_go() -> None:
        one = held.pop(draw.randrange(len(held)))
        if check(one.message) != one.identity:
            raise AssertionError(f"the message under a view of {one.identity:#x} was exchanged")
        receipts.fate[one.entry] = RELEASING
        if spoil:
            scribble(one.message)
        one.message = None
        receipts.fate[one.entry] = RELEASED

    finished = False
    while not row[LEAVE] and entry < journal.ENTRIES:
        row[PHASE] = TAKING
        row[LOOKS] += 1
        try:
            message = get(timeout=_patience(stage, row, draw))
        except Empty:
            row[PHASE] = HOLDING
            if row[REST]:
                finished = True
                break
            continue
        except Closed:
            finished = True
            break
        identity = check(message)
        receipts.ids[entry] = identity
        row[PHASE] = HOLDING
        held.append(Held(entry, identity, message))
        message = None
        entry += 1
        row[MOVED] = entry
        while len(held) > draw.randint(0, plan.hold):
            let_go()
        if draw.random() < 0.01:
            time.sleep(draw.uniform(0, 0.01))
    while held:
        let_go()
    ring.close()
    row[PHASE] = DRAINED if finished else IDLE


def _patience(stage: Stage, row: Any, draw: random.Random) -> float | None:
    if row[REST]:
        return REST_S
    if stage.plan.ending == "finish" and draw.random() < 0.3:
        return None  # the end of the ring will end it
    return 0.0 if draw.random() < 0.1 else WAIT_S


def _note_what_came_before(stage: Stage, receipts: Receipts) -> None:
    """What is written down now as intended may have been published before we came; all that follows is owed to us."""
    for number in range(stage.rows.rows):
        row = stage.rows.row(number)
        intent = row[INTENT]
        if intent:
            receipts.before[number] = row[DONE] if intent & ABORTED else intent & NUMBER
