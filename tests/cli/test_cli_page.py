"""What commands show fits whatever it is shown on."""

import itertools

import pytest

from ringbuf.cli.page import (
    ASCII,
    KEEP,
    UNICODE,
    Column,
    Durations,
    Facts,
    Histories,
    History,
    Prose,
    Slots,
    Table,
    lines_of,
    plain,
)

TABLE = Table(
    [Column("name", KEEP), Column("rate", 5, right=True), Column("mode", 2), Column("note", 4, least=6)],
    [["camera-left", "12.5/s", "queue", "two of its slots are held for long"], [("b", "bad"), "3/s", "", ""]],
)
PAGE = [
    Prose("a sentence that is longer than a narrow terminal, and so has to be broken"),
    Facts(["queue", "", "12 slots of 69.6 kB", "909 kB in all"]),
    Slots({"ready": 10, "reading": 1, "writing": 0, "free": 500}),
    Histories([History("ready", range(100), "10 of 12", 100), History("messages", [None, 5.0, 0.0], "81.7/s")]),
    Durations("waits", range(48)),
    TABLE,
]


def text(page, columns=None, glyphs=UNICODE):
    return [plain(line) for line in lines_of(page, columns, glyphs)]


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_no_line_is_wider_than_the_terminal(glyphs):
    for columns in range(1, 140):
        assert all(len(line) <= columns for line in text(PAGE, columns, glyphs)), columns


def test_a_table_gives_up_what_is_least_worth_knowing():
    whole = text([TABLE])
    assert whole[0].split() == ["name", "rate", "mode", "note"]
    assert whole[1] == "camera-left  12.5/s  queue  two of its slots are held for long"
    heads = [text([TABLE], columns)[0].split() for columns in range(70, 0, -1)]
    assert [key for key, _ in itertools.groupby(map(len, heads))] == [4, 3, 2, 1]
    assert heads[-1] == ["n"]
    assert text([TABLE], 40)[1] == "camera-left  12.5/s  queue  two of it..."
    assert text([TABLE], 8)[1] == "camer..."


def test_a_column_that_nobody_fills_is_left_out():
    assert text([Table([Column("a", KEEP), Column("b")], [["1", ""]])]) == ["a", "1"]


def test_each_state_has_its_share_of_the_bar_and_what_there_is_is_seen():
    for counts in itertools.product([0, 1, 7, 65536], repeat=4):
        states = dict(zip(("ready", "reading", "writing", "free"), counts))
        bar = text([Slots(states)], 30, ASCII)[0]
        assert len(bar) == min(30, sum(counts))
        assert all((glyph in bar) == bool(states[state]) for state, glyph in ASCII.slots.items())


def test_a_history_ends_with_the_newest_at_the_right_of_all_rows():
    rows = text([Histories([History("a", [0, 5, 10], "x", 10), History("long", [1], "longer", 1)])], 23, ASCII)
    assert rows == ["a            =#  x", "long          #  longer"]


def test_durations_stand_above_their_place_on_the_axis():
    counts = [0] * 48
    counts[3] = counts[20] = 8  # of nanoseconds, and of almost a millisecond
    counts[21], counts[47] = 1, 4  # of more than that, and of a day
    above, below = text([Durations("waits", counts)], None, ASCII)
    assert below == "       1 us      1 ms      1 s"
    assert {at: above[at] for at in range(7, len(above)) if above[at] != " "} == {7: "#", 17: "#", 18: ":", 34: "="}


def test_nothing_that_is_shown_moves_the_cursor():
    (line,) = text([Prose("a\x1b[2Jb\r\nc\u202e")])
    assert line == "a?[2Jb??c?"
    assert text([Prose("é█")], None, ASCII) == ["??"]
