"""The loader's inner parts, each by itself."""

import collections
import errno
import os
import pickle
import random
import signal
import threading
import time

import numpy as np
import pytest
from processes import eventually, forked, process

from ringbuf import BatchTooLarge, RingBuffer, RingLoader
from ringbuf.loader import channel, lifecycle, outset
from ringbuf.loader._course import Job, pack, unpack
from ringbuf.loader.channel import Channel, shared_memory, take_memory
from ringbuf.loader.dialect import Arrays
from ringbuf.loader.failure import Failure, describe_indices, worker_died
from ringbuf.loader.fetch import PrivateRoom, make_fetcher
from ringbuf.loader.iterator import WorkerIterator
from ringbuf.loader.logbook import NOWHERE, Log, Logbook, restore_streams, save_streams
from ringbuf.loader.parent import Orphaned, Parent
from ringbuf.loader.post import Stopped
from ringbuf.loader.rings import DataRings, RingPool, first_slot_bytes
from ringbuf.loader.tasks import TaskBoard

# ---- channel ----------------------------------------------------------------------------------------------------


@pytest.fixture
def ends():
    ours, end = Channel.pair()
    theirs = Channel(end)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_messages_arrive_one_by_one_in_order(ends):
    ours, theirs = ends
    assert not theirs.waiting()
    assert ours.send("ring", 1, 2)
    assert ours.send("stop")
    assert theirs.waiting()
    assert theirs.receive() == (["ring", 1, 2], [])
    assert theirs.receive() == (["stop"], [])
    assert theirs.receive() is None


def test_memory_travels_with_a_message_and_is_not_inherited_by_programs(ends):
    ours, theirs = ends
    memory = shared_memory(b"content", "test")
    ours.send("task", 5, descriptor=memory)
    os.close(memory)
    message, descriptors = theirs.receive()
    assert message == ["task", 5]
    assert not os.get_inheritable(descriptors[0])
    assert take_memory(descriptors) == b"content"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptors[0])


def test_a_full_channel_refuses_instead_of_waiting(ends):
    ours, theirs = ends
    sent = 0
    while ours.send("x" * 1000):
        sent += 1
    assert sent > 50
    theirs.receive()
    assert ours.send("y")


def test_what_is_posted_to_a_full_channel_arrives_later_in_order_and_once(ends):
    ours, theirs = ends
    sent = 0
    while ours.send("x" * 1000):
        sent += 1
    memory = shared_memory(b"content", "test")
    ours.post("ring", 1, descriptor=memory)
    os.close(memory)  # the channel keeps its own
    ours.post("refused", 2)
    assert not ours.send("overtakes")
    for _ in range(sent):
        assert theirs.receive()[0] == ["x" * 1000]
    assert theirs.receive() is None
    ours.flush()
    ours.flush()
    message, descriptors = theirs.receive()
    assert (message, take_memory(descriptors)) == (["ring", 1], b"content")
    assert theirs.receive() == (["refused", 2], [])
    assert theirs.receive() is None
    assert ours.send("again")


def test_a_busy_end_is_no_shortage_however_long_it_lasts(ends, monkeypatch):
    ours, _ = ends
    refusals = []
    clock = [100.0]
    monkeypatch.setattr(ours, "_send", lambda data, descriptor: refusals.pop(0))
    monkeypatch.setattr(channel.time, "monotonic", lambda: clock[0])

    def flush_after(seconds, refusal):
        clock[0] += seconds
        refusals.append(refusal)
        ours.flush()

    refusals.append(errno.EAGAIN)
    ours.post("refused", 1)
    flush_after(3600, errno.EAGAIN)
    flush_after(3600, errno.ENOBUFS)
    flush_after(channel.SHORTAGE_S - 1, errno.ENOBUFS)
    flush_after(1, errno.EAGAIN)  # it is over
    flush_after(3600, errno.ENOMEM)
    with pytest.raises(OSError, match="no message to a worker"):
        flush_after(channel.SHORTAGE_S + 1, errno.ENOMEM)


