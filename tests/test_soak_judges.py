"""What judges a soak notices what it is there for: each kind of wrong account, damage, stall and leak, made up here."""

import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest
from soak import accounting, leak, plan
from soak.accounting import Got, Loss, Sent, Wrong
from soak.journal import (
    ABORTING,
    CLAIMING,
    COMMITTING,
    DRAINED,
    HOLDING,
    IDLE,
    MOVED,
    PUTTING,
    RELEASED,
    RELEASING,
    ROWS,
    TAKEN,
    TAKING,
    WRITING,
    Rows,
)
from soak.loader_plan import plan_loader_round
from soak.payload import ABORTED, Damaged, Payload, scribble
from soak.progress import Stall
from soak.troupe import UNHAPPY, Troupe


def identity(producer, number):
    return producer << 32 | number


def sent(number=0, done=3, *, killed=False, intent=None, phase=IDLE):
    intent = identity(number, done) if intent is None else intent
    return Sent(number, 100 + number, killed, intent, done, phase)


def got(*numbers, producer=0, number=9, killed=False, phase=DRAINED, fates=None, before=0):
    ids = np.array([identity(producer, one) for one in numbers], np.int64)
    fates = np.array([RELEASED] * len(ids) if fates is None else fates, np.int64)
    return Got(number, killed, phase == DRAINED, phase, ids, fates, np.full(ROWS, before, np.int64))


def judge(
    producers, takers, losses=(), *, mode="queue", full="block", redeliver=True, dropped=0, lost=None, published=3
):
    game = plan.plan_round("queue", "0", 1.0)._replace(mode=mode, full=full, redeliver=redeliver)
    stats = SimpleNamespace(lost=len(losses) if lost is None else lost, dropped=dropped, published=published)
    accounting.check(game, producers, takers, list(losses), stats)


DYING = {"killed": True, "intent": identity(0, 4)}

RIGHT = {
    "all": ([sent()], [got(1, 2, 3)]),
    "shared out": ([sent()], [got(1, 3), got(2, number=8)]),
    "redelivered after its taker was killed": (
        [sent()],
        [got(1, killed=True, phase=HOLDING, fates=[TAKEN]), got(1, 2, 3, number=8)],
    ),
    "handed back and killed": ([sent()], [got(1, killed=True, phase=HOLDING, fates=[RELEASING]), got(2, 3, number=8)]),
    "the last was published": ([sent(**DYING, phase=COMMITTING)], [got(1, 2, 3, 4)]),
    "nothing was claimed yet": ([sent(**DYING, phase=CLAIMING)], [got(1, 2, 3)]),
}


@pytest.mark.parametrize("account", RIGHT.values(), ids=RIGHT.keys())
def test_what_may_be_is_accepted(account):
    judge(*account)


@pytest.mark.parametrize(
    ("phase", "tag"), [(WRITING, 4), (COMMITTING, 4), (PUTTING, 4), (CLAIMING, 4), (CLAIMING, None)]
)
def test_a_loss_is_accepted_where_one_may_be(phase, tag):
    judge([sent(**DYING, phase=phase)], [got(1, 2, 3)], [Loss(tag, 100)])


WRONG = {
    "never received": ([sent()], [got(1, 3)]),
    "received twice": ([sent()], [got(1, 2, 3), got(2, number=8)]),
    "out of order": ([sent()], [got(1, 3, 2)]),
    "never published": ([sent(done=2)], [got(1, 2, 3)]),
    "never published: 0:5": ([sent(**DYING, phase=COMMITTING)], [got(1, 2, 3, 5)]),
    "never published: 0:4": ([sent(**DYING, phase=WRITING)], [got(1, 2, 3, 4)], [Loss(4, 100)]),
    "in hand": ([sent()], [got(1, 2, 3, fates=[RELEASED, RELEASED, TAKEN])]),
    "not redelivered": ([sent()], [got(1, 2, 3, killed=True, phase=HOLDING, fates=[RELEASED, RELEASED, TAKEN])]),
    "no loss was reported": ([sent(**DYING, phase=WRITING)], [got(1, 2, 3)]),
    "neither received nor reported lost": ([sent(**DYING, phase=COMMITTING)], [got(1, 2, 3)]),
    "received and reported lost": ([sent(**DYING, phase=COMMITTING)], [got(1, 2, 3, 4)], [Loss(4, 100)]),
    "was not killed": ([sent()], [got(1, 2, 3)], [Loss(3, 100)]),
    "of no producer": ([sent()], [got(1, 2, 3)], [Loss(3, 7)]),
    "more than one": ([sent(**DYING, phase=WRITING)], [got(1, 2, 3)], [Loss(4, 100), Loss(None, 100)]),
    "nothing in hand": ([sent(killed=True, phase=IDLE)], [got(1, 2, 3)], [Loss(3, 100)]),
    "is not what": ([sent(**DYING, phase=WRITING)], [got(1, 2, 3)], [Loss(3, 100)]),
    "has no tag": ([sent(**DYING, phase=WRITING)], [got(1, 2, 3)], [Loss(None, 100)]),
}


@pytest.mark.parametrize(("words", "account"), WRONG.items(), ids=WRONG.keys())
def test_what_may_not_be_is_noticed(words, account):
    with pytest.raises(Wrong, match=words):
        judge(*account)


def test_counters_that_disagree_are_noticed():
    with pytest.raises(Wrong, match="counts 1 losses"):
        judge([sent()], [got(1, 2, 3)], lost=1)
    with pytest.raises(Wrong, match="counts 1 dropped"):
        judge([sent()], [got(1, 2, 3)], dropped=1)
    with pytest.raises(Wrong, match="counts 9 published"):
        judge([sent()], [got(1, 2, 3)], published=9)


