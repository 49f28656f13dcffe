"""The account of a round: received and reported lost is what was sent. Sets of identities, not sums.

What is certain about a producer: it published the messages up to DONE, and nothing beyond its INTENT. For the one message
that a killed producer had in hand its PHASE says what may have become of it. What is certain about a taker: what
it wrote down, and of a killed one that it may have had one more message that it could not write down.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .journal import CLAIMING, COMMITTING, IDLE, PUTTING, RELEASED, TAKEN, TAKING, WRITING
from .payload import ABORTED, NUMBER
from .plan import Round


class Wrong(AssertionError):
    """The account does not come out."""


class Sent(NamedTuple):
    """What a producer's row says when it is over."""

    number: int
    pid: int
    killed: bool
    intent: int
    done: int
    phase: int

    @property
    def pending(self) -> int | None:
        """The identity that it had in hand when it was killed, if any."""
        finished = not self.intent & ABORTED and self.intent & NUMBER <= self.done
        return None if not self.killed or self.phase == IDLE or finished else self.intent


class Got(NamedTuple):
    """What a taker wrote down."""

    number: int
    killed: bool
    drained: bool
    phase: int
    ids: np.ndarray
    fates: np.ndarray
    before: np.ndarray


class Loss(NamedTuple):
    """As the ring reports it."""

    tag: int | None
    pid: int


def name_of(identity: int) -> str:
    aborted = " (aborted)" if identity & ABORTED else ""
    return f"{int(identity) >> 32}:{int(identity) & NUMBER}{aborted}"


def names(identities: Any) -> str:
    listed = [name_of(identity) for identity in list(identities)[:12]]
    return ", ".join(listed) + (f" ... ({len(identities)} in all)" if len(identities) > 12 else "")


def demand(condition: Any, text: str) -> None:
    if not condition:
        raise Wrong(text)


def check(plan: Round, sent: list[Sent], got: list[Got], losses: list[Loss], stats: Any) -> None:
    """Raise Wrong unless all of it comes out."""
    lost = check_losses(sent, losses, stats)
    received = np.concatenate([taker.ids for taker in got]) if got else np.zeros(0, np.int64)
    check_origin(sent, received, lost)
    if plan.mode == "broadcast":
        check_readers(sent, got, lost)
    else:
        check_queue(plan, sent, got, lost, stats)


# ---- losses


def check_losses(sent: list[Sent], losses: list[Loss], stats: Any) -> dict[int, int]:
    """What each killed producer lost: {its number: the identity}. At most the one message that it had in hand."""
    lost: dict[int, int] = {}
    for loss in losses:
        owner = next((one for one in reversed(sent) if one.pid == loss.pid), None)
        demand(owner, f"{loss} is of no producer of ours")
        demand(owner.killed, f"{loss} is reported, but {owner} was not killed")
        demand(owner.number not in lost, f"{owner} lost more than one message: {losses}")
        demand(owner.pending, f"{loss} is reported, but {owner} had nothing in hand")
        demand(loss.tag in (None, owner.pending), f"{loss} is not what {owner} had in hand, {name_of(owner.pending)}")
        demand(
            loss.tag is not None or owner.phase in (CLAIMING, PUTTING),
            f"{loss} has no tag, but {owner} had its slot already",
        )
        lost[owner.number] = owner.pending
    for one in sent:
        if one.pending and one.phase == WRITING:
            demand(one.number in lost, f"{one} died while it wrote {name_of(one.pending)}, and no loss was reported")
    demand(stats.lost == len(losses), f"the ring counts {stats.lost} losses and lists {len(losses)}")
    return lost


def check_origin(sent: list[Sent], received: np.ndarray, lost: dict[int, int]) -> None:
    """Nothing is received that was not sent, or that was lost or aborted."""
    highest = np.zeros(max((one.number for one in sent), default=0) + 1, np.int64)
    for one in sent:
        publishable = one.pending and one.phase in (COMMITTING, PUTTING) and not one.pending & ABORTED
        highest[one.number] = one.done + bool(publishable)
    whose, number = received >> 32, received & NUMBER
    strange = received[
        (received & ABORTED != 0) | (whose >= len(highest)) | (number > highest[np.minimum(whose, len(highest) - 1)])
    ]
    demand(not len(strange), f"received, but never published: {names(strange)}")
    both = np.intersect1d(received, list(lost.values()))
    demand(not len(both), f"received and reported lost: {names(both)}")


# ---- queue: each message to one taker


