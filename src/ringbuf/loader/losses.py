"""What the deaths of workers mean: who is missed, and what is left undone. This only looks; iterator.py acts.

What a worker had in hand, the rings say: its task lies in the task ring until it is answered (tasks.py), and the
answer in a data ring until it is taken. Both tell the truth about the dead as long as nobody else clears up after them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringbuf.loader._ledger import Ledger, Task
from ringbuf.loader.lifecycle import Crew
from ringbuf.loader.messages import END, GROW
from ringbuf.loader.rings import DataRings
from ringbuf.loader.tasks import TaskBoard

__all__ = ["Losses"]


class Losses:
    """Of one iterator.

    tasks: what is not answered.
    shared: whether tasks are for whichever worker is idle.
    """

    def __init__(self, tasks: Ledger, *, crew: Crew, board: TaskBoard, rings: DataRings, shared: bool):
        self._tasks = tasks
        self._crew = crew
        self._board = board
        self._rings = rings
        self._shared = shared

    def dead(self) -> list[int]:
        """The workers that have ended."""
        return [member.id for member in self._crew.members if member.over()]

    def missed(self, wanted: Task | None, *, replaceable: bool) -> int | None:
        """A worker that has died, and without whom there is no answer to the wanted task, or to any; or, where it can be
        replaced, one that has anything to do at all."""
        dead = self.dead()
        if not dead:
            return None
        if self._shared:
            return self._missed_by_all(dead, self._tasks if wanted is None or replaceable else [wanted])
        if replaceable:
            return next((worker_id for worker_id in dead if self._owed(worker_id)), None)
        owing = {task.worker_id for task in ([wanted] if wanted is not None else self._tasks.given_out())}
        return next((worker_id for worker_id in dead if worker_id in owing), None)

    def answered(self) -> dict[int, int]:
        """The tasks whose answers lie in the data rings, and what kind of answer it is."""
        views = [view for ring in self._rings.all() for view in ring.look()]
        return {view.tag: view.target for view in views if view.state == "ready" and view.target != GROW}

    def undone(self, worker_id: int) -> list[Task]:
        """The tasks that a dead worker leaves undone; where tasks are for anybody, those that it had begun with."""
        if not self._shared:
            return [task for task in self._owed(worker_id) if task.generation is not None]
        pid = self._crew.members[worker_id].pid
        holders = self._board.holders()
        answered = self.answered()  # in this order: an answer is there before its task is not
        # Without a holder: its worker has lost it, see tasks.py.
        given_out = self._tasks.given_out()
        return [task for task in given_out if holders.get(task.number, pid) == pid and task.number not in answered]

    def whose(self, tasks: Iterable[Task]) -> list[int]:
        """The workers that have these tasks, or have to do them."""
        if not self._shared:
            return sorted({task.worker_id for task in tasks})
        holders = self._board.holders()
        pids = {holders.get(task.number) for task in tasks}
        return [member.id for member in self._crew.members if member.pid in pids]

    def _missed_by_all(self, dead: list[int], tasks: Iterable[Task]) -> int | None:
        """Where tasks are for anybody: while the living have all of these in hand, nobody is missed."""
        pids = {member.pid: member.id for member in self._crew.members}
        holders = self._board.holders()
        answered = self.answered()  # in this order: see above
        for task in tasks:
            holder = pids.get(holders.get(task.number))
            if task.number not in answered and (holder is None or holder in dead):
                return dead[0] if holder is None else holder
        return None

    def _owed(self, worker_id: int) -> list[Task]:
        """The tasks for this worker that it has not answered, given out or not."""
        answered = self.answered()
        own = self._tasks.of(worker_id)
        last = min((task.number for task in own if answered.get(task.number) == END), default=None)
        return [task for task in own if task.number not in answered and (last is None or task.number < last)]
