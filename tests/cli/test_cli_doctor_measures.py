"""What `ringbuf doctor` makes of two looks at a page, one after the other."""

import pytest

from ringbuf.cli.diagnosis.measures import batch_times, measure
from ringbuf.telemetry import ConsumerSnapshot, Event, Snapshot, WorkerSnapshot

S = 10**9


def worker(number=0, **more):
    values = {
        "id": number, "pid": 7, "state": "waiting for a task", "since_ns": 0, "batch": None, "batches": 0, "samples": 0,
        "nbytes": 0, "load_ns": 0, "collate_ns": 0, "wait_task_ns": 0, "wait_slot_ns": 0,
    }  # fmt: skip
    return WorkerSnapshot(**{**values, **more})


def look(taken_ns, workers=(), passes=1, **consumer):
    values = {
        "state": "using", "since_ns": taken_ns, "batches": 0, "nbytes": 0, "copies": 0, "wait_ns": 0, "use_ns": 0,
        "waits": (0,) * 48, "batch": None, "held": 0, "ready": 0, "out": 0, "restarts": 0, "errors": 0,
    }  # fmt: skip
    return Snapshot(
        name="n", pid=1, program="p", started_ns=0, started_wall_ns=0, taken_ns=taken_ns, num_workers=len(workers), slots=6,
        slot_bytes=10, passes=passes, epoch=None, length=None, consumer=ConsumerSnapshot(**{**values, **consumer}),
        workers=tuple(workers),
    )  # fmt: skip


def test_what_came_between_counts():
    before = look(10 * S, [worker(load_ns=3 * S, batches=5, since_ns=10 * S)], batches=5, wait_ns=S, use_ns=S, errors=1)
    made = worker(load_ns=5 * S, collate_ns=S, batches=9, since_ns=14 * S)
    after = look(14 * S, [made], batches=8, wait_ns=2 * S, use_ns=4 * S, errors=3)
    m = measure(before, after, cores=2.0, alone=True)
    assert (m.seconds, m.batches, m.wait_s, m.use_s, m.errors, m.slots, m.cores, m.alone) == (4, 3, 1, 3, 2, 6, 2.0, True)
    assert (m.makers[0].batches, m.makers[0].load_s, m.makers[0].collate_s) == (4, 2, 1)
    assert (m.wait_share, m.make_s, m.busy_s) == (0.25, 0.75, 3)


@pytest.mark.parametrize(
    ("state", "field"),
    [
        ("loading", "load_s"),
        ("collating", "collate_s"),
        ("waiting for a task", "wait_task_s"),
        ("waiting for a slot", "wait_slot_s"),
    ],
)
def test_what_is_under_way_counts_as_far_as_it_is(state, field):
    """A worker that began 3 s before the stretch of 4 s, and is not done, was at it for all of the 4."""
    before, after = (look(at * S, [worker(state=state, since_ns=7 * S)], state="waiting", since_ns=7 * S) for at in (10, 14))
    m = measure(before, after, cores=1.0)
    assert {name: getattr(m.makers[0], name) for name in ("load_s", "collate_s", "wait_task_s", "wait_slot_s")} == {
        **dict.fromkeys(("load_s", "collate_s", "wait_task_s", "wait_slot_s"), 0),
        field: 4,
    }
    assert (m.wait_s, m.wait_share, m.batches) == (4, 1, 0)


def test_between_passes_nobody_waits():
    m = measure(look(10 * S, state="idle", since_ns=S), look(14 * S, state="idle", since_ns=S), cores=1.0)
    assert m.wait_share is None


def test_a_worker_that_was_not_there_before_counts_from_its_beginning():
    m = measure(look(10 * S, [worker()]), look(12 * S, [worker(), worker(1, load_ns=S, batches=2)]), cores=1.0)
    assert (m.makers[1].load_s, m.makers[1].batches) == (1, 2)


def test_the_longest_waits_are_those_of_first_batches():
    waits = [0] * 48
    waits[20], waits[30] = 100, 2  # a hundred of a millisecond, two of a second
    after = look(20 * S, passes=3, wait_ns=2 * S, waits=tuple(waits))
    m = measure(look(10 * S, passes=1), after, cores=1.0)
    assert m.passes == 2 and m.first_wait_s == pytest.approx(2 * 0.75 * 2**30 / 1e9)
    assert measure(look(10 * S, passes=3), after, cores=1.0).first_wait_s == 0


def test_times_of_batches_are_their_loads_and_collations_together():
    def events(number, load_ns):
        for kind, took in (("wait for a task", 99 * S), ("load", load_ns), ("collate", S)):
            yield Event(kind, 0, number, 0, None, 0, took)

    slow = [event for number in range(40) for event in events(number, 9 * S if number % 10 == 0 else S)]
    assert batch_times(slow) == (2, 10)
    assert batch_times(slow[:30]) == (None, None)
