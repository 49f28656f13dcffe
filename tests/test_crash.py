"""Processes that are killed, stopped or interrupted at a bad moment, and what is left for the others."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe

import numpy as np
import pytest
from processes import DEADLINE_S, eventually, forked, process, script, succeeds

import ringbuf
from ringbuf import Empty, Lost, RingBuffer

PROMISED_S = 1.0  # for how long the death of one may hold up the others


@pytest.fixture
def ring():
    with RingBuffer(slots=2, slot_bytes=4096) as ring:
        yield ring


@pytest.fixture
def name():
    name = f"test-crash-{os.getpid()}"
    yield name
    if os.path.exists(f"/dev/shm/ringbuf.{name}"):
        os.unlink(f"/dev/shm/ringbuf.{name}")


def kill(child):
    child.kill()
    child.join(DEADLINE_S)
    assert child.exitcode == -signal.SIGKILL


def write_for_ever(ring, ready, tag):
    with ring.reserve(tag=tag) as slot:
        slot.value = slot.empty(100, np.uint8)
        ready.send(True)
        time.sleep(DEADLINE_S * 2)


def hold_for_ever(ring, ready):
    held = ring.get()
    ready.send(True)
    time.sleep(DEADLINE_S * 2)
    del held


def put_one(ring, value):
    ring.put(value, timeout=DEADLINE_S)


def in_hand(target, ring, *args):
    """A child in the middle of target(ring, ...)."""
    receiver, sender = Pipe(duplex=False)
    child = process(target, ring, sender, *args)
    return child, lambda: receiver.poll(DEADLINE_S) and receiver.recv()


# ---- killed


def test_a_producer_killed_while_it_writes_costs_only_its_own_message():
    with RingBuffer(slots=1, slot_bytes=4096) as ring:
        child, writing = in_hand(write_for_ever, ring, 77)
        with child as victim:
            assert writing()
            pid = victim.pid
            with process(put_one, ring, "from another") as other:
                assert eventually(lambda: ring.stats().waits > 0), "the only slot is the victim's"
                kill(victim)
                assert ring.get(timeout=PROMISED_S) == "from another"
                assert succeeds(other)
        assert ring.lost_tags == [77]
        assert ring.lost() == [Lost(tag=77, pid=pid)]
        stats = ring.stats()
        assert (stats.lost, stats.free, stats.published, stats.writing) == (1, 1, 1, 0)


def test_a_consumer_that_waits_goes_on_when_a_producer_is_killed(ring):
    child, writing = in_hand(write_for_ever, ring, 5)
    with child as victim:
        assert writing()
        timer = threading.Timer(0.2, lambda: (kill(victim), ring.put("alive")))
        timer.start()
        assert ring.get(timeout=DEADLINE_S) == "alive"
        timer.join()
    ring.recover()
    assert ring.lost_tags == [5]


def test_the_end_of_the_stream_does_not_wait_for_a_killed_producer(ring):
    child, writing = in_hand(write_for_ever, ring, 5)
    with child as victim:
        assert writing()
        ring.put("last")
        ring.finish()
        kill(victim)
    assert list(ring) == ["last"]


def test_losses_are_listed_newest_first():
    with RingBuffer(slots=4, slot_bytes=4096) as ring:
        for tag in (1, 2, 3):
            child, writing = in_hand(write_for_ever, ring, tag)
            with child as victim:
                assert writing()
                kill(victim)
            assert ring.recover() == 1
        assert ring.lost_tags == [3, 2, 1]


@pytest.mark.parametrize("redeliver", [True, False])
def test_what_a_killed_consumer_held_is_redelivered_or_dropped_by_choice(redeliver):
    with RingBuffer(slots=2, slot_bytes=4096, redeliver=redeliver) as ring:
        ring.put(np.full(3, 1))
        child, holding = in_hand(hold_for_ever, ring)
        with child as victim:
            assert holding()
            ring.put(np.full(3, 2))
            kill(victim)
        assert ring.recover() == 1
        got = [array[0] for array in drain(ring)]
        assert got == ([1, 2] if redeliver else [2])
        assert ring.stats().dropped == (0 if redeliver else 1)
        assert ring.lost_tags == []


def drain(ring):
    while True:
        try:
            yield ring.get(timeout=0)
        except Empty:
            return


def read_nothing(ring, ready):
    ring.subscribe()
    ready.send(True)
    time.sleep(DEADLINE_S * 2)


def test_a_killed_broadcast_reader_does_not_hold_up_the_ring(name):
    with RingBuffer(slots=2, slot_bytes=100, mode="broadcast", name=name) as ring, ringbuf.attach(name) as reader:
        child, reading = in_hand(read_nothing, ring)
        with child as victim:
            assert reading()
            for i in range(2):
                ring.put(i)
                assert reader.get(timeout=0) == i
            kill(victim)
        ring.put(2, timeout=DEADLINE_S)
        assert reader.get(timeout=0) == 2
        assert ring.stats().readers == 1


def test_a_stopped_producer_keeps_its_slot_and_the_others_go_on(ring):
    child, writing = in_hand(write_for_ever, ring, 1)
    with child as victim:
        assert writing()
        os.kill(victim.pid, signal.SIGSTOP)
        for i in range(20):
            ring.put(i, timeout=DEADLINE_S)
            assert ring.get(timeout=DEADLINE_S) == i
        ring.recover()
        assert (ring.stats().writing, ring.stats().lost) == (1, 0)


def test_the_dead_are_found_even_if_signals_interrupt_every_wait(ring):
    """A handler every 20 ms must not keep a waiting process from looking for dead peers."""
    child, writing = in_hand(write_for_ever, ring, 9)
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    with child as victim, ring.reserve() as slot:
        slot.value = 0
        assert writing()
        kill(victim)
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        try:
            ring.put("in the dead one's slot", timeout=DEADLINE_S / 3)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


# ---- all killed

FAMILY = """
import os, sys, time
import numpy as np
from ringbuf import RingBuffer

