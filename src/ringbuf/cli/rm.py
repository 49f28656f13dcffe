"""Remove rings whose processes have all died. What somebody uses, or is another user's, stays, whatever is asked for.

Such a leftover is in nobody's way: who makes a ring of its name takes its place. But it takes memory. What stands in a ring's
place and is none, or is damaged, or of another version, goes by NAME if nobody has it in use, and never by --dead.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import sys
from typing import Any

from ringbuf import checks
from ringbuf._core import unlink
from ringbuf.cli.kinds import loader, ring
from ringbuf.cli.kinds.thing import Thing
from ringbuf.cli.outcome import DONE, FAILED, WrongUsage, one_line
from ringbuf.cli.units import age, nbytes

ABOUT = "remove rings whose processes have all died"

EXAMPLES = """\
  ringbuf rm cam0                              this one
  ringbuf rm --dead                            say which are dead
  ringbuf rm --dead --yes                      and remove them
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="of a ring, as `ringbuf ls` lists it")
    parser.add_argument("--dead", action="store_true", help="all of yours whose processes have died; without --yes only say so")
    parser.add_argument("--yes", action="store_true", help="with --dead: do it")
    parser.add_argument("--json", action="store_true", help="one object on stdout: removed, would_remove, kept with reasons")


def run(options: argparse.Namespace) -> int:
    if bool(options.names) == options.dead:
        raise WrongUsage("give either names or --dead" if options.dead else "give names, or --dead for all that are dead")
    if options.yes and not options.dead:
        raise WrongUsage("--yes goes with --dead; a NAME is removed without it")
    return _remove_dead(options) if options.dead else _remove_named(options)


def _remove_named(options: argparse.Namespace) -> int:
    removed, kept = [], {}
    for name in dict.fromkeys(options.names):
        try:
            reason = _why_not(name)
            if reason is None:
                unlink(name)
        except ValueError as error:
            raise WrongUsage(one_line(error)) from None
        except OSError as error:
            reason = error.strerror or one_line(error)
        if reason is None:
            removed.append(name)
        else:
            kept[name] = reason
    _tell(options, removed=removed, kept=kept)
    return FAILED if kept else DONE


def _remove_dead(options: argparse.Namespace) -> int:
    dead = [thing for thing in ring.find(everybody=False) if _is_dead(thing)]
    if not options.yes:
        _tell(options, would_remove=[thing.name for thing in dead], things=dead)
        return DONE
    removed, kept, failed = [], {}, False
    for thing in dead:
        try:
            unlink(thing.name)
            removed.append(thing.name)
        except OSError as error:
            kept[thing.name] = error.strerror or one_line(error)
            # It came to life, or somebody was quicker: so it is not dead, which is all that was wanted.
            failed = failed or error.errno not in (errno.EBUSY, errno.ENOENT)
    _tell(options, removed=removed, kept=kept)
    return FAILED if failed else DONE


def _is_dead(thing: Thing) -> bool:
    """Whether it is a whole ring of this version, of which nobody is left."""
    return thing.alive is False and thing.note == "dead"


def _why_not(name: str) -> str | None:
    """Why a ring has to stay; None: it may go. Should that change before it goes, unlink() finds out too."""
    try:
        snapshot = ring.look(checks.ring_name(name))
    except FileNotFoundError:
        return _what_else(name)
    if snapshot["user"] != os.geteuid():
        return f"it is {snapshot['problem']}, and theirs to remove"
    if not snapshot["alive"]:
        return None
    pids = ring.holders(snapshot)
    if not pids:
        return "a living process uses it; end that first"
    others = f" and {len(pids) - 1} more" if len(pids) > 1 else ""
    return f"process {pids[0]}{others} use{'' if others else 's'} it; end {'them' if others else 'it'} first"


def _what_else(name: str) -> str:
    from ringbuf.net import inquiry

    with contextlib.suppress(OSError, ValueError):
        pid = inquiry.process_of(name)
        return f"it is a server, which goes when {f'process {pid}' if pid else 'its process'} ends"
    for one in loader.there():
        if one.name == name:
            return f"it is a loader, of which there is nothing to remove: all of it goes when process {one.pid} ends"
    return "no ring has this name"


def _tell(options: argparse.Namespace, *, things: list[Thing] | None = None, **told: Any) -> None:
    if options.json:
        print(json.dumps(told, indent=1))
        return
    for name in told.get("removed", []):
        print(f"removed {name}")
    for name, reason in told.get("kept", {}).items():
        print(f"ringbuf rm: {name!r} stays: {reason}", file=sys.stderr)
    if things is None:
        if not told["removed"] and not told["kept"]:
            print("no ring of yours is dead")
        return
    for thing in things:
        print(f"would remove {thing.name}: {nbytes(thing.nbytes or 0)}, {age(thing.age_s or 0)} old")
    print("to remove what is dead: ringbuf rm --dead --yes" if things else "no ring of yours is dead")
