"""What all arenas have in common: counters that the supervisor reads, rounds, rests, and a report at the end."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from . import census, leak
from .journal import Words
from .troupe import Troupe, die_with_parent

COUNTERS = (
    "beat",  # moves whenever the arena does
    "told",  # by the supervisor: end after this round
    "rounds",
    "messages",
    "batches",
    "kills_producer",
    "kills_consumer",
    "kills_reader",
    "kills_worker",
    "kills_main",
    "stops",
    "losses",
    "died",  # WorkerDied raised
    "stall_ms",
)


class Board:
    """Counters of one arena, in memory that it shares with the supervisor."""

    def __init__(self) -> None:
        self._words = Words(len(COUNTERS))

    def __getitem__(self, name: str) -> int:
        return self._words.at[COUNTERS.index(name)]

    def __setitem__(self, name: str, value: int) -> None:
        self._words.at[COUNTERS.index(name)] = value


class Failure(AssertionError):
    """Something is wrong. The text says everything that is known about it."""


class Arena:
    """A process that lives as long as the run and plays one round after another."""

    name = "arena"

    def __init__(self, seed: int, seconds: float, board: Board):
        self.seed, self.seconds, self.board = seed, seconds, board

    def play(self, number: int) -> None:
        """One round, with all its checks; afterwards everything is as before."""
        raise NotImplementedError

    def describe(self) -> str:
        """For a report of what went wrong: the plan and the state of the round."""
        return ""

    def clean_up(self) -> None:
        """After a failure: end what the round has started."""

    # ---- called in the arena's own process

    def run(self, report_to: int) -> None:
        """Play until told to end, and write the report to a descriptor. Never returns."""
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        failure = None
        began = time.monotonic()
        self.growth = leak.Growth(self.seconds)
        try:
            self.warm_up()
            before = census.Possessions.now()
            while not self.board["told"] and time.monotonic() - began < self.seconds:
                self.board["beat"] += 1
                self.play(self.board["rounds"])
                self._rest(before)
                self.board["rounds"] += 1
        except BaseException as error:
            failure = self._failure(error)
        report = {"failure": failure, "growth": self.growth.report()}
        os.write(report_to, json.dumps(report).encode())
        sys.stderr.flush()
        os._exit(0 if failure is None else 1)

    def warm_up(self) -> None:
        """Start what a process starts once, before it is counted."""

    def _rest(self, before: census.Possessions) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what is free, but kept for later, is no leak
        now = census.Possessions.now()
        if now != before:
            fds = {name: os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _there(name)}
            raise Failure(f"not as before the round: {now} instead of {before}; descriptors {fds}")
        self.growth.sample(memory_kib=census.memory_kib(), descriptors=now.descriptors, processes=now.children)

    def _failure(self, error: BaseException) -> str:
        text = f"{self.name}, round {self.board['rounds']}: "
        text += str(error) if isinstance(error, AssertionError) else "".join(traceback.format_exception(error))
        if isinstance(error, AssertionError):
            text += "\n" + "".join(traceback.format_tb(error.__traceback__)[-2:])
        for more in (self.describe, self.clean_up):
            try:
                text += more() or ""
            except BaseException:
                text += "\n" + traceback.format_exc()
        return text[:60000]


def _there(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


def stacks(troupe: Troupe) -> str:
    """Have all living actors print their stacks on stderr; return what the kernel knows about them."""
    lines = []
    for actor in troupe.alive:
        known: dict[str, Any] = {}
        for what in ("wchan", "syscall"):
            try:
                known[what] = Path(f"/proc/{actor.pid}/{what}").read_text().strip()
            except OSError as error:
                known[what] = error.strerror
        lines.append(f"  {actor}: {known}")
        print(f"---- stacks of {actor}", file=sys.stderr, flush=True)
        if actor.stopped:
            troupe.go_on(actor)
        os.kill(actor.pid, signal.SIGUSR1)
        time.sleep(0.1)
    return "\n".join(lines)
