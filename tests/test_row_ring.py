"""Rows of one batch, each written in place by another process: what is there when processes are slow, stopped or killed."""

import contextlib
import gc
import multiprocessing
import os
import random
import signal
import time

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from processes import DEADLINE_S, eventually, forked, process

import ringbuf
from ringbuf import Empty, Full, RingBuffer, RowRing
from ringbuf._core import Ring

ROWS = 3
WORDS = 512  # of a row: long enough to be killed in the midst of it
FIELDS = {"words": ((WORDS,), np.int64), "reward": ((), np.float32)}


@pytest.fixture
def rows():
    with RowRing(ROWS, FIELDS) as rows:
        yield rows


def content(number, row):
    return number * 1000 + row


def fill(given, row):
    given["words"] = content(given.number, row)
    given["reward"] = row


def serve(rows, row):
    for given in rows.serve(row):
        fill(given, row)


def hang_at(rows, row, number):
    """Serve, but never come back from one round."""
    for given in rows.serve(row):
        if given.number == number:
            given["words"][: WORDS // 2] = -1
            while True:
                signal.pause()
        fill(given, row)


@contextlib.contextmanager
def serving(rows, *targets, method="fork"):
    """A process for each row, that runs target(rows, row)."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(process(target, rows, row, *arguments, method=method))
            for row, (target, *arguments) in enumerate(targets)
        ]


def all_serve(rows, **options):
    return serving(rows, *[(serve,)] * ROWS, **options)


def check(batch, number, missing=()):
    """A batch is whole: each row as its process wrote it, or zero and not present."""
    for row in range(ROWS):
        there = row not in missing
        assert batch["present"][row] == there
        assert (batch["words"][row] == (content(number, row) if there else 0)).all()
        assert batch["reward"][row] == (row if there else 0)


# ---- all goes well


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_each_row_is_written_in_place_by_the_process_whose_it_is(rows, method):
    with all_serve(rows, method=method) as children:
        assert rows.wait_for_writers(DEADLINE_S) == []
        for number in range(1, 20):
            this = rows.hand_out()
            assert this.wait(DEADLINE_S) == []
            batch = this.batch()
            assert batch["words"].shape == (ROWS, WORDS)
            check(batch, number)
            del batch
        rows.close()
        for child in children:
            child.join(DEADLINE_S)
            assert child.exitcode == 0


def test_a_message_goes_along_with_each_row(rows):
    seats = [ringbuf.rows.Seat(rows, row) for row in range(ROWS)]
    this = rows.hand_out([{"action": np.arange(row)} for row in range(ROWS)])
    assert [len(seat.next(0).message["action"]) for seat in seats] == [0, 1, 2]
    assert this.number == 1


def test_a_kept_batch_keeps_its_slot_and_its_bytes(rows):
    with all_serve(rows):
        rows.wait_for_writers(DEADLINE_S)
        kept = []
        for _ in range(3):
            this = rows.hand_out()
            this.wait(DEADLINE_S)
            kept.append(this.batch())
        fourth = rows.hand_out()
        with pytest.raises(Full, match="none of the 4 slots"):
            rows.hand_out(timeout=0.01)
        fourth.abort()
        for number, batch in enumerate(kept, 1):
            check(batch, number)


def test_rounds_may_be_out_together_and_only_of_some_rows(rows):
    with all_serve(rows):
        rows.wait_for_writers(DEADLINE_S)
        first, second = rows.hand_out(), rows.hand_out(rows=[2, 0])
        assert second.wait(DEADLINE_S) == first.wait(DEADLINE_S) == []
        check(second.batch(), 2, missing=[1])
        check(first.batch(), 1)


def test_a_published_batch_goes_to_whoever_asks_the_ring(rows):
    with all_serve(rows):
        rows.wait_for_writers(DEADLINE_S)
        this = rows.hand_out()
        this.wait(DEADLINE_S)
        this.publish()

        def elsewhere():
            check(rows.ring.get(timeout=DEADLINE_S), 1)

        assert forked(elsewhere) == 0


# ---- arguments


def test_what_is_no_layout_is_refused():
    with pytest.raises(ValueError, match="present"):
        RowRing(2, {"present": ((), bool)})
    with pytest.raises(TypeError, match="object"):
        RowRing(2, {"x": ((), object)})
    with pytest.raises(ValueError, match="axis"):
        RowRing(2, {"x": ((-1,), float)})
    with pytest.raises(ValueError, match="rows"):
        RowRing(0, {"x": ((), float)})


def test_only_the_learner_hands_out(rows):
    copy = ringbuf.rows._rebuilt(rows.rows, rows._layout, rows.ring, rows._grants)
    with pytest.raises(RuntimeError, match="made"):
        copy.hand_out()

    def child():
        with pytest.raises(RuntimeError, match="made"):
            rows.hand_out()

    assert forked(child) == 0


def test_a_row_has_one_process_at_a_time(rows):
    seat = ringbuf.rows.Seat(rows, 1)
    with pytest.raises(RuntimeError, match="row 1 is served already"):
        next(rows.serve(1))
    with pytest.raises(ValueError, match="row"):
        next(rows.serve(ROWS))
    assert rows.wait_for_writers(0) == [0, 2]
    seat.close()
    assert rows.wait_for_writers(0) == [0, 1, 2]
    with pytest.raises(Empty):
        next(rows.serve(1, timeout=0))


def test_a_round_is_over_once(rows):
    this = rows.hand_out(rows=[])
    assert this.wait() == []
    this.publish()
    for again in (this.publish, this.wait, this.batch):
        with pytest.raises(RuntimeError, match="over"):
            again()
    this.abort()


def test_a_message_that_cannot_travel_takes_the_round_back(rows):
    with pytest.raises(TypeError):
        rows.hand_out([1, 2, object()])
    assert rows.ring.stats().free == 4
    assert rows._grants.stats().ready == ROWS  # the seats


def test_a_row_is_not_to_be_written_after_it_was_handed_in(rows):
    this = rows.hand_out()
    seat = ringbuf.rows.Seat(rows, 0)
    given = seat.next(0)
    fill(given, 0)
    words = given["words"]
    seat.hand_in()
    assert this.wait(0) == [1, 2]
    for write in (lambda: fill(given, 0), lambda: words.fill(1)):
        with pytest.raises(ValueError, match="read-only"):
            write()


# ---- who leaves, hangs, stops or is killed


def test_a_row_whose_block_raised_or_left_is_missing(rows):
    def leave(rows, row):
        for _ in rows.serve(row):
            break

    with serving(rows, (serve,), (leave,), (serve,)):
        rows.wait_for_writers(DEADLINE_S)
        this = rows.hand_out()
        assert this.wait(DEADLINE_S) == [1]
        check(this.batch(), 1, missing=[1])


def test_a_killed_process_is_named_and_the_others_rows_are_there(rows):
    with serving(rows, (serve,), (hang_at, 2), (serve,)) as children:
        rows.wait_for_writers(DEADLINE_S)
        for number in (1, 2):
            this = rows.hand_out()
            missing = this.wait(DEADLINE_S if number == 1 else 0.3)
        assert missing == [1]
        children[1].kill()
        assert this.wait() == [1], "without a timeout: there is nobody to wait for"
        check(this.batch(), 2, missing=[1])
        assert rows.wait_for_writers(0) == [1]
        third = rows.hand_out(rows=[0, 2])
        assert third.wait(DEADLINE_S) == []
        check(third.batch(), 3, missing=[1])


def test_another_process_takes_over_the_row_of_a_killed_one(rows):
    with serving(rows, (serve,), (hang_at, 1), (serve,)) as children:
        rows.wait_for_writers(DEADLINE_S)
        this = rows.hand_out()
        assert this.wait(0.3) == [1]
        children[1].kill()
        assert this.wait(DEADLINE_S) == [1]
        with process(serve, rows, 1):
            assert rows.wait_for_writers(DEADLINE_S) == []
            assert this.wait(DEADLINE_S) == []
            check(this.batch(), 1)


def test_a_late_process_never_writes_into_a_slot_that_was_handed_on(rows):
    """Stopped in the midst of its row, it goes on when the learner has, and its slot is only then anybody's again."""
    with all_serve(rows) as children:
        rows.wait_for_writers(DEADLINE_S)
        os.kill(children[1].pid, signal.SIGSTOP)
        late = rows.hand_out()
        assert late.wait(0.2) == [1]
        taken_back = late.batch()  # it had not begun: nobody has it in hand
        check(taken_back, 1, missing=[1])
        assert not rows._late
        os.kill(children[1].pid, signal.SIGCONT)
        this = rows.hand_out()
        assert this.wait(DEADLINE_S) == []
        check(this.batch(), 2)
        check(taken_back, 1, missing=[1])


def test_a_batch_without_a_row_that_is_being_written_is_a_copy(rows):
    """The same, of one that has begun."""
    seats = [ringbuf.rows.Seat(rows, row) for row in range(ROWS)]
    late = rows.hand_out()
    given = [seat.next(0) for seat in seats]
    for row in (0, 2):
        fill(given[row], row)
        seats[row].hand_in()
    assert late.wait(0) == [1]
    batch = late.batch()
    check(batch, 1, missing=[1])
    held = [batch] + [rows.hand_out(rows=[]).batch() for _ in range(2)]
    with pytest.raises(Full, match="1 wait for rows that are late"):
        rows.hand_out(timeout=0)
    fill(given[1], 1)  # late
    check(batch, 1, missing=[1])
    seats[1].hand_in()
    rows.hand_out(timeout=0).abort()
    check(held[0], 1, missing=[1])


def test_without_a_slot_for_the_copy_the_round_stays_out(rows):
    seats = [ringbuf.rows.Seat(rows, row) for row in range(ROWS)]
    late = rows.hand_out()
    given = seats[1].next(0)
    held = [rows.hand_out(rows=[]).batch() for _ in range(3)]
    with pytest.raises(Full):
        late.publish(timeout=0)
    fill(given, 1)
    seats[1].hand_in()
    check(late.batch(), 1, missing=[0, 2])
    del held


def test_a_round_that_nobody_has_any_more_takes_its_rows_back(rows):
    seat = ringbuf.rows.Seat(rows, 1)
    this = rows.hand_out()
    seat.next(0)
    del this
    gc.collect()
    assert rows.ring.stats().writing == 1, "row 1 is being written"
    seat.hand_in()
    rows.hand_out().abort()
    assert rows.ring.stats().free == 4


def learn_and_die(pipe):
    with RowRing(ROWS, FIELDS) as rows:
        pipe.send(rows)
        rows.wait_for_writers(DEADLINE_S)
        this = rows.hand_out()
        this.wait(DEADLINE_S)
        pipe.send("out")
        signal.pause()


def test_when_the_learner_is_killed_every_process_stops_serving():
    ours, theirs = multiprocessing.Pipe()
    with process(learn_and_die, theirs) as learner:
        rows = ours.recv()
        with all_serve(rows) as children:
            assert ours.recv() == "out"
            learner.kill()
            for child in children:
                child.join(DEADLINE_S)
                assert child.exitcode == 0
            assert list(rows.serve(0)) == []
        rows.close()


# ---- killed again and again, anywhere


def hurry(rows, row):
    """Serve in many writes that a kill can fall between."""
    for given in rows.serve(row):
        for part in list(range(0, WORDS, 64)) * 300:
            given["words"][part : part + 64] = content(given.number, row)
        given["reward"] = row


def test_processes_killed_at_any_instruction_hurt_no_other_row(rows, figures):
    chance = random.Random(7)
    kills = cut = 0
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(process(hurry, rows, row)) for row in range(ROWS)]
        assert rows.wait_for_writers(DEADLINE_S) == []
        held = []
        for number in range(1, 61):
            this = rows.hand_out()
            victim = chance.randrange(ROWS)
            if number % 3 == 0:
                time.sleep(chance.random() * 0.001)  # anywhere, not somewhere
                killed = children[victim]
                killed.kill()
                kills += 1
            missing = this.wait(DEADLINE_S)
            assert set(missing) <= ({victim} if number % 3 == 0 else set())
            cut += bool(missing)
            if missing and chance.random() < 0.5:
                children[victim] = stack.enter_context(process(hurry, rows, victim))
                assert rows.wait_for_writers(DEADLINE_S) == []
                assert this.wait(DEADLINE_S) == []
                missing = []
            held = [*held[-1:], (this.batch(), number, missing)]
            for batch in held:
                check(*batch)
            if number % 3 == 0:
                killed.join(DEADLINE_S)  # perhaps it had handed in its row before
            for row in rows.wait_for_writers(0):
                children[row] = stack.enter_context(process(hurry, rows, row))
            assert rows.wait_for_writers(DEADLINE_S) == []
        del held, batch
        rows.hand_out().abort()
        assert eventually(lambda: rows._free_late_slots() or rows.ring.stats().free == 4), "no slot is leaked"
        rows.close()
    figures(kills=kills, rows_cut_short=cut)
    assert cut


