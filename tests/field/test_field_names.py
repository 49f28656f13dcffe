"""Names of rings: who may remove them, what stands there from before, and what the system does to them."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from processes import DEADLINE_S, eventually, script

import ringbuf
from ringbuf import CorruptSegment, RingBuffer


@pytest.fixture
def name(request):
    name = f"field-names-{os.getpid()}"
    yield name
    if os.path.exists(path_of(name)):
        os.unlink(path_of(name))


def path_of(name):
    return f"/dev/shm/ringbuf.{name}"


ATTACHES = """
import os, signal, sys
import ringbuf
ring = ringbuf.attach(sys.argv[1])
batch = ring.get()
print(batch["x"].sum(), flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "closes":
    ring.close()
"""


@pytest.mark.parametrize("end", ["closes", "exits", "killed"])
def test_who_only_attached_takes_no_name_with_it(name, end):
    with RingBuffer(slots=2, slot_bytes=1000, name=name, redeliver=False) as ring:
        for _ in range(2):
            ring.put({"x": np.arange(5)})
            ended = script(ATTACHES, name, end)
            assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGKILL if end == "killed" else 0, "10\n", "")
            assert os.path.exists(path_of(name))
            with ringbuf.attach(name, timeout=0) as other:
                other.recover()
                other.put("still here", timeout=5)
                assert ring.get(timeout=0) == "still here"


NO_TRACKER = """
import sys
import ringbuf
from multiprocessing import resource_tracker

for name in (sys.argv[1], None):
    with ringbuf.RingBuffer(slots=1, slot_bytes=100, name=name) as ring:
        if name:
            ringbuf.attach(name).close()
try:
    ringbuf.RingBuffer(slots=1 << 10, slot_bytes=1 << 40, name=sys.argv[1])
except OSError as error:
    print(error.errno)
print(resource_tracker._resource_tracker._pid)
"""


def test_no_ring_ever_calls_on_multiprocessings_resource_tracker(name):
    """Which would remove what belongs to others, and print about what it does not know."""
    done = script(NO_TRACKER, name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "12\nNone\n", "") or done.stdout == "28\nNone\n"
    assert done.stderr == ""


LEFTOVERS = {
    "empty": b"",
    "zeros": bytes(1 << 16),
    "no ring": b"something else altogether" * 1000,
    "one byte": b"x",
}


@pytest.mark.parametrize("content", LEFTOVERS.values(), ids=LEFTOVERS)
def test_a_file_that_is_no_ring_is_refused_to_who_attaches_and_replaced_by_who_creates(name, content):
    with open(path_of(name), "xb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
    with pytest.raises(CorruptSegment, match=name):
        ringbuf.attach(name, timeout=0)
    with open(path_of(name), "rb") as file:
        assert file.read() == content
    with RingBuffer(slots=1, slot_bytes=100, name=name) as ring:
        assert (len(ring), ring.stats().published) == (0, 0)
        ring.put(1)
        assert ring.get(timeout=0) == 1


DIES_WRITING = """
import os, signal, sys, time
import numpy as np
import ringbuf
ring = ringbuf.RingBuffer(slots=3, slot_bytes=1000, name=sys.argv[1])
ring.put("old")
slot = ring.reserve()
slot.__enter__()
slot.empty(100, np.uint8)[:] = 7
print("writing", flush=True)
if sys.argv[2] == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""


def test_what_a_killed_owner_left_is_replaced_and_nothing_of_it_is_read(name):
    assert script(DIES_WRITING, name, "dies").stdout == "writing\n"
    assert os.path.exists(path_of(name))
    with RingBuffer(slots=2, slot_bytes=500, name=name) as ring:
        assert (ring.slots, len(ring), ring.stats().published, ring.lost_tags) == (2, 0, 0, [])
        with ringbuf.attach(name, timeout=0) as other:
            assert other.slots == 2


@pytest.mark.parametrize("stopped", [False, True])
def test_the_name_of_a_living_or_stopped_owner_is_refused(name, stopped):
    with subprocess.Popen([sys.executable, "-c", DIES_WRITING, name, "lives"], stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout.readline() == "writing\n"
            if stopped:
                os.kill(owner.pid, signal.SIGSTOP)
            with pytest.raises(FileExistsError, match=name):
                RingBuffer(slots=2, slot_bytes=500, name=name)
            with ringbuf.attach(name, timeout=0) as ring:
                assert ring.get(timeout=0) == "old"
        finally:
            owner.kill()


def test_a_ring_whose_file_somebody_removed_goes_on_and_a_late_attacher_is_told(name):
    """As when the system clears /dev/shm of what a user had, at log-out."""
    with RingBuffer(slots=2, slot_bytes=100, name=name) as ring, ringbuf.attach(name, timeout=0) as other:
        os.unlink(path_of(name))
        for number in range(10):
            ring.put(number, timeout=5)
            assert other.get(timeout=5) == number
        with pytest.raises(FileNotFoundError, match="RemoveIPC") as caught:
            ringbuf.attach(name, timeout=0.01)
        assert name in str(caught.value)
        with RingBuffer(slots=1, slot_bytes=100, name=name) as new:
            ring.close()
            other.close()
            assert os.path.exists(path_of(name)), "the new ring's name is not theirs to remove"
            new.put(1)
    assert not os.path.exists(path_of(name))


def test_a_ring_without_a_name_has_none_that_could_be_somebody_elses():
    with RingBuffer(slots=1, slot_bytes=10) as one, RingBuffer(slots=1, slot_bytes=10) as other:
        for ring in (one, other):
            assert ring.name is None
            assert os.readlink(f"/proc/self/fd/{ring._core.fileno()}").startswith("/memfd:")
        one.put(1)
        assert (len(one), len(other)) == (1, 0)


CRASHES = """
import os, signal, sys
import ringbuf
with ringbuf.RingBuffer(slots=4, slot_bytes=1 << 20, name=sys.argv[1]) as ring:
    ring.put("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_crash_one_file_is_left_at_most_and_no_other_kind_of_thing(name):
    before = set(os.listdir("/dev/shm"))
    script(CRASHES, name)
    assert eventually(lambda: {e for e in set(os.listdir("/dev/shm")) - before if name in e} == {f"ringbuf.{name}"}, DEADLINE_S)
