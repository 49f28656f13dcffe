"""Pages that somebody else has filled: errors for people, whatever stands there; never a crash, never a huge allocation."""

import contextlib
import fcntl
import os
import random
import resource

import pytest
from processes import forked
from trainers import Rows, names, run

import ringbuf
from ringbuf import telemetry
from ringbuf.errors import CorruptSegment
from ringbuf.telemetry import _meter
from ringbuf.telemetry._meter import Consumer, Header, Kind, Sizes, State, Worker

WORD = 8
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


@pytest.fixture(scope="module")
def good():
    name = next(names)
    with ringbuf.RingLoader(Rows(), 8, num_workers=1, name=name) as loader:
        run(loader)
        (path,) = [there.path for there in telemetry.find() if there.name == name]
        with open(path, "rb") as page:
            return page.read()


@pytest.fixture
def content(good):
    """The bytes of a page that is in order, to be spoilt."""
    return bytearray(good)


@contextlib.contextmanager
def page(data, seals=SEALS, name="hostile"):
    descriptor = os.memfd_create(_meter.PREFIX + name, os.MFD_ALLOW_SEALING)
    try:
        os.write(descriptor, data)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        yield descriptor
    finally:
        os.close(descriptor)


def put(data, word, value):
    data[word * WORD : (word + 1) * WORD] = value.to_bytes(WORD, "little", signed=True)


def read_all(data, **options):
    with page(data, **options) as descriptor, telemetry.Reader.of_descriptor(descriptor) as reader:
        return reader.snapshot(), reader.events()


def test_a_page_in_order_is_read(content):
    snapshot, events = read_all(content)
    assert snapshot.consumer.batches == 8 and len(events.events) > 8


@pytest.mark.parametrize(
    ("word", "value", "words"),
    [
        (Header.MAGIC_AT, 0, "no loader's page"),
        (Header.VERSION_AT, 9, "it has layout 9, and this ringbuf reads layout 1"),
        (Header.ROWS, 1 << 40, "1099511627776 rows"),
        (Header.ROWS, 0, "0 rows"),
        (Header.ROWS, -1, "-1 rows"),
        (Header.ROWS, 2, "2 rows with logs of 2048 records need"),
        (Header.RECORDS, 1 << 50, "logs of 1125899906842624 records"),
        (Header.RECORDS, 4095, "logs of 4095 records"),
        (Header.RECORDS, 4096, "need"),
        (Header.PAGE_WORDS, 1 << 62, "need"),
        (Header.PID, -1, "PID is -1"),
        (Header.NAME_AT, int.from_bytes(b"../../e\0", "little"), "a name that no loader can have"),
        (Header.NAME_AT, 0, "a name that no loader can have"),
        (_meter.row_at(-1) + Consumer.STATE, 99, "a state in it is 99"),
        (_meter.row_at(-1) + Consumer.WAIT_NS, -5, "WAIT_NS is -5"),
        (_meter.row_at(-1) + Consumer.WORKERS, 7, "7 workers, and has 1 rows"),
        (_meter.row_at(-1) + Consumer.WAITS + 3, -1, "is -1"),
        (_meter.row_at(0) + Worker.W_STATE, 77, "a state in it is 77"),
        (_meter.row_at(0) + Worker.W_LOAD_NS, -1, "W_LOAD_NS is -1"),
        (_meter.log_at(-1, 1, 2048), -3, "-3 records"),
        (_meter.log_at(0, 1, 2048), 1 << 60, "record .* of log 0 is"),
        (_meter.log_at(0, 1, 2048) + Sizes.LOG_HEAD, 0, "record 0 of log 0 is"),
    ],
)
def test_a_word_that_cannot_be_is_named(content, word, value, words):
    put(content, word, value)
    with pytest.raises(CorruptSegment, match=words):
        read_all(content)


@pytest.mark.parametrize("nbytes", [0, 1, 511, 512, 4096, -8])
def test_a_page_that_is_cut_off_is_refused(content, nbytes):
    with pytest.raises(CorruptSegment, match="bytes"):
        read_all(content[:nbytes])