# ---- any order of events


def attached(rows):
    """The same as another process would have it: with handles of its own."""
    rings = [RingBuffer._attached(Ring.attach_fd(ring._core.fileno())) for ring in (rows.ring, rows._grants)]
    return ringbuf.rows._rebuilt(rows.rows, rows._layout, *rings)


class Rows(RuleBasedStateMachine):
    """A learner and writers of three rows, step by step, against what each batch must hold."""

    @initialize()
    def begin(self):
        self.rows = RowRing(ROWS, {"words": ((8,), np.int64), "reward": ((), np.float32)}, slots=3, message_bytes=64)
        self.others = [attached(self.rows) for _ in range(ROWS)]
        self.seats = [ringbuf.rows.Seat(self.others[row], row) for row in range(ROWS - 1)] + [None]
        self.given = [None] * ROWS
        self.out = {}  # number -> rows handed in
        self.given_up = set()  # (number, row): it was left unwritten, and stays missing
        self.batches = []  # (batch, number, missing)

    def teardown(self):
        if not hasattr(self, "rows"):
            return
        for row in range(ROWS):
            self.leave(row)
        for this in list(self.out):
            this.abort()
        self.batches.clear()
        self.rows._free_late_slots()
        gc.collect()
        assert self.rows.ring.stats().free == 3, "every slot came back"
        for other in (*self.others, self.rows):
            other.close()

    @rule()
    def hand_out(self):
        try:
            self.out[self.rows.hand_out(timeout=0)] = set()
        except Full:
            assert len(self.batches) + len(self.out) + len(self.rows._late) >= 3

    def sit(self, row):
        if self.seats[row] is None:
            self.seats[row] = ringbuf.rows.Seat(self.others[row], row)

    @precondition(lambda self: self.out)
    @rule(row=st.integers(0, ROWS - 1))
    def take(self, row):
        self.sit(row)
        if self.seats[row] is not None and self.given[row] is None:
            with contextlib.suppress(Empty):
                self.given[row] = self.seats[row].next(0)
                self.given[row]["words"] = -1  # half of the work

    @precondition(lambda self: any(self.given))
    @rule(row=st.integers(0, ROWS - 1))
    def hand_in(self, row):
        row = next(r % ROWS for r in range(row, row + ROWS) if self.given[r % ROWS])
        fill(self.given[row], row)
        for this, there in self.out.items():
            if this.number == self.given[row].number:
                there.add(row)
        self.seats[row].hand_in()
        self.given[row] = None

    @rule(row=st.integers(0, ROWS - 1))
    def leave(self, row):
        if self.seats[row] is not None:
            if self.given[row] is not None:
                self.given_up.add((self.given[row].number, row))
            self.seats[row].close()
            self.seats[row] = self.given[row] = None

    @rule(row=st.integers(0, ROWS - 1), hands_in=st.booleans())
    def die(self, row, hands_in):
        """A process comes, and is killed with a row in hand, after it has perhaps handed in another."""
        if self.seats[row] is not None:
            return
        rounds = sorted((this.number, there) for this, there in self.out.items() if row not in there)
        waits = [(number, there) for number, there in rounds if (number, row) not in self.given_up]

        def come():
            seat = ringbuf.rows.Seat(self.rows, row)
            if hands_in and waits:
                fill(seat.next(0), row)
                seat.hand_in()
            with contextlib.suppress(Empty):
                seat.next(0)["words"] = -1
            os.kill(os.getpid(), signal.SIGKILL)

        assert forked(come) == -signal.SIGKILL
        self.rows._grants.recover()
        if hands_in and waits:
            waits[0][1].add(row)

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0, 2))
    def wait(self, which):
        this = self.one_that_is_out(which)
        assert this.wait(0) == [row for row in range(ROWS) if row not in self.out[this]]

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0, 2), then_late=st.booleans())
    def publish(self, which, then_late):
        this = self.one_that_is_out(which)
        missing = [row for row in range(ROWS) if row not in self.out[this]]
        try:
            batch = this.batch(timeout=0)
        except Full:
            return
        del self.out[this]
        self.batches.append((batch, this.number, missing))
        if then_late and any(self.given):
            self.hand_in(0)

    def one_that_is_out(self, which):
        return list(self.out)[which % len(self.out)]

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0, 2))
    def abort(self, which):
        this = self.one_that_is_out(which)
        del self.out[this]
        this.abort()

    @precondition(lambda self: self.batches)
    @rule()
    def drop(self):
        self.batches.pop(0)

    @invariant()
    def batches_are_and_stay_whole(self):
        for batch in getattr(self, "batches", ()):
            check(*batch)


TestRows = Rows.TestCase
TestRows.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
