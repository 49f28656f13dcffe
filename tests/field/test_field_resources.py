"""Limits, unusual systems, and what a loader takes over a long time."""

import errno
import os
import resource
import shutil
import subprocess
import threading

import numpy as np
import pytest
from field_data import Filled, Given
from field_loaders import COPIES, both, numbers, outcomes, rows, usage
from processes import DEADLINE_S, forked, process, script

import ringbuf
from ringbuf import Empty, RingBuffer, WorkerDied

# ---- descriptors --------------------------------------------------------------------------------------------------


@both
@pytest.mark.filterwarnings(COPIES)
def test_a_thousand_kept_batches_take_no_descriptor(Loader):
    def run():
        os.closerange(3, 1 << 16)  # of the test runner
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        with Loader(Given(list(np.arange(1000))), 1, num_workers=2) as loader:
            kept = [batch for _ in range(2) for batch in loader]
            assert len(os.listdir("/proc/self/fd")) < 64
        assert [rows(batch) for batch in kept] == [[number] for number in range(1000)] * 2

    assert forked(run) == 0


@both
def test_twenty_epochs_take_no_more_of_anything_than_one(Loader):
    with Loader(Filled(12, (50, 50)), 2, num_workers=2) as loader:
        for _ in loader:
            pass
        before = usage()
        for _ in range(20):
            assert numbers(loader) == list(range(12))
        assert usage() == before


def test_two_thousand_openings_of_a_ring_take_nothing():
    def in_use():
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), sum("ringbuf" in line for line in maps), threading.active_count()

    name = f"field-open-{os.getpid()}"
    with RingBuffer(slots=2, slot_bytes=1, name=name) as ring:
        before = in_use()
        for _ in range(2000):
            ringbuf.attach(name, timeout=0).close()
        assert in_use() == before
        assert ring.stats().participants == 1
    for _ in range(300):
        RingBuffer(slots=2, slot_bytes=1, name=name).close()
    assert not os.path.exists(f"/dev/shm/ringbuf.{name}")


# ---- memory -------------------------------------------------------------------------------------------------------


EPOCHS = """
import gc, itertools, os
import psutil
from field_data import Filled
{imports}

def epochs(count):
    for _ in range(count):
        for _ in loader:
            pass
    gc.collect()
    with open(f"/proc/{{pids[1]}}/maps") as maps:
        mapped = len(maps.readlines())
    return sum(psutil.Process(pid).memory_full_info().uss for pid in pids), mapped

loader = RingLoader(Filled(10, (100,)), 2, num_workers=1, persistent_workers=True)
gc.freeze()  # what a fork shares is to stay shared
pids = [os.getpid(), iter(loader)._workers[0].pid]
epochs(700)  # until collections have touched what was never touched since the fork
memory, mapped = zip(*(epochs(100) for _ in range(5)))
print(*(min(after - before for before, after in itertools.pairwise(numbers)) for numbers in (memory, mapped)))
"""


@pytest.mark.parametrize("imports", ["from ringbuf import RingLoader", "from ringbuf.torch import RingLoader"])
def test_memory_and_mappings_stay_the_same_over_many_epochs(imports, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__), prepend=os.pathsep)
    done = script(EPOCHS.format(imports=imports))
    assert done.stderr == ""
    # What leaks grows in each stretch of a hundred epochs; what is touched for the first time does not.
    memory, mapped = map(int, done.stdout.split())
    assert memory < 50 * 1024
    assert mapped <= 0


# ---- workers that can get no more ---------------------------------------------------------------------------------


def no_descriptor(worker_id):
    highest = max(map(int, os.listdir("/proc/self/fd")))
    while os.open(os.devnull, os.O_RDONLY) <= highest:  # numbers that are free below would still be given out
        pass
    # The one that is left is for the new ring, as it comes; attaching takes another.
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 3,) * 2)


def no_address_space(worker_id):
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 20_000, used + 20_000))


