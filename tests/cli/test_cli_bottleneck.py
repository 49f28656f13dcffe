"""What two looks at a loader make, and whom that blames."""

import re

import pytest

from ringbuf.cli import bottleneck
from ringbuf.telemetry.rates import between
from ringbuf.telemetry.snapshot import ConsumerSnapshot, Snapshot, WorkerSnapshot

S = 1_000_000_000
NOTHING = (0.0, 0.0, 0.0, 0.0)


def trainer(state="using", since_s=0.0, batches=0, wait_s=0.0, use_s=0.0, **others):
    empty = {"nbytes": 0, "copies": 0, "batch": None, "held": 0, "ready": 0, "out": 0, "restarts": 0, "errors": 0}
    sums = {"batches": batches, "wait_ns": int(wait_s * S), "use_ns": int(use_s * S), "waits": (0,) * 48}
    return ConsumerSnapshot(state=state, since_ns=int(since_s * S), **{**empty, **sums, **others})


def worker(number, state="waiting for a task", since_s=0.0, batches=0, sums_s=NOTHING, batch=None, pid=70):
    """sums_s: loading, collating, waiting for tasks, and for slots."""
    names = ("load_ns", "collate_ns", "wait_task_ns", "wait_slot_ns")
    sums = {name: int(seconds * S) for name, seconds in zip(names, sums_s)}
    made = {"batch": batch, "batches": batches, "samples": 0, "nbytes": 0}
    return WorkerSnapshot(id=number, pid=pid + number, state=state, since_ns=int(since_s * S), **made, **sums)


def look(taken_s, consumer, *workers, num_workers=None):
    return Snapshot(
        name="x",
        pid=1,
        program="",
        started_ns=0,
        started_wall_ns=0,
        taken_ns=int(taken_s * S),
        num_workers=len(workers) if num_workers is None else num_workers,
        slots=4,
        slot_bytes=1,
        passes=1,
        epoch=None,
        length=None,
        consumer=consumer,
        workers=workers,
    )


# ---- rates


def test_sums_that_grew_are_rates_and_shares():
    before = look(10, trainer(since_s=10, batches=5, wait_s=1, use_s=9), worker(0, since_s=10, batches=5, sums_s=(4, 1, 5, 0)))
    after = look(14, trainer(since_s=14, batches=13, wait_s=4, use_s=10), worker(0, since_s=14, batches=9, sums_s=(6, 2, 5, 1)))
    rates = between(before, after)
    assert (rates.seconds, rates.batches, rates.batches_per_s, rates.wait, rates.use) == (4, 8, 2, 0.75, 0.25)
    (one,) = rates.workers
    assert (one.batches_per_s, one.load_s, one.collate_s) == (1, 0.5, 0.25)
    assert (one.load, one.collate, one.wait_task, one.wait_slot) == (0.5, 0.25, 0, 0.25)


def test_what_is_under_way_counts():
    before = look(10, trainer("waiting", 8, wait_s=1, use_s=7), worker(0, "loading", 7, sums_s=(7, 0, 0, 0)))
    after = look(12, trainer("waiting", 8, wait_s=1, use_s=7), worker(0, "loading", 7, sums_s=(7, 0, 0, 0)))
    rates = between(before, after)
    assert (rates.wait, rates.use, rates.workers[0].load, rates.workers[0].load_s) == (1, 0, 1, None)


def test_shares_are_no_more_than_all_of_it_although_a_batch_ends_otherwise_than_it_was_called():
    """Ten seconds that were called loading turn out to be eight of collating."""
    before = look(10, trainer(), worker(0, "loading", 0))
    after = look(11, trainer(), worker(0, "waiting for a task", 10.5, batches=1, sums_s=(2.5, 8, 0, 0)))
    (one,) = between(before, after).workers
    assert one.load == 0 and one.collate + one.wait_task == pytest.approx(1)


def test_of_one_look_it_is_the_time_since_the_beginning_and_of_none_nothing():
    one = look(10, trainer(since_s=10, batches=5, wait_s=4, use_s=6), worker(0, since_s=10, sums_s=(1, 0, 9, 0)))
    assert (between(None, one).batches_per_s, between(None, one).wait) == (0.5, 0.4)
    same = between(one, one)
    assert (same.batches_per_s, same.wait, same.waited, same.workers[0].load) == (0, 0, 0, 0)


def test_numbers_that_go_back_are_none():
    """As those of a page that somebody else has filled may."""
    one, other = (look(10 + n, trainer(batches=9 - n, wait_s=9 - n), worker(0, batches=9 - n)) for n in range(2))
    rates = between(one, other)
    assert (rates.batches_per_s, rates.wait, rates.workers[0].batches_per_s) == (0, 0, 0)


def test_a_worker_that_came_in_between_has_all_that_it_did():
    before = look(10, trainer(), worker(0))
    after = look(20, trainer(), worker(0), worker(1, batches=5, sums_s=(5, 0, 0, 0)))
    assert [one.batches_per_s for one in between(before, after).workers] == [0, 0.5]