def test_a_page_of_absurd_size_is_not_mapped(content):
    descriptor = os.memfd_create(_meter.PREFIX + "huge", os.MFD_ALLOW_SEALING)
    os.write(descriptor, content)
    os.ftruncate(descriptor, 1 << 40)
    with pytest.raises(CorruptSegment, match="1099511627776 bytes"):
        telemetry.Reader.of_descriptor(descriptor)
    os.close(descriptor)


def test_memory_that_could_shrink_is_not_mapped(content):
    with pytest.raises(CorruptSegment, match="could shrink"):
        read_all(content, seals=fcntl.F_SEAL_GROW)


def test_random_bytes_are_read_or_refused_and_nothing_else(content):
    """In a child with little memory, so that what a count asks for cannot be had."""

    def child():
        limit = 1 << 32
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        draw = random.Random(7)
        refused = 0
        for _ in range(300):
            data = bytearray(content)
            if draw.random() < 0.2:
                data = bytearray(draw.randbytes(draw.randrange(len(data))))
            for _ in range(draw.choice([1, 3, 50])):
                if data:
                    at = draw.randrange(min(len(data), draw.choice([64, 512, 4096, len(data)])))
                    data[at] = draw.randrange(256)
            try:
                read_all(data)
            except CorruptSegment as error:
                assert len(str(error)) < 400
                refused += 1
        assert refused > 50

    assert forked(child) == 0


def test_a_page_that_is_none_is_passed_over_and_told_to_whoever_asks_for_it(content):
    put(content, Header.VERSION_AT, 2)
    name = next(names)
    with page(content, name=name):
        assert name not in [loader.name for loader in telemetry.find()]
        with pytest.raises(CorruptSegment, match=r"layout 2.*the ringbuf that the trainer uses"):
            telemetry.open(name)


def test_a_page_of_somebody_elses_pid_is_not_taken_for_his(content):
    with page(content) as descriptor:
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        assert path in [loader.path for loader in telemetry.find()]
    put(content, Header.PID, 1)
    with page(content) as descriptor:
        assert path not in [loader.path for loader in telemetry.find()]


# ---- reading while it is written ----------------------------------------------------------------------------------


def test_what_was_written_over_is_missed_and_counted():
    records, rows = 8, 1
    memory = _meter.Memory(None, WORD * _meter.page_words(rows, records))
    words = memoryview(memory).cast("B").cast("q")
    header = telemetry.snapshot.PageHeader("x", 1, "", 0, 0, rows, records)
    consumer = _meter.ConsumerMeter(memory, -1, rows, records)
    consumer.begin_pass()
    since = telemetry.events.cursor_of(words, header)

    def pass_on(batches):
        for _ in range(batches):
            consumer.wait()
            consumer.take(5)
            consumer.got(True)

    pass_on(2)  # a wait, a use, a wait
    found = telemetry.events.read_events(words, header, since)
    assert [event.kind for event in found.events] == ["wait", "use", "wait"] and found.missed == 0
    pass_on(10)  # 20 more, of which seven surely stand still
    later = telemetry.events.read_events(words, header, found.cursor)
    assert len(later.events) == records - 1 and later.missed == 20 - (records - 1)
    assert telemetry.events.read_events(words, header, later.cursor).events == []
    assert len(telemetry.events.read_events(words, header, None).events) == records - 1


def test_a_cursor_of_another_page_is_refused(content):
    with page(content) as descriptor, telemetry.Reader.of_descriptor(descriptor) as reader:
        with pytest.raises(ValueError, match="of 1 logs, and this page has 2"):
            reader.events((3,))
        assert reader.events((1 << 62, 1 << 62)).events == []
    with pytest.raises(ValueError, match="was closed"):
        reader.snapshot()


def test_every_state_and_kind_has_a_word():
    assert set(telemetry.snapshot.STATES) == set(State)
    assert set(telemetry.events.KINDS) == set(Kind) - {Kind.NO_KIND}