ring = RingBuffer(slots=16, slot_bytes=1 << 20, name=sys.argv[1] or None)
for _ in range(4):
    ring.put(np.arange(1000))
os.fork()
os.fork()
held = ring.get(timeout=5)
slot = ring.reserve(timeout=5)
slot.__enter__()
os.write(1, b"ready" + os.linesep.encode())
time.sleep(60)
"""


def run_and_kill(ring_name):
    """Start a family of four processes, each holding a message and an open slot, and kill them all at once."""
    family = subprocess.Popen(
        [sys.executable, "-c", FAMILY, ring_name], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with family:
        try:
            assert [family.stdout.readline() for _ in range(4)] == ["ready\n"] * 4
        finally:
            os.killpg(family.pid, signal.SIGKILL)
        assert family.stdout.read() == "", "the pipe ends when the last of them is gone"


def left_in_shm():
    """Rings in /dev/shm that no process has mapped."""
    mapped = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as maps:
            mapped |= {line.split()[5] for line in maps if "/dev/shm/" in line}
    return {entry.name for entry in os.scandir("/dev/shm") if "ringbuf" in entry.name and entry.path not in mapped}


def test_nothing_is_left_of_an_anonymous_ring_when_all_are_killed():
    before = left_in_shm()
    run_and_kill("")
    assert eventually(lambda: left_in_shm() <= before), (
        "another test run may leave something for a moment, not for long"
    )


def test_a_named_ring_of_killed_processes_is_replaced_by_the_next_of_that_name(name):
    run_and_kill(name)
    assert any(name in entry for entry in left_in_shm())
    with RingBuffer(slots=3, slot_bytes=100, name=name) as ring:
        assert (ring.slots, len(ring), ring.stats().published) == (3, 0, 0), "and nothing of the old one is in it"
        ring.put("new")
        assert ring.get(timeout=0) == "new"
    assert not any(name in entry for entry in os.listdir("/dev/shm"))


# ---- interrupted


@pytest.mark.parametrize("wait", ["get", "put", "reserve", "iterate"])
def test_ctrl_c_ends_a_wait_and_the_ring_goes_on(ring, wait):
    if wait in ("put", "reserve"):
        for i in range(ring.slots):
            ring.put(i)
    waits = {
        "get": ring.get,
        "put": lambda: ring.put(9),
        "reserve": ring.reserve().__enter__,
        "iterate": lambda: list(ring),
    }
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        waits[wait]()
    timer.join()
    stats = ring.stats()
    assert (stats.writing, stats.reading) == (0, 0)
    for _ in drain(ring):
        pass
    ring.put("again", timeout=0)
    assert ring.get(timeout=0) == "again"


def test_ctrl_c_inside_a_reserve_block_gives_the_slot_back(ring):
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt), ring.reserve() as slot:
        slot.value = 1
        time.sleep(DEADLINE_S)
    timer.join()
    assert (ring.stats().free, ring.stats().published) == (ring.slots, 0)


def test_a_signal_with_a_handler_does_not_end_a_wait(ring):
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        start = time.monotonic()
        with pytest.raises(Empty):
            ring.get(timeout=0.4)
        assert time.monotonic() - start >= 0.4
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) > 1


# ---- memory short, and other users

TINY = """
import errno, sys
import numpy as np
from ringbuf import RingBuffer