def test_what_is_not_sent_yet_can_be_forgotten_to_tell_something_else(ends):
    ours, theirs = ends
    while ours.send("x" * 1000):
        pass
    ours.post("refused", 1)
    while theirs.receive():
        pass
    ours.forget()
    assert ours.send("stop")
    assert theirs.receive() == (["stop"], [])


def test_what_is_posted_and_not_sent_leaves_no_descriptor(ends):
    ours, theirs = ends
    while ours.send("x" * 1000):
        pass
    before = len(os.listdir("/proc/self/fd"))
    ours.post("ring", 1, descriptor=0)
    ours.post("ring", 2, descriptor=0)
    assert len(os.listdir("/proc/self/fd")) == before + 2
    theirs.close()
    ours.flush()  # nobody is there any more
    assert len(os.listdir("/proc/self/fd")) == before - 1  # theirs


def test_the_end_of_a_channel_is_told(ends):
    ours, theirs = ends
    ours.send("last")
    ours.close()
    assert theirs.receive() == (["last"], [])
    with pytest.raises(EOFError):
        theirs.receive()
    assert not theirs.send("anything")


# ---- task ring --------------------------------------------------------------------------------------------------


def test_oversized_tasks_need_no_more_memory_than_are_out_at_once():
    board = TaskBoard(4, 1)
    memory = board.letters(0)[1][1]
    for number in range(100):
        assert board.post(number, 0, 0, pack(Job(0, list(range(10_000 + number)))), 0)
        if number >= 3:
            assert board.retract(number - 3, 0)
    assert os.fstat(memory).st_size < 8 * len(pack(Job(0, list(range(10_100)))))
    board.close()


def test_a_task_can_be_taken_back_until_somebody_has_it():
    board = TaskBoard(4, 1)
    board.post(7, 0, 0, pack(Job(0, [1])), 0)
    assert board.retract(7, 0)
    assert not board.retract(7, 0)
    board.close()


def test_a_full_or_finished_board_takes_no_task():
    board = TaskBoard(1, 1)
    posted = 0
    while board.post(posted, 0, 0, pack(Job(0, [1])), 0):
        posted += 1
    assert posted == 8
    board.retract(0, 0)
    board.finish()
    assert not board.post(9, 0, 0, pack(Job(0, [1])), 0)
    board.close()
    board.finish()


# ---- the logbook ------------------------------------------------------------------------------------------------


class Letters:
    """Of a Post, as much as a Log needs."""

    def __init__(self, book, source):
        self.letter = ["log", source, 0], [book.fileno()]

    def wait_for(self, wanted):
        assert wanted(self.letter[0])
        return self.letter


def test_a_note_that_is_not_finished_does_not_count(monkeypatch):
    book = Logbook(3)
    log = Log(Letters(book, NOWHERE), 1)
    assert book.source(1, []) == NOWHERE
    log.resume()
    log.note(5)
    log.note(6)
    newest = book.source(1, [])
    assert book.source(1, [6]) != newest
    write, written = os.pwrite, []

    def stop_before_the_last(memory, data, at):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(write(memory, data, at))

    monkeypatch.setattr(os, "pwrite", stop_before_the_last)
    with pytest.raises(KeyboardInterrupt):
        log.note(7)  # over that of 5
    assert book.source(1, []) == newest
    assert book.source(1, [6]) == NOWHERE
    assert book.source(0, []) == book.source(2, []) == NOWHERE
    book.close()


def test_streams_go_on_where_they_were_saved():
    saved = save_streams()
    drawn = random.random(), np.random.rand()
    restore_streams(saved)
    assert (random.random(), np.random.rand()) == drawn


# ---- the parent -------------------------------------------------------------------------------------------------


def test_a_parents_death_is_seen_by_looking():
    with process(time.sleep, 60) as other:
        parent = Parent(other.pid, direct=False, from_main_thread=False)
        parent.check()
        os.kill(other.pid, signal.SIGSTOP)
        parent.check()  # stopped is not dead
        other.kill()
        assert eventually(lambda: raises_orphaned(parent))


def raises_orphaned(parent):
    try:
        parent.check()
    except Orphaned:
        return True
    return False