def no_proc(worker_id):
    os.chroot("/proc/self/fdinfo")
    os.chdir("/")


@both
@pytest.mark.parametrize("limit", [no_descriptor, no_address_space, no_proc])
def test_a_worker_that_cannot_attach_to_larger_slots_ends_with_the_reason(Loader, limit):
    if limit is no_proc and os.geteuid() != 0:
        pytest.skip("only root may change its root directory")
    with Loader(Filled(8, (300, 300)), 2, num_workers=1, worker_init_fn=limit, timeout=DEADLINE_S) as loader:
        with pytest.raises((WorkerDied, OSError, MemoryError)) as caught:
            list(loader)
        assert not isinstance(caught.value, TimeoutError)
    if isinstance(caught.value, WorkerDied):
        assert "cannot attach" in str(caught.value)


@both
@pytest.mark.parametrize("limit", [no_descriptor, no_proc])
def test_a_worker_that_needs_no_larger_slots_needs_nothing_more(Loader, limit):
    if limit is no_proc and os.geteuid() != 0:
        pytest.skip("only root may change its root directory")
    options = {"slot_bytes": 1 << 20, "slots": 6, "worker_init_fn": limit, "timeout": DEADLINE_S}
    with Loader(Filled(8, (100, 100)), 2, num_workers=2, **options) as loader:
        assert numbers(loader) == list(range(8))


@both
def test_a_batch_without_room_for_larger_slots_is_an_error_at_its_place(Loader):
    samples = [np.zeros(10, np.uint8), np.broadcast_to(np.uint8(1), (1 << 44,)), np.ones(20, np.uint8)]
    with Loader(Given(samples), 1, num_workers=1) as loader:
        first, error, last = outcomes(iter(loader))
    assert isinstance(error, OSError) and error.errno == errno.ENOMEM
    for words in ("indices [1]", "free"):
        assert words in str(error)
    assert (first, last) == ([[0] * 10], [[1] * 20])


# ---- /dev/shm -----------------------------------------------------------------------------------------------------

PASS_AND_NAME = """
import sys
import numpy as np
import ringbuf
{imports}

class Images:
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return np.full(1 << 20, index, np.uint8)

loader = RingLoader(Images(), 4, num_workers=2)
for _ in range(2):
    assert [int(batch[0][0]) for batch in loader] == [0, 4, 8]
try:
    with ringbuf.RingBuffer(slots=8, slot_bytes=1 << 20, name="field") as ring:
        ring.put(np.arange(3))
        print(ring.get().tolist())
except OSError as error:
    print(type(error).__name__, error.errno, error)
"""

# Always a file system of its own: to change the flags of the one that is there would change it for everybody.
SHM = {
    "1 MiB": ("mount -t tmpfs -o size=1m t /dev/shm", "28 "),
    "read-only": ("mount -t tmpfs -o ro t /dev/shm", "30 "),
    "of huge pages": ("mount -t tmpfs -o huge=always,size=256m t /dev/shm", None),
    "no file system": ("mount -t tmpfs t /dev", "2 "),
}


def in_namespaces(*options, first=""):
    """The beginning of a command that runs in namespaces of its own, after a shell command there; None where not possible."""
    wrapper = ["unshare", *options, "sh", "-c", f'{first or "true"} && exec "$@"', "sh"]
    if shutil.which("unshare") and subprocess.run([*wrapper, "true"], capture_output=True).returncode == 0:
        return wrapper
    pytest.skip(f"this system does not let us run in a namespace of our own ({' '.join(options)})")


@pytest.mark.parametrize(("mount", "said"), SHM.values(), ids=SHM)
def test_a_loader_needs_no_dev_shm_and_a_name_says_what_it_lacks(mount, said):
    wrapper = in_namespaces("--mount", "--map-root-user", first=mount)
    imports = "from ringbuf import RingLoader"
    done = script(PASS_AND_NAME.format(imports=imports), wrapper=wrapper)
    assert (done.returncode, done.stderr) == (0, "")
    if said is None:
        assert done.stdout == "[0, 1, 2]\n"
    else:
        assert f"Error {said}" in done.stdout and "/dev/shm" in done.stdout