with RingBuffer(slots=64, slot_bytes=1 << 20) as ring:      # 64 MiB where /dev/shm has 4
    for i in range(64):
        ring.put(np.full(1 << 20, i, np.uint8))
    assert [array[-1] for array in (ring.get() for _ in range(64))] == list(range(64))
try:
    RingBuffer(slots=8, slot_bytes=1 << 20, name="tiny")
except OSError as error:
    assert error.errno == errno.ENOSPC, error
    print(error)
import os
assert os.listdir("/dev/shm") == [], "nothing is left behind"
with RingBuffer(slots=2, slot_bytes=1 << 20, name="tiny") as ring:
    for slot in range(2):
        ring.put(np.ones(1 << 20, np.uint8))
"""


def test_a_small_dev_shm_does_for_anonymous_rings_and_is_an_os_error_for_named_ones():
    mount_and_run = 'mount -t tmpfs -o size=4m tmpfs /dev/shm && exec "$@"'
    wrapper = ["unshare", "--mount", "--map-root-user", "sh", "-c", mount_and_run, "sh"]
    if not shutil.which("unshare") or subprocess.run([*wrapper, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system does not let us mount a small /dev/shm in a namespace of our own")
    ended = script(TINY, wrapper=wrapper)
    assert (ended.returncode, ended.stderr) == (0, "")
    needed, free = 8 * ((1 << 20) + 4096), 4 << 20
    said = [int(word) for word in ended.stdout.replace(":", " ").split() if word.isdigit()]
    assert any(needed <= number < needed + (1 << 20) for number in said), ended.stdout
    assert free in said, ended.stdout
    assert "--shm-size" in ended.stdout


NO_ADDRESSES = """
import resource, sys
import ringbuf

with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), used + (8 << 20)))
for make in (lambda: ringbuf.RingBuffer(slots=16, slot_bytes=1 << 20), lambda: ringbuf.attach(sys.argv[1])):
    try:
        make()
    except OSError as error:
        print(error)
"""


def test_a_limited_address_space_is_an_os_error_and_harms_no_ring(name):
    with RingBuffer(slots=16, slot_bytes=1 << 20, name=name) as ring:
        ended = script(NO_ADDRESSES, name)
        assert (ended.returncode, ended.stderr) == (0, "")
        created, attached = ended.stdout.splitlines()
        assert "ulimit -v" in created
        assert "Cannot allocate memory" in attached and name in attached
        with ringbuf.attach(name, timeout=0) as other:
            ring.put("unharmed")
            assert other.get(timeout=0) == "unharmed"


def test_another_user_cannot_open_a_named_ring(name):
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")

    def other_user():
        os.setgroups([])
        os.setuid(65534)
        with pytest.raises(PermissionError, match=name):
            ringbuf.attach(name, timeout=0)
        with pytest.raises(PermissionError):
            RingBuffer(slots=1, slot_bytes=1, name=name)

    with RingBuffer(slots=1, slot_bytes=100, name=name) as ring:
        assert forked(other_user) == 0
        ring.put("unharmed")
        assert ring.get(timeout=0) == "unharmed"


def test_a_ring_that_others_may_write_to_is_refused(name):
    with RingBuffer(slots=1, slot_bytes=100, name=name):
        os.chmod(f"/dev/shm/ringbuf.{name}", 0o666)
        with pytest.raises(PermissionError, match="others may write") as caught:
            ringbuf.attach(name, timeout=0)
        assert caught.value.errno == errno.EACCES
