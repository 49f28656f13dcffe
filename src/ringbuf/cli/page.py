"""What commands show, as blocks that fit themselves into so many columns; who paints them need not know what they mean.

A line is a list of (text, style). Styles: "" plain, "strong", "dim", "good", "warn", "bad", and the states of a slot.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

__all__ = [
    "ASCII",
    "UNICODE",
    "Block",
    "Column",
    "Durations",
    "Facts",
    "Glyphs",
    "Histories",
    "History",
    "Line",
    "Prose",
    "Slots",
    "Table",
    "lines_of",
    "plain",
]

Line = list[tuple[str, str]]


class Glyphs(NamedTuple):
    """levels: of a history, from nothing to full. slots: one for each state."""

    levels: str
    slots: dict[str, str]


UNICODE = Glyphs(" ▁▂▃▄▅▆▇█", {"ready": "█", "reading": "▓", "writing": "▒", "free": "░"})
ASCII = Glyphs(" .:-=+*#", {"ready": "#", "reading": "r", "writing": "w", "free": "."})

# Of durations: 2**10 ns are a microsecond, and so on, well enough.
AXIS = ("1 us", "1 ms", "1 s")
STEP_BITS, FIRST_BIT, LAST_BIT = 10, 10, 37

GAP = "  "
CUT = "..."


class Block(Protocol):
    def lines(self, columns: int | None, glyphs: Glyphs) -> list[Line]:
        """columns: None: as wide as it is."""


class Prose(NamedTuple):
    """Text that is broken where the line ends."""

    text: str
    style: str = ""

    def lines(self, columns: int | None, glyphs: Glyphs) -> list[Line]:
        if columns is None:
            return [[(self.text, self.style)]]
        return [[(line, self.style)] for line in textwrap.wrap(self.text, columns) or [""]]


class Facts(NamedTuple):
    """Things that are so, one after another, as many to a line as there is room for."""

    parts: Sequence[str]

    def lines(self, columns: int | None, glyphs: Glyphs) -> list[Line]:
        lines: list[str] = []
        for part in filter(None, self.parts):
            longer = f"{lines[-1]}{GAP}{part}" if lines else ""
            if lines and (columns is None or len(longer) <= columns):
                lines[-1] = longer
            else:
                lines.append(cut(part, columns))
        return [[(line, "")] for line in lines]


class Column(NamedTuple):
    """keep: of columns that do not fit the one with the least goes first; those with KEEP stay, and are cut.

    least: characters down to which this one is cut before any has to go; 0: it is whole or not there.
    """

    title: str
    keep: int = 1
    right: bool = False
    least: int = 0


KEEP = 100


class Table(NamedTuple):
    """Rows of cells, each text, or (text, style)."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | tuple[str, str]]]

    def lines(self, columns: int | None, glyphs: Glyphs) -> list[Line]:
        texts = [[column.title for column in self.columns], *([_text(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*texts)]
        shown = [at for at in range(len(widths)) if any(row[at] for row in texts[1:])]
        if columns is not None:
            self._fit(columns, widths, shown)
        lines = [self._line(shown, widths, [(column.title, "dim") for column in self.columns])]
        lines += [self._line(shown, widths, row) for row in self.rows]
        return lines if columns is None else [_crop(line, columns) for line in lines]

    def _fit(self, columns: int, widths: list[int], shown: list[int]) -> None:
        """Cut what may be cut, and leave out what has to go."""
        natural = list(widths)
        while True:
            may_go = [at for at in shown if self.columns[at].keep < KEEP]
            excess = _total(natural, shown) - columns
            for at in sorted(shown, key=lambda at: self.columns[at].keep):
                least = min(natural[at], self.columns[at].least or (natural[at] if may_go else 1))
                widths[at] = max(least, natural[at] - max(0, excess))
                excess -= natural[at] - widths[at]
            if excess <= 0 or not may_go:
                return
            shown.remove(min(may_go, key=lambda at: self.columns[at].keep))

    def _line(self, shown: list[int], widths: list[int], row: Sequence[str | tuple[str, str]]) -> Line:
        line: Line = []
        for at in shown:
            text = cut(_text(row[at]), widths[at])
            text = text.rjust(widths[at]) if self.columns[at].right else text.ljust(widths[at])
            line.append((text + GAP if at != shown[-1] else text.rstrip(), "" if isinstance(row[at], str) else row[at][1]))
        return line


class Slots(NamedTuple):
    """How many slots are in which state, as a bar, and in words below it."""

    states: dict[str, int]

    def lines(self, columns: int | None, glyphs: Glyphs) -> list[Line]:
        width = min(60, columns or 60)
        total = sum(self.states.values())
        bar: Line = []
        order = [state for state in glyphs.slots if state in self.states]
        for state, length in zip(order, _shares([self.states[state] for state in order], min(width, total))):
            bar.append((glyphs.slots[state] * length, state))
        words = Facts([f"{glyphs.slots[state]} {self.states[state]} {state}" for state in order])
        return [bar, *words.lines(columns, glyphs)]


class History(NamedTuple):
    """What came of something: its values, the newest last, and what is so now, in words.

    most: the value of a full level; 0: the largest one's.
    """

    label: str
    values: Sequence[float | None]
    now: str
    most: float = 0.0
    style: str = ""


class Histories(NamedTuple):
    """Rows of levels below one another, the newest at the right."""

    rows: Sequence[History]

    def lines(self, columns: int | None, glyphs: Glyphs) -> list[Line]:
        label = max(len(row.label) for row in self.rows)
        now = max(len(row.now) for row in self.rows)
        width = max(0, min(60, (columns or 80) - label - now - 2 * len(GAP)))
        lines = []
        for row in self.rows:
            most = row.most or max((value for value in row.values if value), default=0.0)
            shown = list(row.values)[-width:] if width else []
            levels = "".join(_level(value, most, glyphs.levels) for value in shown).rjust(width)
            lines.append(_crop([(row.label.ljust(label) + GAP, "dim"), (levels + GAP, row.style), (row.now, "")], columns))
        return lines


class Durations(NamedTuple):
    """How often something took how long, above an axis.

    counts: in place b of those that took less than 2**b nanoseconds, and not less than half of that.
    """

    label: str
    counts: Sequence[int]

    def lines(self, columns: int | None, glyphs: Glyphs) -> list[Line]:
        kept = [sum(self.counts[: FIRST_BIT + 1]), *self.counts[FIRST_BIT + 1 : LAST_BIT], sum(self.counts[LAST_BIT:])]
        levels = "".join(_level(count, max(kept), glyphs.levels) for count in kept)
        below = "".join(mark.ljust(STEP_BITS) for mark in AXIS).rstrip()
        lines = [[(self.label + GAP, "dim"), (levels, "")], [(" " * len(self.label + GAP), ""), (below, "dim")]]
        return [_crop(line, columns) for line in lines]


def lines_of(page: Iterable[Block], columns: int | None, glyphs: Glyphs) -> list[Line]:
    """A page of which nothing moves the cursor, whatever a name or a label is made of."""
    ascii_only = glyphs is ASCII
    return [
        [(_printable(text, ascii_only), style) for text, style in line]
        for block in page
        for line in block.lines(columns, glyphs)
    ]


def plain(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def cut(text: str, columns: int | None) -> str:
    if columns is None or len(text) <= columns:
        return text
    return text[:columns] if columns <= len(CUT) else text[: columns - len(CUT)] + CUT


def _printable(text: str, ascii_only: bool) -> str:
    if ascii_only:
        text = text.encode("ascii", "replace").decode("ascii")
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _text(cell: str | tuple[str, str]) -> str:
    return cell if isinstance(cell, str) else cell[0]


def _total(widths: list[int], shown: list[int]) -> int:
    return sum(widths[at] for at in shown) + len(GAP) * (len(shown) - 1)


def _crop(line: Line, columns: int | None) -> Line:
    if columns is None:
        return line
    left, kept = columns, []
    for text, style in line:
        kept.append((text[:left], style))
        left -= len(kept[-1][0])
    return kept


def _shares(counts: list[int], width: int) -> list[int]:
    """Lengths that add up to `width`, in proportion; what there is at all is seen, as far as there is room."""
    total = sum(counts)
    if total == 0:
        return [0] * len(counts)
    lengths = [max(1, count * width // total) if count else 0 for count in counts]
    seen = 1 if width >= sum(map(bool, counts)) else 0
    while sum(lengths) != width:
        step = 1 if sum(lengths) < width else -1
        may = [i for i, count in enumerate(counts) if count and (step > 0 or lengths[i] > seen)]
        lengths[max(may, key=lambda i: step * (counts[i] * width / total - lengths[i]))] += step
    return lengths


def _level(value: float | None, most: float, levels: str) -> str:
    if value is None or value <= 0 or most <= 0:
        return levels[0]
    return levels[min(len(levels) - 1, 1 + int(value / most * (len(levels) - 2) + 0.5))]
