"""Rounds over a ring: it is made, used by actors that are killed and stopped, brought to rest, checked, closed."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import deque

from ringbuf import RingBuffer

from . import accounting, actors, census
from .accounting import Got, Loss, Sent
from .arena import Arena, Board, Failure, stacks
from .journal import DONE, DRAINED, INTENT, LEAVE, LOOKS, PHASE, REST, ROWS, Receipts, Rows
from .payload import HEAD_BYTES
from .plan import Round, Step, plan_round
from .progress import AfterKill, Stall
from .troupe import Actor, Troupe

ROUND_S = 4.0
STALLED_S = 3.0  # nothing has moved: what is held by the dead comes back in 0.1 s, whoever looks after it may die too
DEADLINE_S = 6.0  # for an actor to end, or to come back from a call
LOOK_S = 0.003
SEGMENT_BYTES = 1 << 18  # of a failed ring, to be looked at: its header, rows, slot words


class RingArena(Arena):
    def __init__(self, kind: str, seed: int, seconds: float, board: Board):
        super().__init__(seed, seconds, board)
        self.kind = self.name = kind
        self._game: Game | None = None

    def play(self, number: int) -> None:
        plan = plan_round(self.kind, f"{self.seed}/{self.kind}/{number}", ROUND_S)
        name = f"soak-{os.getpid()}-{self.kind}" if plan.named else None
        if plan.leftover:
            _leave_a_dead_ring(name)
        with Game(plan, name, self.board) as game:
            self._game = game
            game.play()
            game.come_to_rest()
            game.check()
        self._game = None
        if name and f"{census.PREFIX}{name}" in census.names_of_rings():
            raise Failure(f"the name {name} outlives its ring")

    def describe(self) -> str:
        return "" if self._game is None else self._game.described


class Game:
    """One round."""

    def __init__(self, plan: Round, name: str | None, board: Board):
        self.plan, self.board = plan, board
        self.ring = RingBuffer(
            plan.slots,
            plan.data_bytes + HEAD_BYTES,
            name=name,
            mode=plan.mode,
            full=plan.full,
            redeliver=plan.redeliver,
        )
        self.rows = Rows()
        self.troupe = Troupe()
        self.receipts: dict[int, Receipts] = {}
        self.losses: set[Loss] = set()
        self.stage = actors.Stage(plan, self.ring, self.rows)
        self.stall = Stall()
        self.calls: dict[int, Stall] = {}
        self.after_kill = AfterKill(plan.slots + 1)
        self.described = ""
        self._counted = 0
        self._vacant: list[tuple[Actor, int]] = []

    def __enter__(self) -> Game:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self.described = self._describe()
        self.troupe.end()
        for receipts in self.receipts.values():
            receipts.close()
        self.rows.close()
        self.ring.close()

    # ---- the round

    def play(self) -> None:
        plan = self.plan
        for place in range(plan.producers):
            self._cast("producer", place)
        for place in range(plan.takers):
            self._cast(plan.taker, place)
        steps = deque(plan.steps)
        began = time.monotonic()
        while (now := time.monotonic() - began) < plan.seconds and not self.board["told"]:
            while steps and steps[0].at_s <= now and len(self.troupe.actors) < ROWS - 8:
                self._do(steps.popleft())
            self._replace()
            self._look()
            time.sleep(LOOK_S)
        self._demand_progress()

    def come_to_rest(self) -> None:
        """No more faults; producers leave, and takers when all is taken."""
        self._send_home("producer", LEAVE)
        if self.plan.ending == "finish":
            self.ring.finish()
        self._send_home(self.plan.taker, REST)

    def check(self) -> None:
        self.ring.recover()  # who died while nobody waited
        self._read_losses()
        stats = self.ring.stats()
        state = (stats.free, stats.writing, stats.ready, stats.reading, stats.participants, stats.readers)
        if state != (self.plan.slots, 0, 0, 0, 1, 0):
            raise Failure(f"the ring of {self.plan.slots} slots did not come to rest: {stats}")
        accounting.check(self.plan, self._sent(), self._got(), sorted(self.losses, key=str), stats)
        if self.plan.ending == "drain":
            self._reach_all_slots()
        board = self.board
        for role, kills in self.troupe.kills.items():
            board[f"kills_{role}"] += kills
        board["stops"] += self.troupe.stops
        board["losses"] += len(self.losses)
        board["stall_ms"] = max(board["stall_ms"], int(self.after_kill.longest_s * 1000))

    # ---- parts

    def _cast(self, role: str, place: int) -> Actor:
        if role == "producer":
            return self.troupe.start(role, place, lambda actor: actors.produce(self.stage, actor))
        receipts = Receipts()
        actor = self.troupe.start(role, place, lambda actor: actors.take(self.stage, actor, receipts))
        self.receipts[actor.number] = receipts
        return actor

    def _do(self, step: Step) -> None:
        actor = self.troupe.at(step.role, step.place)
        if actor is None or actor.killed:
            return
        if step.act == "kill":
            self.troupe.kill(actor, step.signal)
            self.after_kill.kill(self.rows.total(len(self.troupe.actors)))
        elif step.act == "stop" and not actor.stopped:
            self.troupe.stop(actor)
        elif step.act == "continue" and actor.stopped:
            self.troupe.go_on(actor)
        elif step.act == "leave":
            self.rows.row(actor.number)[LEAVE] = 1

    def _bury(self) -> list[Actor]:
        over = self.troupe.bury()
        for actor in over:
            if actor.status not in ((0, *(-number for number in DEADLY)) if actor.killed else (0,)):
                raise Failure(f"{actor} did not end as it should have")
            actor.killed = actor.status < 0  # or it had left by itself a moment before
        return over

    def _demand_progress(self) -> None:
        """When all goes on that was stopped, messages must go once round the ring."""
        for actor in self.troupe.alive:
            if actor.stopped:
                self.troupe.go_on(actor)
        target = self.rows.total(len(self.troupe.actors)) + self.plan.slots + 1
        while self.rows.total(len(self.troupe.actors)) < target:
            self._replace()
            self._look()
            time.sleep(LOOK_S)

    def _replace(self) -> None:
        """Put somebody in the place of whoever is over: every other time at once, who may then find the dead as he joins; else
        not before the survivors, left to themselves, have moved messages once round the ring."""
        moved = self.rows.total(len(self.troupe.actors))
        self._vacant += [(actor, moved + (self.plan.slots + 1) * (actor.number % 2)) for actor in self._bury()]
        roles = {actor.role for actor in self.troupe.alive if not actor.killed}
        waiting = []
        for actor, target in self._vacant:
            if moved >= target or len(roles) < 2:
                self._cast(actor.role, actor.place)
            else:
                waiting.append((actor, target))
        self._vacant = waiting

    def _look(self) -> None:
        moved = self.rows.total(len(self.troupe.actors))
        self.board["beat"] += 1
        self.board["messages"] += moved - self._counted
        self._counted = moved
        stopped = self.troupe.any_stopped
        self.after_kill.look(moved, excused=stopped)
        if self.stall.look(moved, excused=stopped) > STALLED_S:
            raise Failure(f"nothing has moved for {STALLED_S} s, and nobody is stopped")
        for actor in self.troupe.alive:
            calls = self.calls.setdefault(actor.number, Stall())
            if calls.look(self.rows.row(actor.number)[LOOKS], excused=stopped) > DEADLINE_S:
                raise Failure(f"{actor} is blocked for {DEADLINE_S} s in one call, while others go on")
        self._read_losses()

    def _read_losses(self) -> None:
        self.losses.update(Loss(loss.tag, loss.pid) for loss in self.ring.lost())

    def _send_home(self, role: str, word: int) -> None:
        for actor in self.troupe.alive:
            if actor.role == role:
                self.rows.row(actor.number)[word] = 1
        going = Stall()
        while left := [actor for actor in self.troupe.alive if actor.role == role]:
            for actor in self._bury():
                unread = word == REST and self.rows.row(actor.number)[PHASE] != DRAINED
                if actor.role != role or unread:
                    self._recast_at_rest(actor, role, word)
            if going.look(len(left) * 10**9 + self.rows.total(len(self.troupe.actors))) > DEADLINE_S:
                raise Failure(f"at rest, {left} did not end within {DEADLINE_S} s")
            self._read_losses()
            self.board["beat"] += 1
            time.sleep(LOOK_S)

    def _recast_at_rest(self, actor: Actor, role: str, word: int) -> None:
        """Whoever was killed or left too early is replaced, so that somebody is there to take what is left."""
        successor = self._cast(actor.role, actor.place)
        if actor.role == role:
            self.rows.row(successor.number)[word] = 1

    def _sent(self) -> list[Sent]:
        sent = []
        for actor in self.troupe.actors:
            if actor.role == "producer":
                row = self.rows.row(actor.number)
                sent.append(Sent(actor.number, actor.pid, actor.killed, row[INTENT], row[DONE], row[PHASE]))
        return sent

    def _got(self) -> list[Got]:
        got = []
        for actor in self.troupe.actors:
            if actor.role != "producer":
                phase = self.rows.row(actor.number)[PHASE]
                got.append(
                    Got(actor.number, actor.killed, phase == DRAINED, phase, *self.receipts[actor.number].read())
                )
        return got

    def _reach_all_slots(self) -> None:
        """Every slot can be claimed, all at once."""
        claims = [self.ring._core.claim(timeout=1.0) for _ in range(self.plan.slots)]
        found = {claim.index for claim in claims}
        for claim in claims:
            claim.abort()
        if found != set(range(self.plan.slots)):
            raise Failure(f"of {self.plan.slots} slots only {sorted(found)} could be claimed")

    def _describe(self) -> str:
        with tempfile.NamedTemporaryFile(prefix="soak-segment-", delete=False) as file:
            file.write(os.pread(self.ring._core.fileno(), SEGMENT_BYTES, 0))
        people = "\n  ".join(map(str, self.troupe.actors[-40:]))
        return (
            f"\n  plan: {self.plan}\n  ring: {self.ring.stats()}\n  losses: {sorted(self.losses, key=str)}"
            f"\n  actors, the last ones:\n  {people}\n  what the living do:\n{stacks(self.troupe)}"
            f"\n  the beginning of the segment is in {file.name}"
        )


DEADLY = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)


def _leave_a_dead_ring(name: str | None) -> None:
    """A process makes a ring of this name, fills it and is killed: the next ring of the name replaces it."""

    def die(_: Actor) -> None:
        ring = RingBuffer(2, 100, name=name)
        ring.put("of the dead")
        os.kill(os.getpid(), signal.SIGKILL)

    troupe = Troupe()
    actor = troupe.start("leftover", 0, die)
    actor.status = os.waitstatus_to_exitcode(os.waitpid(actor.pid, 0)[1])
    if actor.status != -signal.SIGKILL:
        raise Failure(f"{actor} could not make a ring of a free name")
