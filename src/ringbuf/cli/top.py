"""Watch a running ring, server or loader from outside; without a NAME, all of yours. Who is watched need not know or answer.

On a terminal one screen is drawn again and again, until q or Ctrl-C; elsewhere a block follows the other. It ends when what is
watched is gone. Rates are of the last interval, those of servers and loaders of the last 5 seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from typing import Any

from ringbuf.cli.counts import count, seconds
from ringbuf.cli.kinds import KINDS, NAMES, NOTHING, find, kinds, there_is
from ringbuf.cli.kinds.thing import Row, Watch
from ringbuf.cli.outcome import DONE, TERMINATED, Failed
from ringbuf.cli.page import KEEP, Block, Column, Prose, Table
from ringbuf.cli.painter import screen
from ringbuf.cli.sigterm import Terminated, terminated_by_sigterm
from ringbuf.cli.terminal import is_terminal, keys
from ringbuf.cli.units import nbytes, percent, rate

ABOUT = "watch rings, servers and loaders at work"

EXAMPLES = """\
  ringbuf top                                  all of yours
  ringbuf top train --interval 0.5
  ringbuf top train --json -n 10 | jq '.things[0].messages_per_s'
"""

COLUMNS = (
    Column("kind", 3),
    Column("name", KEEP),
    Column("owner", 2, right=True),
    Column("rate", 8, right=True),
    Column("bytes", 4, right=True),
    Column("ready", 7, right=True),
    Column("", 6, least=12),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help=NAMES)
    parser.add_argument("--interval", type=seconds, default=1.0, metavar="S", help="seconds between two looks (default 1)")
    parser.add_argument("-n", dest="count", type=count, metavar="COUNT", help="end after so many looks")
    parser.add_argument("--json", action="store_true", help="an object a line on stdout, one for each interval")


def run(options: argparse.Namespace) -> int:
    try:
        with terminated_by_sigterm():
            return _run(options)
    except Terminated:
        return TERMINATED


def _run(options: argparse.Namespace) -> int:
    crowd = _Named(options.name) if options.name is not None else _All()
    crowd.look()
    if options.json:
        return _lines(crowd, options)
    terminal = is_terminal(sys.stdout)
    with keys(terminal) as pressed, screen() as drawn:
        footer = f"q ends{'' if options.interval == 1 else f', every {options.interval:g} s'}" if terminal else ""
        if terminal:  # one that is there is better than an empty one, even if it has no rates yet
            drawn.draw(crowd.page(), footer)
        done, due = 0, time.monotonic()
        while options.count is None or done < options.count:
            due = max(due + options.interval, time.monotonic())
            while what := pressed.wait(due - time.monotonic()):
                if what == "quit":
                    return DONE
                drawn.draw(crowd.page(), footer)
            if not crowd.look():
                break
            drawn.draw(crowd.page(), footer)
            done += 1
    if options.name is not None and not crowd:
        print(f"{options.name} is gone")
    return DONE


def _lines(crowd: Any, options: argparse.Namespace) -> int:
    done, due = 0, time.monotonic()
    while options.count is None or done < options.count:
        due = max(due + options.interval, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        there = crowd.look()
        print(json.dumps({"at": time.time(), "things": crowd.frames}, separators=(",", ":")), flush=True)
        if not there:
            break
        done += 1
    return DONE


class _Crowd:
    """Things that are watched together."""

    def __init__(self) -> None:
        self._watches: dict[tuple[str, str], Watch] = {}
        self.frames: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._watches)

    def _look_at_all(self) -> None:
        self.frames = []
        for key, watch in list(self._watches.items()):
            try:
                self.frames.append(watch.look())
            except FileNotFoundError:
                del self._watches[key]

    def _pages(self) -> list[Block]:
        blocks: list[Block] = []
        for watch in self._watches.values():
            blocks += [Prose("")] if blocks else []
            blocks += watch.page()
        return blocks

    def _table(self) -> Table:
        names = Counter((frame["kind"], frame["name"]) for frame in self.frames)
        rows = []
        for frame, watch in zip(self.frames, self._watches.values()):
            alone = names[frame["kind"], frame["name"]] == 1
            rows.append(_row(frame, frame["name"] if alone else frame["key"], watch.row()))
        return Table(COLUMNS, rows)


def _row(frame: dict[str, Any], name: str, row: Row) -> list[str | tuple[str, str]]:
    size = "" if row.bytes_per_s is None else f"{nbytes(row.bytes_per_s)}/s"
    share = "" if row.share is None else percent(row.share)
    return [frame["kind"], (name, "strong"), str(frame["pid"] or ""), rate(row.messages_per_s), size, share, row.note]


class _Named(_Crowd):
    """All that have one name."""

    def __init__(self, name: str):
        super().__init__()
        self._name = name
        self._watches = {(kind.KIND, key): kind.watch(key) for kind in kinds() for key in kind.keys(name)}

    def look(self) -> bool:
        """Whether there is still something to look at. Failed when there has been nothing from the beginning."""
        first = not self.frames
        self._look_at_all()
        if first and not self:
            raise Failed(f"nothing is named {self._name!r}; {there_is(find())}")
        return bool(self)

    def page(self) -> list[Block]:
        if len({kind for kind, _ in self._watches}) == len(self):
            return self._pages()
        return [self._table(), Prose("one of them alone: ringbuf top PID, or PID/NAME", "dim")]


class _All(_Crowd):
    """All of this user's that there are at a time."""

    def look(self) -> bool:
        by_kind = dict(zip(KINDS, kinds()))
        there = {(thing.kind, thing.key): thing for thing in find()}
        self._watches = {key: self._watches.get(key) or by_kind[key[0]].watch(key[1]) for key in there}
        self._look_at_all()
        return True

    def page(self) -> list[Block]:
        if not self:
            return [Prose(NOTHING)]
        if len(self) == 1:
            return self._pages()
        return [self._table()]