def test_a_parent_that_is_gone_from_the_beginning_is_noticed():
    with process(int) as other:
        other.join()
        with pytest.raises(Orphaned):
            Parent(other.pid, direct=False, from_main_thread=False)


def test_a_child_whose_parent_died_before_it_looked_is_an_orphan():
    with pytest.raises(Orphaned):
        Parent(os.getpid(), direct=True, from_main_thread=False)


# ---- data rings -------------------------------------------------------------------------------------------------


@pytest.fixture
def rings():
    rings = DataRings(slots=4, slot_bytes=1000, max_bytes=400_000)
    yield rings
    rings.close()


def test_a_larger_generation_has_head_room_and_whole_pages(rings):
    assert rings.fitting(10_000, above=0) == 1
    assert 11_250 <= rings.slot_bytes < 11_250 + 4096
    assert rings.ring(1).slot_bytes % 4096 == 0


def test_a_generation_that_fits_is_not_made_twice(rings):
    rings.fitting(10_000, above=0)
    rings.fitting(50_000, above=1)
    assert rings.fitting(9_000, above=0) == 1
    assert rings.fitting(9_000, above=1) == 2
    assert rings.fitting(20_000, above=0) == 2
    assert rings.newest == 2


def test_max_bytes_takes_away_the_head_room_then_refuses(rings):
    assert rings.fitting(99_000, above=0) == 1
    assert rings.slot_bytes == 100_000
    with pytest.raises(BatchTooLarge) as caught:
        rings.fitting(100_001, above=1)
    assert (caught.value.needed_bytes, caught.value.available_bytes) == (100_001, 100_000)
    assert rings.newest == 1


def test_only_generations_in_which_nothing_can_arrive_are_retired(rings):
    for needed in (5_000, 10_000, 20_000):
        rings.fitting(needed, above=rings.newest)
    rings.retire_below(2)
    assert rings.several
    assert not rings.ring(2).closed
    with pytest.raises(KeyError):
        rings.ring(1)
    rings.retire_below(99)
    assert not rings.several
    assert rings.ring(3)


def test_draining_leaves_only_what_is_held(rings):
    for number in range(3):
        with rings.ring(0).claim(tag=number) as claim:
            claim.commit(0)
    held = rings.ring(0).take(tag=1)
    assert rings.drain()
    assert rings.held == 1
    assert rings.ring(0).ready() == 0
    del held


def test_a_ring_with_a_slot_that_nobody_gives_back_is_not_sound(rings):
    claim = rings.ring(0).claim()
    assert not rings.drain()
    claim.abort()


def test_a_pool_hands_out_its_idle_ring_again_unless_it_is_half_full():
    pool = RingPool()
    options = {"slots": 4, "slot_bytes": 1000, "max_bytes": None}
    first = pool.borrow(**options)
    second = pool.borrow(**options)
    assert second is not first
    pool.give_back(first)
    assert pool.borrow(**options) is first
    for number in range(3):
        with first.ring(0).claim(tag=number) as claim:
            claim.commit(0)
    held = [first.ring(0).take() for _ in range(3)]
    pool.give_back(first)
    assert pool.borrow(**options) is not first
    del held
    pool.close()


@pytest.mark.parametrize("change", [{"slots": 5}, {"slot_bytes": 5000}, {"max_bytes": 10**6}], ids=str)
def test_a_pool_makes_another_ring_for_other_wishes(change):
    pool = RingPool()
    options = {"slots": 4, "slot_bytes": 1000, "max_bytes": None}
    first = pool.borrow(**options)
    pool.give_back(first)
    assert pool.borrow(**{**options, **change}) is not first
    pool.close()


@pytest.mark.parametrize("slots", [1, 6, 300, 65536])
def test_the_first_slots_are_small_where_there_are_many(slots):
    assert 4096 <= first_slot_bytes(slots) <= 64 << 10
    assert slots < 4096 or slots * first_slot_bytes(slots) <= 256 << 20


# ---- failures ---------------------------------------------------------------------------------------------------


def failure_of(error, **details):
    try:
        raise error
    except Exception as caught:
        return Failure.of(caught, worker_id=3, **details)


