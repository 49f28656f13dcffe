"""The extension: raw slots, their lifetime, errors and arguments."""

import contextlib
import errno
import gc
import os
import resource
import threading

import numpy as np
import pytest
from processes import DEADLINE_S, eventually

from ringbuf import BatchTooLarge, Closed, CorruptSegment, Empty, Full, RingbufError, VersionMismatch, memory
from ringbuf._core import ANY, Ring, copy_into
from ringbuf.memory import path_of


@pytest.fixture
def ring():
    ring = Ring.create(slots=4, slot_bytes=1000)
    yield ring
    ring.close()


def send(ring, text=b"", **options):
    with ring.claim(timeout=0, **options) as claim:
        memoryview(claim)[: len(text)] = text
        claim.commit(len(text))


def is_mapped(inode):
    with open("/proc/self/maps") as maps:
        return any(line.split()[4] == str(inode) for line in maps)


# ---- messages


def test_a_message_arrives_with_its_bytes_tag_target_and_place(ring):
    send(ring, b"one", tag=7, target=3)
    send(ring, b"two", tag=8)
    one, two = ring.take(timeout=0), ring.take(timeout=0)
    assert (bytes(one), one.nbytes, one.tag, one.target) == (b"one", 3, 7, 3)
    assert (bytes(two), two.tag, two.target) == (b"two", 8, ANY)
    assert one.ticket < two.ticket
    assert one.index != two.index


def test_a_claim_covers_the_whole_slot(ring):
    claim = ring.claim(tag=5, timeout=0)
    view = memoryview(claim)
    assert (len(view), view.readonly, claim.nbytes, claim.tag) == (1000, False, 1000, 5)
    assert np.frombuffer(claim, np.uint8).ctypes.data % 64 == 0


def test_look_shows_every_slot_that_is_in_use(ring):
    assert ring.look() == []
    with ring.claim(tag=3, target=5) as claim:
        claim.commit(1)
    with ring.claim(tag=4) as claim:
        claim.commit(1)
    lease = ring.take(tag=3)
    claim = ring.claim(tag=6)
    views = {view.tag: view for view in ring.look()}
    assert views[3][:6] == (lease.index, "reading", os.getpid(), 3, 5, lease.ticket)
    assert (views[4].state, views[4].pid, views[4].target) == ("ready", 0, ANY)
    assert views[6][:6] == (claim.index, "writing", os.getpid(), 6, ANY, 0)
    claim.abort()


def test_take_can_ask_for_a_tag(ring):
    for tag in (1, 2, 3):
        send(ring, tag=tag)
    assert ring.take(tag=2, timeout=0).tag == 2
    with pytest.raises(Empty):
        ring.take(tag=2, timeout=0)
    assert ring.take(timeout=0).tag == 1


def test_take_can_ask_for_a_target_and_then_gets_what_is_for_anyone_too(ring):
    send(ring, target=1, tag=1)
    send(ring, target=2, tag=2)
    send(ring, tag=3)
    assert [ring.take(target=2, timeout=0).tag for _ in range(2)] == [2, 3]
    with pytest.raises(Empty):
        ring.take(target=2, timeout=0)
    assert ring.take(timeout=0).tag == 1


def test_the_largest_tag_and_target_are_kept(ring):
    send(ring, tag=2**64 - 2, target=2**32 - 2)
    lease = ring.take(tag=2**64 - 2, target=2**32 - 2, timeout=0)
    assert (lease.tag, lease.target) == (2**64 - 2, 2**32 - 2)


def test_after_finish_what_is_there_is_drained_then_both_sides_get_closed(ring):
    send(ring, b"last")
    ring.finish()
    ring.finish()
    with pytest.raises(Closed, match="finish"):
        ring.claim()
    assert bytes(ring.take()) == b"last"
    with pytest.raises(Closed, match="finished"):
        ring.take()


def test_two_handles_of_one_ring_see_the_same_messages(ring):
    other = Ring.attach_fd(ring.fileno())
    send(other, b"hello")
    assert ring.ready() == 1
    assert bytes(ring.take(timeout=0)) == b"hello"
    assert (other.slots, other.slot_bytes, other.mode, other.full) == (4, 1000, "queue", "block")
    assert other.total_bytes == ring.total_bytes > 4000
    other.close()


