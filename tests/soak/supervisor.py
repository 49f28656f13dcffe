"""Starts the arenas, shows how they get on, ends them, and says whether all was well."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from typing import Any

from . import census, leak, report
from .arena import Arena, Board
from .loader_arena import LoaderArena
from .progress import Stall
from .ring_arena import RingArena

PR_SET_CHILD_SUBREAPER = 36
LOOK_S = 0.05
BLOCKED_S = 30.0  # an arena whose counters do not move for so long is blocked itself
GRACE_S = 30.0  # what a last round may take
ORPHANS_S = 5.0
REPORT_BYTES = 1 << 20


class Post:
    """An arena's process, seen from here."""

    def __init__(self, arena: Arena):
        self.arena, self.board = arena, arena.board
        self.stall = Stall()
        self.status: int | None = None
        self._report = os.memfd_create("soak-report")
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            arena.run(self._report)

    def read(self) -> dict[str, Any]:
        data = os.pread(self._report, REPORT_BYTES, 0)
        os.close(self._report)
        if data:
            return json.loads(data)
        return {"failure": f"{self.arena.name} ended with status {self.status} and said nothing", "growth": None}


class Supervisor:
    def __init__(self, seed: int, seconds: float):
        self.seed, self.seconds = seed, seconds
        self.failures: list[str] = []
        self.interrupted = False
        self.growth = leak.Growth(seconds)
        self.posts: list[Post] = []

    def run(self) -> int:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # whoever loses its parent becomes our child
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._interrupt)
        names = census.names_of_rings()
        before = census.Possessions.now()
        self.began = time.monotonic()
        self.live = report.LiveLine(self.seconds)
        self._start()
        try:
            self._watch()
        finally:
            self._end_all()
        reports = {post.arena.name: post.read() for post in self.posts}
        self.failures += [one["failure"] for one in reports.values() if one["failure"]]
        growths = {name: one["growth"] for name, one in reports.items() if one["growth"]}
        growths["supervisor"] = self.growth.report()
        for name, growth in growths.items():
            self.failures += leak.leaks(name, growth)
        self._demand_nothing_left(before, names)
        report.print_result(self, growths)
        return 1 if self.failures else 0

    def _start(self) -> None:
        arenas = [RingArena(kind, self.seed, self.seconds, Board()) for kind in ("queue", "overwrite", "broadcast")]
        arenas += [LoaderArena(number, self.seed, self.seconds, Board()) for number in range(2)]
        self.posts = [Post(arena) for arena in arenas]

    def _watch(self) -> None:
        while any(post.status is None for post in self.posts):
            time.sleep(LOOK_S)
            self._bury()
            if any(post.status for post in self.posts):
                return  # its report says why
            self._look_for_blocked_arenas()
            if self.live.due():
                self.live.show(self.posts, census.family(os.getpid()))
                self.growth.sample(
                    memory_kib=census.memory_kib(),
                    descriptors=census.descriptors(os.getpid()),
                    processes=len(census.children_of(os.getpid())),
                )

    def _bury(self) -> None:
        """Wait for arenas, and for orphans that have become ours."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                for post in self.posts:
                    if post.pid == pid:
                        post.status = os.waitstatus_to_exitcode(status)

    def _look_for_blocked_arenas(self) -> None:
        late = time.monotonic() - self.began > self.seconds + GRACE_S
        for post in self.posts:
            if post.status is not None:
                continue
            blocked = post.stall.look(post.board["beat"]) > BLOCKED_S
            if blocked or late:
                self.failures.append(
                    f"{post.arena.name} {'is blocked' if blocked else 'does not end'} in round {post.board['rounds']}"
                )
                self._dump_stacks()
                post.status = -1
                return

    def _dump_stacks(self) -> None:
        for pid in census.family(os.getpid()):
            print(f"---- stacks of process {pid}", file=sys.stderr, flush=True)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
            time.sleep(0.1)

    def _end_all(self) -> None:
        """Kill what is still there: after a failure, everything; otherwise nothing should be."""
        unfinished = [post for post in self.posts if post.status is None or post.status == -1]
        for post in unfinished:
            post.board["told"] = 1
        until = time.monotonic() + (GRACE_S if not self.failures else 0)
        while any(post.status is None for post in unfinished) and time.monotonic() < until:
            time.sleep(LOOK_S)
            self._bury()
        for post in self.posts:
            if post.status is None or post.status == -1:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(post.pid, signal.SIGKILL)  # its children die with it
                    os.waitpid(post.pid, 0)

    def _demand_nothing_left(self, before: census.Possessions, names: set[str]) -> None:
        until = time.monotonic() + ORPHANS_S
        while (left := census.family(os.getpid())) and time.monotonic() < until:
            time.sleep(LOOK_S)
            self._bury()
        if left:
            self.failures.append(f"processes are left: {[(pid, _command(pid)) for pid in left]}")
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        after = census.Possessions.now()
        # Fewer threads are no leak: numpy's end when a process forks.
        if any(now > then for now, then in zip(after, before)):
            self.failures.append(f"the supervisor had {before}, and has {after}")
        new = {name for name in census.names_of_rings() - names if f"{census.PREFIX}soak-" in name}
        if new and not self.failures:
            self.failures.append(f"left in {census.SHM}: {sorted(new)}")

    def _interrupt(self, number: int, _: Any) -> None:
        self.interrupted = True
        for post in self.posts:
            post.board["told"] = 1


def _command(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    return "?"