# ---- who holds up whom, over ten seconds


def blame(consumer, *workers, **options):
    after = look(10, consumer, *workers, **options)
    return bottleneck.find(after, between(None, after), "the last 10 s")


def at_work(wait_s, **options):
    return trainer(since_s=10, batches=100, wait_s=wait_s, use_s=10 - wait_s, **options)


def busy(number, share, collating=0.0):
    sums_s = ((1 - collating) * share * 10, collating * share * 10, 10 * (1 - share), 0)
    return worker(number, since_s=10, batches=50, sums_s=sums_s)


@pytest.mark.parametrize(
    ("consumer", "workers", "kind", "words"),
    [
        (at_work(6), (busy(0, 1.0), busy(1, 1.0)), "workers", "60 % of the last 10 s; 100 % of their work is in"),
        (at_work(6), (busy(0, 1.0, 0.9),), "workers", "90 % of its work is collating"),
        (at_work(6), (worker(0, since_s=10, sums_s=(1, 1, 0, 8)),), "workers", "there are too few slots"),
        (at_work(0.2), (busy(0, 0.1), busy(1, 0.3)), "trainer", "the trainer: the workers waited 80 % of the last 10 s"),
        (at_work(0.2), (busy(0, 0.95), busy(1, 0.95)), "balanced", "the trainer waited 2 % of the last 10 s, the workers 5 %"),
        (at_work(6), (busy(0, 0.2), busy(1, 1.0)), "worker", "worker 1: the trainer waited 60 % .*, the others 80 % for tasks"),
        (at_work(3), (busy(0, 0.3), busy(1, 0.3)), "uneven", "some batches take much longer than others"),
        (trainer("idle", 8, 9, 1, 2), (busy(0, 1),), "workers", "the trainer waited 33 %"),
        (trainer("idle", 5, 9, 1, 2), (busy(0, 1),), "idle", "no pass is under way, for 5 s"),
        (trainer("idle", 9), (), "idle", "no pass is under way, for 1 s"),
        (trainer("waiting", 8), (worker(0, "loading", 8),), "start", "the trainer waits for the first batch, for 2 s"),
        (trainer("waiting", 3), (worker(0, "loading", 4, batch=0),), "stuck", "worker 0, process 70: loading batch 0 for 6 s; "),
        (trainer("waiting", 3, 9, batch=8), (worker(0), worker(1)), "stuck", "for a batch, for 7 s, and no worker is at work"),
        (
            trainer("waiting", 3, 9, batch=8),
            (worker(0, "loading", 1, batch=10), worker(1, "loading", 2, batch=9)),
            "stuck",
            "worker 1, process 71: loading batch 9 for 8 s; the trainer waits for a batch, for 7 s",
        ),
        (trainer("waiting", 3, 9), (worker(0, "dead"),), "stuck", "worker 0: its process 70 is dead, and the trainer waits"),
        (trainer("using", 4, 9), (worker(0),), "trainer", "the trainer: it has not asked for a batch for 6 s"),
        (trainer("waiting", 6, 3, use_s=6), (busy(0, 1),), "workers", "waited 40 %"),  # 2 s from one to the next are usual
    ],
)
def test_whom_the_others_wait_for(consumer, workers, kind, words):
    found = blame(consumer, *workers)
    assert found.kind == kind and re.search(words, found.text), found


def test_between_passes_no_worker_can_but_wait():
    """Of ten seconds five were between passes, and in the other five the worker was always busy."""
    consumer = trainer(since_s=10, batches=9, wait_s=3, use_s=2)
    found = blame(consumer, worker(0, since_s=10, batches=9, sums_s=(5, 0, 5, 0)))
    assert (found.kind, found.text.startswith("the workers: the trainer waited 60 %")) == ("workers", True)


def test_without_workers_it_is_what_the_trainer_does_itself():
    found = blame(at_work(6), busy(0, 0.6), num_workers=0)
    assert found.text == "no workers: making batches takes 60 % of the trainer's time; 100 % of its work is in the dataset"
    assert blame(at_work(0.5), busy(0, 0.05), num_workers=0).kind == "balanced"
    assert "makes a batch itself, for 7 s" in blame(trainer("waiting", 3, 9), busy(0, 1), num_workers=0).text


def test_a_batch_that_takes_unusually_long_is_told_from_those_that_always_do():
    def long(seconds, batches, loaded_s):
        one = worker(0, "loading", 100 - seconds, batches=batches, sums_s=(loaded_s, 0, 0, 0))
        return [found for found, _ in bottleneck.long_at_work(look(100, trainer(), one))]

    assert long(30, 100, 1.0) and long(30, 0, 0.0)
    assert not long(4.9, 100, 1.0)
    assert not long(30, 5, 75.0) and long(46, 5, 75.0)