# ---- whose slot it is


def test_a_claim_that_is_dropped_gives_its_slot_back(ring):
    for _ in range(3 * ring.slots):
        ring.claim(timeout=0)
    assert ring.stats()["free"] == ring.slots
    assert ring.lost() == []


def test_a_claim_that_was_committed_is_over(ring):
    claim = ring.claim(timeout=0)
    claim.commit(1)
    for again in (lambda: claim.commit(1), claim.abort, lambda: memoryview(claim)):
        with pytest.raises(RingbufError, match="before"):
            again()
    assert ring.stats()["ready"] == 1


def test_a_claim_aborts_when_its_block_raises_or_forgets_to_commit(ring):
    with pytest.raises(ZeroDivisionError), ring.claim():
        raise ZeroDivisionError
    with ring.claim():
        pass
    assert ring.stats()["free"] == ring.slots
    assert ring.stats()["published"] == 0


def test_committing_more_than_the_slot_holds_is_refused_and_the_claim_goes_on(ring):
    claim = ring.claim(timeout=0)
    with pytest.raises(BatchTooLarge, match=r"1001.*1000") as caught:
        claim.commit(1001)
    assert (caught.value.needed_bytes, caught.value.available_bytes) == (1001, 1000)
    claim.commit(1000)
    assert ring.take(timeout=0).nbytes == 1000


def test_a_slot_is_free_again_when_the_last_buffer_over_it_is_gone(ring):
    send(ring, b"abcdef")
    view = memoryview(ring.take(timeout=0))[2:4]
    assert (ring.held, ring.stats()["reading"]) == (1, 1)
    part = np.frombuffer(view, np.uint8)[1:]
    del view
    assert bytes(part) == b"d"
    assert ring.stats()["reading"] == 1
    del part
    assert (ring.held, ring.stats()["free"]) == (0, ring.slots)


def test_a_message_is_writable_in_queue_mode_and_for_good_read_only_in_broadcast():
    queue = Ring.create(slots=1, slot_bytes=8)
    send(queue, b"12345678")
    assert np.ndarray(8, np.uint8, buffer=queue.take(timeout=0)).flags.writeable
    broadcast = Ring.create(slots=1, slot_bytes=8, mode="broadcast")
    broadcast.subscribe()
    send(broadcast, b"12345678")
    array = np.ndarray(8, np.uint8, buffer=broadcast.take(timeout=0))
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


# ---- waiting


@pytest.mark.parametrize("timeout", [-1, -1e-9, float("nan"), float("-inf")])
def test_a_timeout_that_is_no_time_is_refused(ring, timeout):
    for wait in (ring.claim, ring.take):
        with pytest.raises(ValueError, match="timeout must be"):
            wait(timeout=timeout)
    assert ring.stats()["free"] == ring.slots


@pytest.mark.parametrize("timeout", [0, 0.0, 1e-9, 0.01, np.float32(0.01), False])
def test_a_timeout_that_passes_is_full_or_empty(ring, timeout):
    with pytest.raises(Empty, match="no message"):
        ring.take(timeout=timeout)
    claims = [ring.claim(timeout=timeout) for _ in range(ring.slots)]
    with pytest.raises(Full, match="none of the 4 slots"):
        ring.claim(timeout=timeout)
    del claims


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e12, 2**70])
def test_a_timeout_without_end_waits_for_the_message(ring, timeout):
    sender = threading.Timer(0.15, send, (ring, b"late"))
    sender.start()
    assert bytes(ring.take(timeout=timeout)) == b"late"
    sender.join()


def test_a_timeout_of_the_wrong_type_is_a_type_error(ring):
    for wait in (ring.claim, ring.take):
        with pytest.raises(TypeError):
            wait(timeout="1")


