"""Processes that a supervisor starts, kills, stops and buries.

Only its own children are ever signalled, and only before they are waited for: until then the kernel gives their pid
to nobody else.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

PR_SET_PDEATHSIG = 1
UNHAPPY = 101  # exit status of an actor that found something wrong


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent's main thread ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Actor:
    """A process and what it is for. `number`: its row, never used twice in a round; `place`: whom it stands for."""

    def __init__(self, role: str, place: int, number: int):
        self.role, self.place, self.number = role, place, number
        self.pid = 0
        self.stopped = False
        self.killed = False
        self.status: int | None = None  # as subprocess's returncode, once it is over

    def __repr__(self) -> str:
        state = "stopped" if self.stopped else "alive" if self.status is None else f"ended with {self.status}"
        return f"{self.role} {self.place} (row {self.number}, pid {self.pid}, {state})"


class Troupe:
    """All actors of a round, those that are over included."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.kills: dict[str, int] = {}
        self.stops = 0

    def start(self, role: str, place: int, body: Callable[[Actor], Any]) -> Actor:
        """Fork a process that runs body(actor)."""
        actor = Actor(role, place, len(self.actors))
        self.actors.append(actor)
        sys.stderr.flush()
        actor.pid = os.fork()
        if actor.pid == 0:
            _perform(actor, body)
        return actor

    @property
    def alive(self) -> list[Actor]:
        return [actor for actor in self.actors if actor.status is None]

    @property
    def any_stopped(self) -> bool:
        return any(actor.stopped for actor in self.alive)

    def at(self, role: str, place: int) -> Actor | None:
        """Who stands there now."""
        return next((a for a in reversed(self.actors) if (a.role, a.place, a.status) == (role, place, None)), None)

    def kill(self, actor: Actor, number: int = signal.SIGKILL) -> None:
        actor.killed = True
        self.kills[actor.role] = self.kills.get(actor.role, 0) + 1
        os.kill(actor.pid, number)
        if actor.stopped and number != signal.SIGKILL:
            self.go_on(actor)  # a stopped process dies of nothing else

    def stop(self, actor: Actor) -> None:
        self.stops += 1
        actor.stopped = True
        os.kill(actor.pid, signal.SIGSTOP)

    def go_on(self, actor: Actor) -> None:
        actor.stopped = False
        os.kill(actor.pid, signal.SIGCONT)

    def bury(self) -> list[Actor]:
        """Wait for those that are over; return them."""
        over = []
        for actor in self.alive:
            pid, status = os.waitpid(actor.pid, os.WNOHANG)
            if pid:
                actor.status = os.waitstatus_to_exitcode(status)
                over.append(actor)
        return over

    def end(self) -> None:
        """Kill whoever is left."""
        for actor in self.alive:
            os.kill(actor.pid, signal.SIGKILL)
            actor.status = os.waitstatus_to_exitcode(os.waitpid(actor.pid, 0)[1])


def _perform(actor: Actor, body: Callable[[Actor], Any]) -> None:
    """A child's whole life."""
    status = UNHAPPY
    try:
        die_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        actor.pid = os.getpid()
        body(actor)
        status = 0
    except BaseException:
        print(f"{actor}:", file=sys.stderr)
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)