def check_queue(plan: Round, sent: list[Sent], got: list[Got], lost: dict[int, int], stats: Any) -> None:
    certain = _certain(sent)
    ids = np.concatenate([taker.ids for taker in got]) if got else np.zeros(0, np.int64)
    final = np.concatenate([taker.ids[taker.fates == RELEASED] for taker in got] or [ids])
    in_hand = np.concatenate([taker.ids[taker.fates == TAKEN] for taker in got if taker.killed] or [ids[:0]])
    handing_back = np.concatenate(
        [taker.ids[(taker.fates != TAKEN) & (taker.fates != RELEASED)] for taker in got if taker.killed] or [ids[:0]]
    )
    for taker in got:
        kept = taker.ids[taker.fates != RELEASED]
        demand(taker.killed or not len(kept), f"taker {taker.number} ended with {names(kept)} in hand")
    twice = _repeated(final)
    demand(not len(twice), f"received twice: {names(twice)}")
    if not plan.redeliver:
        again = _repeated(ids)
        demand(not len(again), f"received again although nothing is redelivered: {names(again)}")

    unwritten = sum(taker.killed and taker.phase == TAKING for taker in got)
    missing = np.setdiff1d(certain, ids)
    unfinished = np.setdiff1d(in_hand, final)
    unfinished = np.setdiff1d(unfinished, handing_back)
    kills = sum(one.killed for one in sent) + sum(taker.killed for taker in got)
    if plan.full == "block" and plan.redeliver:
        demand(not len(missing), f"published and never received: {names(missing)}")
        demand(not len(unfinished), f"not redelivered after its taker was killed: {names(unfinished)}")
        demand(stats.dropped == 0, f"the ring counts {stats.dropped} dropped")
    elif plan.full == "block":
        demand(len(missing) <= unwritten, f"{unwritten} may be dropped unseen, but these are missing: {names(missing)}")
        _demand_count("dropped", stats.dropped, len(missing) + len(unfinished), len(handing_back) + unwritten, kills)
    else:
        gone = len(missing) + (len(unfinished) if plan.redeliver else len(in_hand))
        _demand_count("dropped", stats.dropped, gone, len(handing_back) + kills, kills)
    if plan.full == "block" and plan.redeliver:
        for one in sent:
            if one.pending and one.phase == COMMITTING:
                demand(
                    one.number in lost or one.pending in ids,
                    f"{name_of(one.pending)}, which {one} was publishing, is neither received nor reported lost",
                )
    _demand_count("published", stats.published, len(certain), kills, kills)
    check_order(got, unwritten)


def check_order(got: list[Got], unwritten: int) -> None:
    """Each taker gets each producer's messages in order, but for those that come back from the dead."""
    back = np.concatenate(
        [taker.ids[taker.fates != RELEASED] for taker in got if taker.killed] or [np.zeros(0, np.int64)]
    )
    late = []
    for taker in got:
        ids = taker.ids[~np.isin(taker.ids, back)]
        for number in np.unique(ids >> 32):
            own = ids[ids >> 32 == number]
            late += own[1:][np.diff(own) <= 0].tolist()
    demand(len(late) <= unwritten, f"out of order: {names(late)}; only {unwritten} can be redeliveries")


# ---- broadcast: every message to every reader


def check_readers(sent: list[Sent], got: list[Got], lost: dict[int, int]) -> None:
    """Each reader gets each producer's messages without a gap, from the first that it is owed; to the last if it stayed."""
    by_number = {one.number: one for one in sent}
    for taker in got:
        whose = taker.ids >> 32
        for one in sent:
            numbers = taker.ids[whose == one.number] & NUMBER
            gaps = np.flatnonzero(np.diff(numbers) != 1)
            demand(
                not len(gaps),
                f"reader {taker.number} got {one.number}:{numbers[gaps[0]] if len(gaps) else 0} and then "
                f"{one.number}:{numbers[gaps[0] + 1] if len(gaps) else 0}",
            )
            owed = int(taker.before[one.number]) + 1
            if len(numbers):
                demand(
                    numbers[0] <= owed, f"reader {taker.number} was owed {one.number}:{owed}, got {numbers[0]} first"
                )
            if taker.drained and one.done >= owed:
                demand(
                    len(numbers) and numbers[-1] >= one.done,
                    f"reader {taker.number} stayed to the end, and of {one} it got "
                    f"{f'up to {numbers[-1]}' if len(numbers) else 'nothing'}; it was owed {owed} to {one.done}",
                )
    for one in by_number.values():
        if one.pending and one.phase in (COMMITTING, PUTTING) and not one.pending & ABORTED:
            entitled = [t for t in got if t.drained and t.before[one.number] < one.pending & NUMBER]
            verdicts = {one.pending in taker.ids for taker in entitled}
            demand(len(verdicts) < 2, f"{name_of(one.pending)} came to some of its readers only")
            if one.phase == COMMITTING and entitled:
                demand(True in verdicts or one.number in lost, f"{name_of(one.pending)} is neither received nor lost")


# ---- helpers


def _certain(sent: list[Sent]) -> np.ndarray:
    parts = [np.arange(1, one.done + 1, dtype=np.int64) + (one.number << 32) for one in sent]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _repeated(identities: np.ndarray) -> np.ndarray:
    values, counts = np.unique(identities, return_counts=True)
    return values[counts > 1]


def _demand_count(what: str, counted: int, known: int, above: int, below: int) -> None:
    """A killed process may not have counted its last act; and what a killed one did last may not be known to us."""
    demand(
        known - below <= counted <= known + above,
        f"the ring counts {counted} {what}; by the actors' accounts it is {known}, up to {above} more or {below} fewer",
    )
