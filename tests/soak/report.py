"""What is shown: a line while it runs, a table and the figures at the end."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from . import census
from .arena import COUNTERS

if TYPE_CHECKING:
    from .supervisor import Post, Supervisor

KILLS = [name for name in COUNTERS if name.startswith("kills_")]


def total(posts: list[Post], name: str) -> int:
    values = [post.board[name] for post in posts]
    return max(values) if name == "stall_ms" else sum(values)


class LiveLine:
    """On a terminal one line that changes each second, elsewhere a line now and then."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began + 1.0

    def due(self) -> bool:
        if time.monotonic() < self._next:
            return False
        self._next += 1.0
        return True

    def show(self, posts: list[Post], family: list[int]) -> None:
        elapsed = time.monotonic() - self._began
        if not self._terminal and int(elapsed) % 10:
            return
        text = (
            f"{elapsed:6.0f}/{self._seconds:.0f} s  {total(posts, 'messages')} messages  "
            f"{total(posts, 'batches')} batches  {sum(total(posts, name) for name in KILLS)} kills  "
            f"{total(posts, 'stops')} stops  {total(posts, 'losses')} lost  "
            f"{sum(map(census.pss_kib, family)) >> 10} MiB PSS  {sum(map(census.descriptors, family))} fds  "
            f"{len(family)} processes"
        )
        print(
            f"\r\033[K{text}" if self._terminal else text,
            end="" if self._terminal else "\n",
            file=sys.stderr,
            flush=True,
        )


def print_result(supervisor: Supervisor, growths: dict[str, Any]) -> None:
    posts = supervisor.posts
    elapsed = time.monotonic() - supervisor.began
    if sys.stderr.isatty():
        print(file=sys.stderr)
    for failure in supervisor.failures:
        print(f"\nFAILED: {failure}", file=sys.stderr)
    if supervisor.failures:
        print(
            f"\nrepeat with: python -m tests.soak --minutes {supervisor.seconds / 60:g} --seed {supervisor.seed}",
            file=sys.stderr,
        )
    sys.stderr.flush()

    columns = ["rounds", "messages", "batches", *KILLS, "stops", "losses", "died", "stall_ms"]
    words = {"died": "WorkerDied", "stall_ms": "max stall ms"}
    heads = [words.get(name, name.replace("kills_", "killed ")) for name in columns]
    rows = [[post.arena.name, *(post.board[name] for name in columns)] for post in posts]
    rows.append(["all", *(total(posts, name) for name in columns)])
    print(f"\nseed {supervisor.seed}, {elapsed:.0f} s{', interrupted' if supervisor.interrupted else ''}\n")
    _table(["arena", *heads], rows)
    print("\n  from one rest to the next (after the first quarter):\n")
    rows = [
        [name, one["memory_kib"]["samples"], *(f"{one[what]['mean']:.1f} {one[what]['slope']:+.3f}/s" for what in one)]
        for name, one in growths.items()
    ]
    _table(["process", "samples", "memory KiB", "descriptors", "children"], rows)
    if not supervisor.failures:
        figures = {
            "seconds": int(elapsed),
            "rounds": total(posts, "rounds"),
            "messages": total(posts, "messages"),
            "batches": total(posts, "batches"),
            **{name: total(posts, name) for name in KILLS},
            "stops": total(posts, "stops"),
            "losses": total(posts, "losses"),
            "max_stall_ms": total(posts, "stall_ms"),
            "steepest_rise_kib": max(0, *(int(one["memory_kib"]["rise"]) for one in growths.values())),
        }
        print("\nfigures: " + " ".join(f"{name}={value}" for name, value in figures.items()))
    sys.stdout.flush()


def _table(heads: list[str], rows: list[list[Any]]) -> None:
    cells = [[str(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))
        print("  ".join(["", row[0].ljust(widths[0]), *numbers]))
