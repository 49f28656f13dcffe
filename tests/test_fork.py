"""After fork(): the child joins anew, and never touches what is the parent's."""

import gc
import os
import signal
import threading

import numpy as np
import pytest
from processes import DEADLINE_S, eventually, forked, script

import ringbuf
from ringbuf import Closed, RingbufError, RingBuffer


@pytest.fixture
def ring():
    with RingBuffer(slots=4, slot_bytes=4096) as ring:
        yield ring


def test_a_child_uses_the_inherited_ring_while_it_holds_inherited_views(ring):
    ring.put(np.full(10, 1))
    held = ring.get()

    def child():
        assert (held == 1).all()
        ring.put(np.full(10, 2), timeout=0)
        mine = ring.get(timeout=0)
        ring.put(np.full(10, 3), timeout=0)
        assert (held == 1).all() and (mine == 2).all()
        assert ring.stats().participants == 2

    assert forked(child) == 0
    assert ring.get(timeout=DEADLINE_S)[0] in (2, 3), "what the child held came back when it exited"
    assert (held == 1).all()


def test_a_child_that_drops_inherited_views_does_not_free_the_parents_slot(ring):
    ring.put(np.full(10, 7))
    batch = [ring.get()]

    def child():
        batch.clear()
        gc.collect()
        assert ring.stats().reading == 1
        ring.put(0, timeout=0)  # joined by now, with slots of its own
        assert ring.stats().reading == 1

    assert forked(child) == 0
    assert ring.stats().reading == 1
    batch.clear()
    assert ring.stats().reading == 0


def test_a_child_cannot_commit_or_abort_the_parents_open_slot(ring):
    first, second = ring._core.claim(), ring._core.claim()

    def child():
        for end in (lambda: first.commit(1), second.abort):
            with pytest.raises(RingbufError, match="forked"):
                end()

    assert forked(child) == 0
    assert ring.stats().writing == 2
    first.commit(1)
    second.abort()
    assert (len(ring), ring.stats().free) == (1, 3)


def test_a_child_inside_a_parents_block_leaves_it_to_the_parent(ring):
    with ring.reserve() as slot:
        slot.value = "from the parent"
        assert forked(lambda: None) == 0
    assert ring.get(timeout=0) == "from the parent"


def test_a_child_that_closes_leaves_the_parents_handle_alone(ring):
    ring.put(1)

    def child():
        ring.close()
        with pytest.raises(Closed):
            ring.get()

    assert forked(child) == 0
    assert ring.get(timeout=0) == 1


def test_messages_go_both_ways_between_parent_and_child(ring):
    answers = RingBuffer(slots=4, slot_bytes=4096)

    def child():
        for array in ring:
            answers.put(array * 2, timeout=DEADLINE_S)
        answers.finish()

    thread = threading.Thread(target=lambda: results.append(forked(child)))
    results = []
    thread.start()
    for i in range(50):
        ring.put(np.full(5, i), timeout=DEADLINE_S)
        assert answers.get(timeout=DEADLINE_S)[0] == 2 * i
    ring.finish()
    assert list(answers) == []
    thread.join(DEADLINE_S)
    assert results == [0]


def test_a_grandchild_joins_too(ring):
    def grandchild():
        ring.put("grandchild", timeout=0)

    def child():
        ring.put("child", timeout=0)
        assert forked(grandchild) == 0
        ring.put("child again", timeout=0)

    assert forked(child) == 0
    assert [ring.get(timeout=0) for _ in range(3)] == ["child", "grandchild", "child again"]


def test_a_fork_while_another_thread_waits_leaves_a_child_that_can_work_and_close(ring):
    def wait_until_closed():
        with pytest.raises(Closed):
            ring.get(tag=99)

    waiter = threading.Thread(target=wait_until_closed)
    waiter.start()
    assert eventually(lambda: ring.stats().waits > 0)
    inode = str(os.fstat(ring._core.fileno()).st_ino)

    def child():
        ring.put(1, tag=1)
        assert ring.get(timeout=DEADLINE_S, tag=1) == 1
        ring.close()
        with open("/proc/self/maps") as maps:
            assert not any(inode in line.split() for line in maps), "nobody waits in this process"

    try:
        assert forked(child) == 0
    finally:
        ring.close()
        waiter.join(DEADLINE_S)


def test_a_forked_child_of_a_broadcast_reader_is_no_reader_until_it_reads():
    name = f"test-fork-{os.getpid()}"
    with RingBuffer(slots=4, slot_bytes=100, mode="broadcast", name=name) as ring, ringbuf.attach(name) as reader:

        def writing_child():
            reader.put("hello")
            assert ring.stats().readers == 1

        def reading_child():
            reader.subscribe()
            assert ring.stats().readers == 2

        assert forked(writing_child) == 0
        assert reader.get(timeout=0) == "hello"
        assert forked(reading_child) == 0
        ring.recover()
        assert ring.stats().readers == 1


NORMAL_EXIT = """
import os, sys
import numpy as np
from ringbuf import RingBuffer

with RingBuffer(slots=4, slot_bytes=4096, name=sys.argv[1]) as ring:
    ring.put(np.full(10, 1))
    held = ring.get()
    if os.fork() == 0:
        if sys.argv[2] == "used":
            ring.put(2)
        sys.exit(0)     # atexit handlers, module teardown, finalisers: all of it
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    assert os.path.exists("/dev/shm/ringbuf." + sys.argv[1])
    assert (held == 1).all() and ring.stats().reading == 1
    assert len(ring) == (sys.argv[2] == "used")
assert (held == 1).all()
print("done")
"""


@pytest.mark.parametrize("use", ["used", "unused"])
def test_a_child_that_exits_like_any_program_takes_nothing_from_its_parent(use):
    name = f"test-fork-exit-{os.getpid()}"
    ended = script(NORMAL_EXIT, name, use)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
    assert not os.path.exists(f"/dev/shm/ringbuf.{name}")


def test_a_fork_inside_a_signal_handler_during_a_wait(ring):
    statuses = []

    def handler(signum, frame):
        statuses.append(forked(lambda: ring.put("from the child", timeout=DEADLINE_S)))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        assert ring.get(timeout=DEADLINE_S) == "from the child"
    finally:
        signal.signal(signal.SIGALRM, before)
    assert statuses == [0]