@pytest.mark.parametrize("method", ["claim", "take"])
def test_close_ends_the_waits_of_other_threads(ring, method):
    inode = os.fstat(ring.fileno()).st_ino
    claims = [ring.claim(timeout=0) for _ in range(ring.slots)]
    ended = []

    def wait():
        try:
            getattr(ring, method)()
        except Closed as reason:
            ended.append(str(reason))

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: ring.stats()["waits"] >= 2)
    ring.close()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert ended == ["this handle on the ring is closed"] * 2
    assert is_mapped(inode), "the claims still lie in it"
    del claims
    assert not is_mapped(inode)


# ---- the end of a handle


def test_a_closed_ring_refuses_everything_but_close(ring):
    ring.close()
    ring.close()
    for call in (
        ring.claim,
        ring.take,
        ring.finish,
        ring.recover,
        ring.ready,
        ring.stats,
        ring.lost,
        ring.fileno,
    ):
        with pytest.raises(Closed):
            call()
    assert (ring.closed, ring.slots, ring.slot_bytes) == (True, 4, 1000), "what was fixed at creation stays"


def test_a_ring_that_was_never_opened_is_closed():
    with pytest.raises(Closed):
        Ring().take(timeout=0)


def test_closing_unmaps_at_once_when_nothing_is_held(ring):
    inode = os.fstat(ring.fileno()).st_ino
    send(ring)
    assert is_mapped(inode)
    ring.close()
    assert not is_mapped(inode)


def test_closing_keeps_the_memory_until_the_last_lease_is_gone(ring):
    inode = os.fstat(ring.fileno()).st_ino
    send(ring, b"still here")
    view = memoryview(ring.take(timeout=0))
    ring.close()
    assert bytes(view) == b"still here"
    view[:5] = b"STILL"
    assert bytes(view) == b"STILL here"
    del view
    assert not is_mapped(inode)


def test_a_claim_outlives_close_and_may_still_be_committed(ring):
    other = Ring.attach_fd(ring.fileno())
    claim = ring.claim()
    ring.close()
    claim.commit(3)
    assert other.take(timeout=0).nbytes == 3
    other.close()


def test_dropping_a_ring_without_closing_it_unmaps_it():
    ring = Ring.create(slots=1, slot_bytes=1)
    inode = os.fstat(ring.fileno()).st_ino
    claim = ring.claim()
    del ring
    gc.collect()
    assert is_mapped(inode)
    del claim
    assert not is_mapped(inode)


def test_opening_and_closing_over_and_over_leaks_nothing():
    def in_use():
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), sum("ringbuf" in line for line in maps)

    first = Ring.create(slots=2, slot_bytes=1)
    before = in_use()
    for _ in range(500):
        Ring.attach_fd(first.fileno()).close()
        Ring.create(slots=1, slot_bytes=1).close()
    assert in_use() == before
    assert first.stats()["participants"] == 1
    first.close()


# ---- arguments and segments that are refused


