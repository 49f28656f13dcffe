"""Rings and loaders where something is scarce: one clean error or none, nothing left, and all is well with more again."""

import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from processes import forked

import ringbuf
from ringbuf import RingBuffer, RingLoader

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
MIB = 1 << 20
NOBODY = 65534

BATCHES = [[0, 1], [2, 3], [4, 5]]


class Numbers:
    """Sample i: an array of `nbytes` bytes that say i, or of more and more from batch to batch."""

    def __init__(self, nbytes=64, growing=False):
        self.nbytes, self.growing = nbytes, growing

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return np.full(self.nbytes * (index // 2 + 1 if self.growing else 1), index, np.uint8)


def rows(batch):
    assert (batch == batch[:, :1]).all()
    return batch[:, 0].tolist()


def whole_pass(loader):
    return [rows(batch) for batch in loader]


def outcome(loader):
    """A pass under some limit: its batches, and the clean errors in their place."""
    got = []
    iterator = None
    try:
        iterator = iter(loader)
    except (OSError, MemoryError, ringbuf.RingbufError) as error:
        assert isinstance(error, MemoryError) or str(error).strip()
        return [error]
    for _ in range(20):
        try:
            got.append(rows(next(iterator)))
        except StopIteration:
            break
        except (OSError, MemoryError, ringbuf.RingbufError) as error:
            assert isinstance(error, MemoryError) or str(error).strip()
            got.append(error)
            if isinstance(error, ringbuf.WorkerDied):
                break
    batches = [item for item in got if isinstance(item, list)]
    assert batches == [batch for batch in BATCHES if batch in batches]
    return got


@contextlib.contextmanager
def limited(kind, most):
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def descriptors():
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"), key=int)


def rings_mapped():
    return Path("/proc/self/maps").read_text().count("memfd:ringbuf")


def no_children():
    try:
        return os.waitpid(-1, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return True


def alone(function):
    """Run a test in a fork, whose limits are its own, and with nothing on the screen but what fails."""
    assert forked(function) == 0


def under(kind, most, loader=None, **options):
    """How a loader does under a limit, having seen that it leaves nothing and works without."""
    loader = loader or RingLoader(Numbers(), 2, num_workers=2, **options)
    before = descriptors(), rings_mapped()
    with limited(kind, most):
        got = outcome(loader)
    verdict = [type(item) for item in got]
    del got
    gc.collect()
    assert whole_pass(loader) == BATCHES
    loader.close()
    assert (descriptors(), rings_mapped()) == before
    assert no_children()
    return verdict


# ---- descriptors, processes


def test_few_descriptors(thorough):
    """A loader with two workers needs some fourteen, a worker a few of its own."""

    def run():
        whole_pass(RingLoader(Numbers(), 2, num_workers=2))
        os.closerange(3, 1 << 16)  # of pytest
        verdicts = [under(resource.RLIMIT_NOFILE, 3 + spare) for spare in range(0, 30, 1 if thorough else 3)]
        assert verdicts[0] == [OSError]
        assert verdicts[-1] == [list] * 3
        assert all(v in ([OSError], [list] * 3) for v in verdicts if ringbuf.WorkerDied not in v), verdicts
        for most in (32, 64):
            assert under(resource.RLIMIT_NOFILE, most) == [list] * 3

    alone(run)


def test_few_processes():
    if os.geteuid() != 0:
        pytest.skip("the limit counts all processes of the user; only root can become one that has none")

    def run():
        whole_pass(RingLoader(Numbers(), 2, num_workers=2))
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        for most in (1, 2):
            loader = RingLoader(Numbers(), 2, num_workers=2)
            verdict = under(resource.RLIMIT_NPROC, most, loader)
            assert verdict == [BlockingIOError], verdict

    alone(run)


# ---- memory


def address_space():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def test_little_address_space(thorough):
    def run():
        whole_pass(RingLoader(Numbers(), 2, num_workers=2))
        # What was freed before may be used again, which is much after many tests: the first limit lets nothing be mapped.
        spares = [-(address_space() // 2), *range(64 << 10, 4 * MIB, (64 if thorough else 512) << 10)]
        verdicts = [under(resource.RLIMIT_AS, address_space() + spare) for spare in spares]
        assert verdicts[0] != [list] * 3
        assert [list] * 3 in verdicts

    alone(run)


@pytest.mark.parametrize("kind, spare", [("RLIMIT_FSIZE", 2 * MIB), ("RLIMIT_AS", 6 * MIB)])
def test_no_room_for_larger_slots_costs_those_batches_alone(kind, spare):
    """Batches grow from 256 KiB to 1.5 MiB and more, their rings with them."""

    def run():
        loader = RingLoader(Numbers(128 << 10, growing=True), 2, num_workers=2, slot_bytes=4096, slots=4)
        before = descriptors(), rings_mapped()
        held = [None]
        iterator = iter(loader)  # its workers are not limited
        most = spare + (address_space() if kind == "RLIMIT_AS" else 0)
        with limited(getattr(resource, kind), most):
            got = []
            for _ in range(20):
                try:
                    held[0] = None
                    got.append(rows(next(iterator)))
                except StopIteration:
                    break
                except (OSError, MemoryError) as error:
                    got.append(type(error))
        assert OSError in got, got
        assert [item for item in got if isinstance(item, list)] == [batch for batch in BATCHES if batch in got]
        assert len(got) == 3
        del iterator
        assert whole_pass(loader) == BATCHES
        loader.close()
        assert (descriptors(), rings_mapped()) == before

    alone(run)


def test_little_locked_memory_changes_nothing():
    alone(lambda: [under(resource.RLIMIT_MEMLOCK, 64 << 10)] == [[list] * 3] or sys.exit("it did"))


# ---- /dev/shm


def private_shm(size):
    """A small /dev/shm for this process and its children alone; False where that is not to be had."""
    libc = ctypes.CDLL(None)
    return (
        libc.unshare(CLONE_NEWNS) == 0
        and libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
        and libc.mount(b"t", b"/dev/shm", b"tmpfs", 0, f"size={size}".encode()) == 0
    )


def fill(path):
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


@contextlib.contextmanager
def filler():
    """Another process that fills /dev/shm and empties it, again and again."""
    pid = os.fork()
    if pid == 0:
        while True:
            fill("/dev/shm/other")
            os.unlink("/dev/shm/other")
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with contextlib.suppress(FileNotFoundError):
            os.unlink("/dev/shm/other")


@pytest.mark.parametrize("size", ["1m", "4m"])
def test_a_full_shm_meanwhile(size):
    """Loaders, also growing ones, do not live there; named rings that exist go on, and further ones are refused."""
    if os.geteuid() != 0:
        pytest.skip("a /dev/shm of one's own takes root")

    def run():
        if not private_shm(size):
            os._exit(77)
        array = np.arange(8192, dtype=np.uint8)
        with RingBuffer(4, 65536, name="mine") as ring:
            with filler():
                until = time.monotonic() + 1
                while time.monotonic() < until:
                    ring.put(array)
                    assert (ring.get() == array).all()
                    assert whole_pass(RingLoader(Numbers(), 2, num_workers=1)) == BATCHES
                    growing = RingLoader(Numbers(16 << 10, growing=True), 2, num_workers=1, slot_bytes=4096)
                    assert whole_pass(growing) == BATCHES
                    try:
                        RingBuffer(4, 65536, name="another").close()
                    except OSError as error:
                        assert "does not fit" in str(error)
            fill("/dev/shm/full")
            with pytest.raises(OSError, match="bytes of /dev/shm are free"):
                RingBuffer(4, 65536, name="another")
            for _ in range(20):  # over each page of it
                ring.put(array)
                assert (ring.get() == array).all()
            assert whole_pass(RingLoader(Numbers(), 2, num_workers=2)) == BATCHES
            os.unlink("/dev/shm/full")
        assert os.listdir("/dev/shm") == []

    status = forked(run)
    if status == 77:
        pytest.skip("no mount namespace of our own to be had")
    assert status == 0
