# cython: language_level=3
"""The tasks of a pass that are not answered yet: whose they are, which of them are out, and where their answers will be.

A task is entered when the sampler gave it, given out when there is room for its answer, and settled when it is answered or
never will be. Whoever was to do it may be gone: then it is taken back, and is as if it had never been given out.

In Cython, since every batch goes through here several times; there is nothing in it that could not be Python.
"""

cimport cython

__all__ = ["Ledger", "Task"]


@cython.final
cdef class Task:
    """A task that is not answered yet.

    number: on the rings; batch: in the pass.
    worker_id: whose it is; None where it is for whoever comes first.
    generation: the data ring in which its answer will be; of a task for anybody the oldest one in which it may be. None before
        it is given out.
    packed: its job, as bytes.
    """

    cdef readonly object number, worker_id, batch, index
    cdef readonly bytes packed
    cdef public object generation

    def __init__(self, number, worker_id, batch, index, bytes packed):
        self.number, self.worker_id, self.batch, self.index, self.packed = number, worker_id, batch, index, packed


@cython.final
cdef class Ledger:
    """Tasks by their number, in order.

    out: how many are given out.
    unsent: those that are not, in order; some may be settled already.
    """

    cdef readonly Py_ssize_t out
    cdef readonly list unsent
    cdef dict tasks

    def __init__(self):
        self.unsent = []
        self.tasks = {}

    def __len__(self):
        return len(self.tasks)

    def __contains__(self, number):
        return number in self.tasks

    def __getitem__(self, number):
        return self.tasks[number]

    def __iter__(self):
        """A copy, so that tasks can be settled meanwhile."""
        return iter(list(self.tasks.values()))

    def first(self):
        for task in self.tasks.values():
            return task
        raise LookupError("there are no tasks")

    def of(self, worker_id):
        """Those for this worker, given out or not."""
        return [task for task in self.tasks.values() if (<Task>task).worker_id == worker_id]

    def given_out(self):
        return [task for task in self.tasks.values() if (<Task>task).generation is not None]

    def next_unsent(self):
        """The first that is not given out; None when all are."""
        while self.unsent and (<Task>self.unsent[0]).number not in self.tasks:
            del self.unsent[0]
        return self.unsent[0] if self.unsent else None

    def enter(self, Task task):
        self.tasks[task.number] = task
        self.unsent.append(task)

    def give_out(self, Task task, generation):
        """The task that next_unsent() returned was given out, to be answered in this data ring."""
        del self.unsent[0]
        task.generation = generation
        self.out += 1

    def take_back(self, numbers):
        """Put those of these tasks that are not settled among the ones that are not given out."""
        for number in numbers & self.tasks.keys():
            task = <Task>self.tasks[number]
            task.generation = None
            self.out -= 1
            self.unsent.append(task)
        self.unsent.sort(key=number_of)

    def move(self, Task task, generation):
        """From this task on, its worker answers in this data ring, or in a newer one."""
        for other in [task] if task.worker_id is None else self.of(task.worker_id):
            if other.generation is not None and other.number >= task.number:
                other.generation = max(other.generation, generation)

    def settle(self, Task task):
        """It is answered, or will never be."""
        del self.tasks[task.number]
        if task.generation is not None:
            self.out -= 1

    def oldest_generation(self):
        """The oldest data ring in which an answer may come; None when nothing is out."""
        return min((task.generation for task in self.given_out()), default=None)


def number_of(Task task):
    return task.number