@contextlib.contextmanager
def no_descriptors():
    """Any call that would open something fails, with an OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


BAD_OPTIONS = [
    {"slots": 0},
    {"slots": -1},
    {"slots": 65537},
    {"slots": 2**40},
    {"slot_bytes": 0},
    {"slot_bytes": -5},
    {"slot_bytes": 2**62},
    {"slot_bytes": 2**70},
    {"slots": 65536, "slot_bytes": 2**50},
    {"name": ""},
    {"name": ".hidden"},
    {"name": ".."},
    {"name": "a/b"},
    {"name": "nul\0"},
    {"name": "blank space"},
    {"name": "newline\n"},
    {"name": "é"},
    {"name": "x" * 201},
    {"mode": "both"},
    {"mode": None},
    {"full": "drop"},
    {"full": "overwrite", "mode": "broadcast"},
    {"hugepages": "yes"},
    {"hugepages": []},
]


@pytest.mark.parametrize("bad", BAD_OPTIONS, ids=repr)
def test_a_bad_option_is_a_value_error_before_any_system_call(bad):
    with pytest.raises(ValueError), no_descriptors():
        Ring.create(**{"slots": 2, "slot_bytes": 100, **bad})


@pytest.mark.parametrize("bad", [{"slots": 1.5}, {"slot_bytes": "10"}, {"slots": None}, {"name": b"x"}], ids=repr)
def test_an_option_of_the_wrong_type_is_a_type_error_before_any_system_call(bad):
    with pytest.raises(TypeError), no_descriptors():
        Ring.create(**{"slots": 2, "slot_bytes": 100, **bad})


def test_good_options_do_reach_the_system():
    with pytest.raises(OSError), no_descriptors():
        Ring.create(slots=2, slot_bytes=100)


@pytest.mark.parametrize("tag", [-1, 2**64 - 1, 2**64])
def test_a_tag_out_of_range_is_a_value_error(ring, tag):
    for call in (ring.claim, ring.take):
        with pytest.raises(ValueError, match="tag must be"):
            call(tag=tag, timeout=0)


@pytest.mark.parametrize("target", [-1, 2**32])
def test_a_target_out_of_range_is_a_value_error(ring, target):
    for call in (ring.claim, ring.take):
        with pytest.raises(ValueError, match="target must be"):
            call(target=target, timeout=0)


@pytest.mark.parametrize("bad", [1.0, "1", np.float64(2)], ids=repr)
def test_a_tag_or_target_that_is_no_whole_number_is_a_type_error(ring, bad):
    for call in (ring.claim, ring.take):
        with pytest.raises(TypeError, match="whole number"):
            call(tag=bad, timeout=0)
        with pytest.raises(TypeError, match="whole number"):
            call(target=bad, timeout=0)


def test_numpy_integers_are_whole_numbers():
    ring = Ring.create(slots=np.int64(2), slot_bytes=np.uint16(100))
    send(ring, tag=np.uint64(9), target=np.int8(1))
    assert ring.take(tag=np.int32(9), timeout=0).target == 1


def test_more_memory_than_there_is_is_an_os_error_with_both_sizes():
    with pytest.raises(OSError, match=r"\d{16} bytes does not fit: \d+ bytes of memory .*smaller slots") as caught:
        Ring.create(slots=1000, slot_bytes=2**40)
    assert caught.value.errno == errno.ENOMEM


def test_more_than_a_control_group_allows_is_an_os_error(tmp_path, monkeypatch):
    """Groups as version 2 shows them: ours has no limit, the one around it has 5000 bytes left and 1000 to win back."""
    group = tmp_path / "around"
    (group / "ours").mkdir(parents=True)
    (group / "ours/memory.max").write_text("max\n")
    (group / "ours/memory.current").write_text("1\n")
    (group / "memory.max").write_text("100000\n")
    (group / "memory.current").write_text("95000\n")
    (group / "memory.stat").write_text("anon 7\nfile 1500\nshmem 500\n")
    (tmp_path / "membership").write_text("1:cpu:/else\n0::/around/ours\n")
    monkeypatch.setattr(memory, "CGROUP", str(tmp_path))
    monkeypatch.setattr(memory, "MEMBERSHIP", str(tmp_path / "membership"))
    memory.refuse_beyond_control_groups(6000, named=False)
    with pytest.raises(OSError, match="6001 bytes does not fit: 6000 bytes of memory are free") as caught:
        memory.refuse_beyond_control_groups(6001, named=False)
    assert caught.value.errno == errno.ENOMEM
    with pytest.raises(OSError, match="6000 bytes of memory are free"):
        Ring.create(slots=2, slot_bytes=100)


def test_a_limit_on_file_sizes_is_an_os_error_not_a_signal():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(OSError, match="ulimit") as caught:
            Ring.create(slots=2, slot_bytes=1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG


def test_readers_are_a_matter_of_broadcast(ring):
    for call in (ring.subscribe, ring.unsubscribe):
        with pytest.raises(ValueError, match=r"broadcast.*queue"):
            call()


def test_a_broadcast_reader_may_unsubscribe_while_it_holds_messages_but_not_come_back():
    ring = Ring.create(slots=2, slot_bytes=8, mode="broadcast")
    ring.subscribe()
    send(ring, b"x")
    lease = ring.take(timeout=0)
    ring.unsubscribe()
    for _ in range(3):
        send(ring, b"y")
    assert bytes(lease) == b"x"
    for again in (ring.subscribe, ring.take):
        with pytest.raises(RingbufError, match="1 messages from before"):
            again()
    del lease
    ring.subscribe()
    assert ring.stats()["readers"] == 1


@pytest.fixture
def segment(request):
    """A file where named rings live, to be filled with anything."""
    path = path_of(f"test-core-{os.getpid()}")
    yield path
    if os.path.exists(path):
        os.unlink(path)


def attach(path):
    return Ring.attach(path.rpartition("/ringbuf.")[2])


def write(path, data):
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
        file.write(data)


@pytest.mark.parametrize("size", [0, 100, 4096, 100_000])
def test_a_file_that_is_no_ring_is_corrupt_and_left_alone(segment, size):
    data = np.random.default_rng(0).bytes(size)
    write(segment, data)
    with pytest.raises(CorruptSegment):
        attach(segment)
    with open(segment, "rb") as file:
        assert file.read() == data


def test_a_truncated_ring_is_corrupt(segment):
    ring = Ring.create(slots=4, slot_bytes=4096)
    data = os.pread(ring.fileno(), 8192, 0)
    write(segment, data)
    with pytest.raises(CorruptSegment):
        attach(segment)


def test_a_ring_of_another_layout_is_refused_naming_both_versions(segment):
    ring = Ring.create(slots=1, slot_bytes=4096)
    data = bytearray(os.pread(ring.fileno(), ring.total_bytes, 0))
    data[8:12] = (77).to_bytes(4, "little")
    write(segment, data)
    with pytest.raises(VersionMismatch, match=r"version 77.* version 1"):
        attach(segment)
    with pytest.raises(VersionMismatch, match=r"version 77.* version 1"), open(segment, "rb+") as file:
        Ring.attach_fd(file.fileno())
    with open(segment, "rb") as file:
        assert file.read() == data


def test_a_ring_of_another_byte_order_is_refused_with_the_reason(segment):
    ring = Ring.create(slots=1, slot_bytes=4096)
    data = bytearray(os.pread(ring.fileno(), ring.total_bytes, 0))
    data[12:16] = reversed(data[12:16])
    write(segment, data)
    with pytest.raises(VersionMismatch, match="byte order"):
        attach(segment)


def test_a_descriptor_of_something_else_is_refused():
    with pytest.raises(OSError) as caught:
        Ring.attach_fd(-1)
    assert caught.value.errno == errno.EBADF
    with pytest.raises(CorruptSegment), open("/dev/null", "rb+") as null:
        Ring.attach_fd(null.fileno())


def test_a_name_that_nobody_uses_is_not_found():
    with pytest.raises(FileNotFoundError, match=r"no ring has this name.*'nobody-made-this'"):
        Ring.attach("nobody-made-this")


# ---- copying


@pytest.mark.parametrize("streaming", [None, True, False])
@pytest.mark.parametrize("size", [0, 1, 255, 1000, 1 << 20, (9 << 20) + 5])
@pytest.mark.parametrize("offset", [0, 3])
def test_copy_into_copies_to_the_beginning(size, offset, streaming):
    source = np.random.default_rng(1).integers(0, 256, size + offset, np.uint8)[offset:]
    destination = np.full(size + 10, 7, np.uint8)
    copy_into(destination[offset:], source, streaming=streaming)
    assert (destination[:offset] == 7).all()
    assert np.array_equal(destination[offset : offset + size], source)
    assert (destination[offset + size :] == 7).all()


def test_copy_into_refuses_what_does_not_fit_or_must_not_be_written():
    with pytest.raises(ValueError, match="4 bytes do not fit into 3"):
        copy_into(bytearray(3), b"1234")
    with pytest.raises(BufferError):
        copy_into(b"1234", b"1234")
    with pytest.raises((BufferError, ValueError)):
        copy_into(bytearray(100), np.arange(10)[::2])


def test_a_lease_says_where_in_the_rings_memory_its_bytes_lie(ring):
    for text in (b"one", b"two", b"three"):
        send(ring, text)
    leases = [ring.take(timeout=0) for _ in range(3)]
    assert all(lease.ring is ring for lease in leases)
    assert [os.pread(ring.fileno(), lease.nbytes, lease.offset) for lease in leases] == [b"one", b"two", b"three"]
    assert all(lease.offset + ring.slot_bytes <= ring.total_bytes for lease in leases)
