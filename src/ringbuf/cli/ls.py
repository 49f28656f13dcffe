"""List your rings, servers and loaders: whose they are, whether they live, what they hold. Nobody is disturbed."""

from __future__ import annotations

import argparse
import json

from ringbuf.cli.kinds import NOTHING, find
from ringbuf.cli.kinds.thing import Thing
from ringbuf.cli.outcome import DONE
from ringbuf.cli.page import KEEP, Block, Column, Prose, Table
from ringbuf.cli.painter import show
from ringbuf.cli.units import age, nbytes

ABOUT = "list rings, servers and loaders"

EXAMPLES = """\
  ringbuf ls                                   yours
  ringbuf ls --all                             also rings of other users
  ringbuf ls --json | jq -r '.[] | select(.alive == false).name'
"""

COLUMNS = (
    Column("kind", 8),
    Column("name", KEEP),
    Column("owner", 9, right=True),
    Column("", 10),
    Column("mode", 4),
    Column("slots", 6),
    Column("bytes", 5, right=True),
    Column("age", 3, right=True),
    Column("note", 7, least=12),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also rings of other users, of which little can be known")
    parser.add_argument("--json", action="store_true", help="a list of objects on stdout")


def run(options: argparse.Namespace) -> int:
    things = find(everybody=options.all)
    if options.json:
        print(json.dumps([thing._asdict() for thing in things], indent=1))
    else:
        show(page(things))
    return DONE


def page(things: list[Thing]) -> list[Block]:
    if not things:
        return [Prose(NOTHING)]
    return [Table(COLUMNS, [_row(thing) for thing in things])]


def _row(thing: Thing) -> list[str | tuple[str, str]]:
    return [
        thing.kind,
        (thing.name, "strong"),
        "" if thing.pid is None else str(thing.pid),
        {True: ("alive", "good"), False: ("dead", "bad"), None: ("?", "dim")}[thing.alive],
        thing.mode or "",
        ", ".join(f"{n} {state}" for state, n in (thing.slots or {}).items() if n),
        "" if thing.nbytes is None else nbytes(thing.nbytes),
        "" if thing.age_s is None else age(thing.age_s),
        "" if thing.note == "dead" else thing.note,
    ]