def test_an_aborted_message_that_comes_is_noticed():
    aborted = sent(done=3, killed=True, intent=identity(0, ABORTED | 1), phase=ABORTING)
    judge([aborted], [got(1, 2, 3)])
    with pytest.raises(Wrong, match="aborted"):
        judge([aborted], [got(1, 2, 3, ABORTED | 1)])


def test_without_redelivery_a_message_comes_once_and_what_was_in_hand_is_dropped():
    dead = got(1, killed=True, phase=HOLDING, fates=[TAKEN])
    judge([sent()], [dead, got(2, 3, number=8)], redeliver=False, dropped=1)
    with pytest.raises(Wrong, match="received again"):
        judge([sent()], [dead, got(1, 2, 3, number=8)], redeliver=False)
    with pytest.raises(Wrong, match="may be dropped unseen"):
        judge([sent()], [dead, got(3, number=8)], redeliver=False, dropped=2)
    judge([sent()], [dead._replace(phase=TAKING), got(3, number=8)], redeliver=False, dropped=2)


def test_what_was_overwritten_is_counted():
    judge([sent()], [got(1, 3)], full="overwrite", dropped=1)
    with pytest.raises(Wrong, match="counts 0 dropped"):
        judge([sent()], [got(1, 3)], full="overwrite")


def test_a_reader_gets_everything_from_its_arrival_to_its_end():
    def broadcast(*takers, producer=None, **more):
        judge([producer or sent()], list(takers), mode="broadcast", **more)

    broadcast(got(1, 2, 3), got(2, 3, number=8, before=2))
    broadcast(got(1, 2, 3), got(3, number=8, before=2, phase=IDLE), got(number=7, phase=IDLE))
    for words, reader in {
        "and then": got(1, 3),
        "owed 0:1, got 2 first": got(2, 3),
        "stayed to the end": got(1, 2),
        "got nothing": got(),
    }.items():
        with pytest.raises(Wrong, match=words):
            broadcast(reader)
    dying = sent(**DYING, phase=COMMITTING)
    broadcast(got(1, 2, 3, 4), got(1, 2, 3, 4, number=8), producer=dying)
    with pytest.raises(Wrong, match="some of its readers only"):
        broadcast(got(1, 2, 3, 4), got(1, 2, 3, number=8), producer=dying)
    with pytest.raises(Wrong, match="neither received nor lost"):
        broadcast(got(1, 2, 3), producer=dying)


# ---- messages


@pytest.mark.parametrize("place", ["head", "data", "end"])
def test_one_changed_byte_in_a_message_is_noticed(place):
    payload = Payload(1, 100)
    one = next(number for number in range(1, 100) if payload.length(number) == 100)
    slot = bytearray(200)
    message = memoryview(slot)[: payload.write(slot, one)]
    assert payload.check_raw(message) == one
    slot[{"head": 0, "data": 40, "end": len(message) - 1}[place]] ^= 1
    with pytest.raises(Damaged):
        payload.check_raw(message)


def test_a_message_of_another_is_noticed_under_a_view():
    payload = Payload(1, 100)
    slot = np.zeros(payload.length(7), np.uint8)
    tree = payload.tree(7, slot)
    assert payload.check_tree(tree) == 7
    scribble(tree)
    with pytest.raises(Damaged, match=r"dbdb"):
        payload.check_tree(tree)


# ---- time, memory, processes


def test_a_stall_is_measured_but_for_what_is_excused():
    stall = Stall()
    stall.look(5)
    time.sleep(0.02)
    assert stall.look(5) > 0.01
    before = stall.seconds
    time.sleep(0.02)
    assert stall.look(5, excused=True) == before
    assert stall.look(6) == 0


def test_a_steady_rise_is_a_leak_and_a_single_step_is_none():
    def report(values):
        growth = leak.Growth(0)
        for at, value in enumerate(values):
            for line in growth.lines.values():
                line.add(at, value)
        return growth.report()

    assert leak.leaks("it", report(20_000 + 30 * at for at in range(50)))
    assert not leak.leaks("it", report(20_000 + (600 if at > 25 else 0) + at % 3 for at in range(50)))
    assert report(3 * at for at in range(10))["descriptors"]["slope"] == pytest.approx(3)


def test_who_ends_by_itself_is_told_from_who_was_killed():
    rows, troupe = Rows(4), Troupe()

    def count(actor):
        rows.row(actor.number)[MOVED] = 1
        signal.pause()

    try:
        victim, thief = troupe.start("producer", 0, count), troupe.start("producer", 1, lambda actor: 1 // 0)
        while rows.total(2) == 0 or len(troupe.alive) > 1:
            troupe.bury()
            time.sleep(0.001)
        assert thief.status == UNHAPPY
        troupe.stop(victim)
        assert troupe.any_stopped
        troupe.kill(victim)
        while not troupe.bury():
            time.sleep(0.001)
        assert victim.status == -signal.SIGKILL
        assert rows.total(2) == 1, "what it wrote down is there"
    finally:
        troupe.end()
        rows.close()


def test_a_seed_makes_the_same_plan_each_time():
    assert plan.plan_round("queue", "5/1", 4.0) == plan.plan_round("queue", "5/1", 4.0)
    assert plan.plan_round("queue", "5/1", 4.0) != plan.plan_round("queue", "5/2", 4.0)
    assert plan_loader_round("5/1") == plan_loader_round("5/1")
