"""A stretch of the life of a loader, looked at from its beginning to its end."""

from __future__ import annotations

from dataclasses import replace

from ringbuf.cli.diagnosis.measures import Measures, batch_times, measure
from ringbuf.cli.diagnosis.processes import Tally, Times
from ringbuf.telemetry import Reader, Snapshot

__all__ = ["NOTE_S", "Stretch"]

NOTE_S = 0.5  # between two looks at the processes, some of which may end before the stretch does


class Stretch:
    """It begins now."""

    def __init__(self, reader: Reader):
        self._reader = reader
        self._near = reader.look().pid == reader.pid  # else it is in a container, and its workers' pids mean nothing here
        self._cursor = reader.cursor()
        self._trainer = Tally([reader.pid])
        self._before = self.last = reader.snapshot()
        self._workers = Tally(self._pids(self._before))

    def note(self) -> Snapshot:
        """Look at it; twice a second is enough."""
        self.last = self._reader.snapshot()
        self._workers.note(self._pids(self.last))
        self._trainer.note([self._reader.pid])
        return self.last

    def measures(self, *, cores: float, **more: object) -> Measures:
        """It ends now. More: what Measures has, and a page does not tell."""
        after = self.note()
        typical_s, slow_s = batch_times(self._reader.events(self._cursor).events)
        trainer, workers = self._trainer.total(), self._workers.total()
        found = measure(self._before, after, cores=cores, typical_s=typical_s, slow_s=slow_s, **more)
        if not after.num_workers and trainer is not None:  # it makes them itself: at most so much was for that
            workers = Times(min(trainer.processor_s, found.busy_s), None)
        return replace(
            found,
            processor_s=workers and workers.processor_s,
            delay_s=workers and workers.delay_s,
            trainer_processor_s=trainer and trainer.processor_s,
        )

    def _pids(self, snapshot: Snapshot) -> list[int]:
        alive = (worker for worker in snapshot.workers if worker.state not in ("absent", "ended", "dead"))
        return [worker.pid for worker in alive] if self._near and snapshot.num_workers else []