def test_a_failure_survives_its_journey():
    failure = failure_of(ValueError("no"), index=[1, 2], at=2)
    assert Failure.decode(failure.encode()) == failure


@pytest.mark.parametrize("room", [4096, 2000, 700])
def test_a_failure_is_cut_to_size_and_keeps_the_end_of_its_traceback(room):
    failure = failure_of(ValueError("x" * 5000 + " the end"), index=list(range(1000)), at=2)
    data = failure.encode(room)
    assert len(data) <= room
    short = Failure.decode(data)
    assert short.text.rstrip().endswith("the end")
    assert type(short.exception()) is RuntimeError
    assert "ValueError" in str(short.exception())


class Lost(Exception):
    pass


def test_an_error_whose_class_is_not_here_becomes_a_runtime_error(monkeypatch):
    failure = failure_of(Lost("there"))
    monkeypatch.delattr(f"{__name__}.Lost")
    error = failure.exception()
    assert type(error) is RuntimeError
    assert "Lost: there" in str(error)


def test_many_indices_are_shown_in_part():
    assert describe_indices([[1, 2], [3]]) == "[1, 2, 3]"
    assert describe_indices([4, "ab"]) == "[4, 'ab']"
    assert describe_indices([range(100)]).endswith("12, 13, ... 98, 99] (100 in all)")


def test_a_dead_worker_is_described_once_more_after_pickling():
    error = worker_died(worker_id=1, pid=2, exitcode=-6, indices=[[3, 4]], iterable=False, last_words="alas")
    twin = pickle.loads(pickle.dumps(error))
    assert str(twin) == str(error)
    assert (twin.worker_id, twin.pid, twin.exitcode, twin.indices) == (1, 2, -6, [3, 4])
    assert "SIGABRT" in str(error)
    assert "alas" in str(error)


# ---- fetchers ---------------------------------------------------------------------------------------------------


def test_a_fetcher_pauses_between_samples_as_often_as_it_is_told():
    pauses = []

    def pause():
        pauses.append(fetcher.at)
        return 3

    fetcher = make_fetcher(
        np.arange(10), iterable=False, drop_last=False, dialect=Arrays, collate_fn=Arrays.collate, batched=True, pause=pause
    )
    fetcher.fetch(Job(0, list(range(10))), PrivateRoom(), private=False)
    assert pauses == [0, 3, 6, 9]


def test_who_helps_pauses_between_samples_too():
    pauses = []
    fetcher = make_fetcher(
        np.arange(10),
        iterable=False,
        drop_last=False,
        dialect=Arrays,
        collate_fn=Arrays.collate,
        batched=True,
        pause=lambda: pauses.append(None) or 1,
    )
    for done, _ in enumerate(fetcher.lend(Job(0, list(range(10))), range(4, 9))):
        assert len(pauses) == done + 1
    assert len(pauses) == 5


def test_a_forked_child_closes_a_pool_whose_lock_another_thread_held():
    pool = RingPool()
    with pool._lock:
        assert forked(pool.close) == 0
    pool.close()


