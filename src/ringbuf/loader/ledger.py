"""The tasks of a pass that are not answered yet: whose they are, which of them are out, and where their answers will be.

A task is entered when the sampler gave it, given out when there is room for its answer, and settled when it is answered or
never will be. Whoever was to do it may be gone: then it is taken back, and is as if it had never been given out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from ringbuf.loader.course import Job

__all__ = ["Ledger", "Task"]


class Task:
    """A task that is not answered yet.

    number: on the rings; batch: in the pass.
    worker_id: whose it is; None where it is for whoever comes first.
    generation: the data ring in which its answer will be; of a task for anybody the oldest one in which it may be. None before
        it is given out.
    """

    __slots__ = ("batch", "generation", "index", "number", "packed", "worker_id")

    def __init__(self, number: int, worker_id: int | None, job: Job, packed: bytes):
        self.number, self.worker_id, self.packed = number, worker_id, packed
        self.batch, self.index = job.batch, job.index
        self.generation: int | None = None


class Ledger:
    """Tasks by their number, in order.

    out: how many are given out.
    """

    def __init__(self) -> None:
        self.out = 0
        self._tasks: dict[int, Task] = {}
        self._unsent: deque[Task] = deque()  # in order; some may be settled already

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, number: int) -> bool:
        return number in self._tasks

    def __getitem__(self, number: int) -> Task:
        return self._tasks[number]

    def __iter__(self) -> Iterator[Task]:
        """A copy, so that tasks can be settled meanwhile."""
        return iter(list(self._tasks.values()))

    def first(self) -> Task:
        return next(iter(self._tasks.values()))

    def of(self, worker_id: int) -> list[Task]:
        """Those for this worker, given out or not."""
        return [task for task in self._tasks.values() if task.worker_id == worker_id]

    def given_out(self) -> list[Task]:
        return [task for task in self._tasks.values() if task.generation is not None]

    def next_unsent(self) -> Task | None:
        """The first that is not given out; None when all are."""
        while self._unsent and self._unsent[0].number not in self._tasks:
            self._unsent.popleft()
        return self._unsent[0] if self._unsent else None

    def enter(self, task: Task) -> None:
        self._tasks[task.number] = task
        self._unsent.append(task)

    def give_out(self, task: Task, generation: int) -> None:
        """The task that next_unsent() returned was given out, to be answered in this data ring."""
        self._unsent.popleft()
        task.generation = generation
        self.out += 1

    def take_back(self, numbers: Collection[int]) -> None:
        """Put those of these tasks that are not settled among the ones that are not given out."""
        for number in numbers & self._tasks.keys():
            task = self._tasks[number]
            task.generation = None
            self.out -= 1
            self._unsent.append(task)
        self._unsent = deque(sorted(self._unsent, key=lambda task: task.number))

    def move(self, task: Task, generation: int) -> None:
        """From this task on, its worker answers in this data ring, or in a newer one."""
        for other in [task] if task.worker_id is None else self.of(task.worker_id):
            if other.generation is not None and other.number >= task.number:
                other.generation = max(other.generation, generation)

    def settle(self, task: Task) -> None:
        """It is answered, or will never be."""
        del self._tasks[task.number]
        if task.generation is not None:
            self.out -= 1

    def oldest_generation(self) -> int | None:
        """The oldest data ring in which an answer may come; None when nothing is out."""
        return min((task.generation for task in self.given_out()), default=None)