def test_tensors_need_no_dev_shm_either():
    wrapper = in_namespaces("--mount", "--map-root-user", first="mount -t tmpfs -o size=1m t /dev/shm")
    done = script(PASS_AND_NAME.format(imports="from ringbuf.torch import RingLoader"), wrapper=wrapper)
    assert (done.returncode, done.stderr) == (0, "")


# ---- clocks and pids that differ ----------------------------------------------------------------------------------

ATTACHES = """
import sys, time
import ringbuf
with ringbuf.attach(sys.argv[1], timeout=10) as ring:
    print(ring.get(timeout=20), flush=True)
    try:
        ring.get(timeout=0.2)
    except ringbuf.Empty:
        print("empty", flush=True)
    ring.put("answer", timeout=10)
    ring.recover()
"""


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--time", "--monotonic", "10000000"], id="a monotonic clock months ahead"),
        pytest.param(["--time", "--monotonic", "-60"], id="a monotonic clock a minute behind"),
        pytest.param(["--pid", "--fork"], id="pids of another namespace"),
        pytest.param(["--pid", "--fork", "--mount-proc", "--time", "--monotonic", "5000"], id="both"),
    ],
)
def test_processes_with_other_clocks_or_pids_share_a_ring(options):
    name = f"field-namespace-{os.getpid()}"
    wrapper = in_namespaces("--map-root-user", *options)
    with RingBuffer(slots=1, slot_bytes=1000, name=name) as ring:
        ring.put("question")
        done = script(ATTACHES, name, wrapper=wrapper)
        assert (done.returncode, done.stdout, done.stderr) == (0, "question\nempty\n", "")
        ring.recover()
        assert ring.get(timeout=5) == "answer"
        with pytest.raises(Empty):
            ring.get(timeout=0)
        assert (ring.stats().lost, ring.stats().participants) == (0, 1)


def hold(ring, ready):
    held = ring.get()
    ready.set()
    threading.Event().wait(DEADLINE_S)
    del held


def test_nobody_in_another_pid_namespace_is_taken_for_dead():
    """The owner's pid means nothing over there, or is somebody else's; its lock says that it lives."""
    import multiprocessing

    name = f"field-pids-{os.getpid()}"
    wrapper = in_namespaces("--map-root-user", "--pid", "--fork", "--mount-proc")
    ready = multiprocessing.get_context("fork").Event()
    with RingBuffer(slots=2, slot_bytes=1000, name=name) as ring:
        ring.put(np.arange(3))
        with process(hold, ring, ready):
            assert ready.wait(DEADLINE_S)
            ring.put("question")
            done = script(ATTACHES, name, wrapper=wrapper)
            assert (done.returncode, done.stdout, done.stderr) == (0, "question\nempty\n", "")
            assert ring.stats().reading == 1
            assert ring.get(timeout=5) == "answer"


# ---- many at once -------------------------------------------------------------------------------------------------


def test_forty_eight_rings_and_two_hundred_old_files_are_in_nobodys_way():
    prefix = f"field-many-{os.getpid()}"
    leftovers = [f"/dev/shm/{prefix}-{number}" for number in range(200)]
    try:
        for path in leftovers:
            open(path, "xb").close()
        rings = [RingBuffer(slots=2, slot_bytes=100) for _ in range(48)]
        rings += [RingBuffer(slots=2, slot_bytes=100, name=f"{prefix}.{number}") for number in range(48)]
        for number, ring in enumerate(rings):
            ring.put(number)
        assert [ring.get(timeout=0) for ring in rings] == list(range(96))
        for ring in rings:
            ring.close()
    finally:
        for path in leftovers:
            os.unlink(path)