@pytest.mark.parametrize("other_thread", [False, True])
def test_an_interrupt_waits_until_a_start_or_stop_is_done(other_thread):
    asleep = threading.Event()
    if other_thread:  # to which the kernel may hand the signal, which this one has blocked
        threading.Thread(target=asleep.wait, daemon=True).start()
    steps = []
    try:
        with pytest.raises(KeyboardInterrupt):
            with lifecycle._sigint_held():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)
                steps.append("done")
            steps.append("interrupted too late")
        assert steps == ["done"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        asleep.set()


def test_what_can_neither_be_sent_nor_kept_is_an_error(ends, monkeypatch):
    ours, _ = ends
    while ours.send("x" * 1000):
        pass

    def refuse(descriptor):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(channel.os, "dup", refuse)
    with pytest.raises(channel.Unsent, match="no message to a worker: Too many open files"):
        ours.post("ring", 1, descriptor=0)


def test_a_new_pass_says_so_when_a_worker_cannot_be_told_what_it_waits_for(monkeypatch):
    with RingLoader(list(range(8)), num_workers=1, persistent_workers=True) as loader:
        iterator = iter(loader)
        next(iterator)
        assert eventually(lambda: not iterator._board.holders())  # what is answered cannot be called back

        def refuse(self):
            raise channel.Unsent(errno.ENOMEM, "no message to a worker")

        monkeypatch.setattr(TaskBoard, "retract", lambda self, number, worker_id: False)  # as if the worker had begun with all
        monkeypatch.setattr(WorkerIterator, "_receive", refuse)
        with pytest.raises(OSError, match="no message to a worker"):
            iter(loader)


# ---- jobs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [[], [0, 5, -1, (1 << 63) - 1, -(1 << 63)], [1 << 63], [True, 1], [np.int64(3)], (1, 2), range(3), None, "x", [[1]]],
    ids=repr,
)
def test_a_job_arrives_as_it_was_sent(index):
    job = Job(7, index, 1 << 70, 3, None)
    arrived = unpack(pack(job))
    assert arrived == job
    assert type(arrived) is Job
    assert type(arrived.index) is type(index)
    if isinstance(index, list):
        assert [type(item) for item in arrived.index] == [type(item) for item in index]


@pytest.mark.parametrize("epochs", [(1, True, 1.0, np.int64(1)), (True, 1)], ids=repr)
def test_what_jobs_have_in_common_keeps_its_type(epochs):
    for epoch in epochs:
        assert type(unpack(pack(Job(0, [1], None, epoch, None))).epoch) is type(epoch)


# ---- the first batch first ------------------------------------------------------------------------------------------


def go_ahead(worker_id, monkeypatch, *, running, answered=lambda: False, processors=2):
    looks = []
    monkeypatch.setattr(outset, "_running", lambda: running)
    monkeypatch.setattr(outset, "_processors", lambda: processors)
    monkeypatch.setattr(outset.time, "sleep", lambda seconds: None)
    outset.let_others_go_ahead(worker_id, answered, lambda: looks.append(None))
    return len(looks)


def test_workers_for_whom_there_is_a_processor_begin_at_once(monkeypatch):
    assert go_ahead(1, monkeypatch, running=9) == 0
    assert go_ahead(2, monkeypatch, running=2) == 0
    assert go_ahead(2, monkeypatch, running=0) == 0  # nobody can tell


def test_the_others_begin_when_somebody_has_answered_or_after_a_while(monkeypatch):
    answers = iter([False, False, False, True])
    assert go_ahead(2, monkeypatch, running=3, answered=lambda: next(answers)) == 3
    monkeypatch.setattr(outset, "MOST_S", 0.01)
    assert go_ahead(2, monkeypatch, running=3) > 0


def test_who_is_told_to_stop_stops_also_while_others_go_ahead(monkeypatch):
    def stop():
        raise Stopped

    monkeypatch.setattr(outset, "_running", lambda: 9)
    with pytest.raises(Stopped):
        outset.let_others_go_ahead(os.cpu_count() + 1, lambda: False, stop)


def test_without_a_number_of_processors_or_of_those_who_run_nobody_waits_for_ever(monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOSYS, "not here")

    monkeypatch.setattr(outset.os, "sched_getaffinity", refuse)
    assert outset._processors() >= 1
    monkeypatch.setattr("builtins.open", refuse)
    assert outset._running() == 0


# ---- what a fetcher keeps -------------------------------------------------------------------------------------------


Pair = collections.namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    "make", [Pair, lambda x, y: collections.OrderedDict(x=x, y=y), lambda x, y: (x, y)], ids=["named", "ordered", "tuple"]
)
def test_a_fetcher_keeps_nothing_of_the_samples_of_a_batch_that_is_delivered(make):
    with RingBuffer(slots=1, slot_bytes=4096) as ring:

        class FromARing:
            def __len__(self):
                return 4

            def __getitem__(self, index):
                ring.put({"x": np.full(3, index), "y": np.ones(2)}, timeout=0)
                return make(**ring.get(timeout=0))

        assert len(list(RingLoader(FromARing(), batch_size=1))) == 4
        assert ring.stats().free == 1
