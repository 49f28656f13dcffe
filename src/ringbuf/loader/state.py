"""The state of a loader as it is saved: where its last pass began, and how far it came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ringbuf.loader._course import Course, Progress

__all__ = ["Bookmark", "Fingerprint", "step_back"]

VERSION = 1
PARTS = {
    "version",
    "epoch",
    "position",
    "owed",
    "pulled",
    "by_worker",
    "finished",
    "base_seed",
    "drawn",
    "twice",
    "source",
    "source_before",
    "sampler",
    "loader",
}


@dataclass
class Bookmark:
    """Where a pass began, as far as is needed to begin it once more.

    course: how far it is; None where the pass was loaded and not begun yet, or where there was none.
    source_before: the state of what the loader draws from, before it drew for this pass.
    base_seed: the seed of its workers. drawn: whether it was drawn for this pass, not for an earlier one; twice: and whether
        its sampler began twice for it.
    sampler: the state that the sampler had, if it has one.
    epoch: what `set_epoch` was told last.
    loaded: how far it was; None where there was no pass, or it had ended.
    """

    course: Course | None = None
    source_before: Any = None
    base_seed: int = 0
    drawn: bool = True
    twice: bool = False
    sampler: Any = None
    epoch: int | None = None
    loaded: Progress | None = None

    @classmethod
    def before_all(cls) -> Bookmark:
        """That of a loader that has not begun yet."""
        return cls()

    @classmethod
    def load(cls, state: dict) -> Bookmark:
        """What `state` made."""
        if "version" in state and state["version"] != VERSION:
            raise ValueError(f"this state has version {state['version']!r}, but version {VERSION} is what this ringbuf reads")
        if missing := PARTS - state.keys():
            raise ValueError(f"this is not the state of a RingLoader: it lacks {', '.join(sorted(missing))}")
        progress = Progress(state["position"], list(state["owed"]), state["pulled"], list(state["by_worker"]))
        return cls(
            source_before=state["source_before"],
            base_seed=state["base_seed"],
            drawn=state["drawn"],
            twice=state["twice"],
            sampler=state["sampler"],
            epoch=state["epoch"],
            loaded=None if state["finished"] else progress,
        )

    @property
    def finished(self) -> bool:
        """Whether there is nothing to go on with."""
        return self.loaded is None if self.course is None else self.course.finished

    @property
    def progress(self) -> Progress:
        """How far it is."""
        if self.finished:
            return Progress()
        return self.loaded if self.course is None else self.course.progress()

    def state(self, *, source: Any, epoch: int | None, sampler: Any, fingerprint: Fingerprint) -> dict:
        progress, finished = self.progress, self.finished
        return {
            "version": VERSION,
            "epoch": epoch,
            "position": progress.position,
            "owed": list(progress.owed),
            "pulled": progress.pulled,
            "by_worker": list(progress.by_worker),
            "finished": finished,
            "base_seed": self.base_seed,
            "drawn": self.drawn,
            "twice": self.twice,
            "source": source,
            "source_before": None if finished else self.source_before,
            "sampler": sampler,
            "loader": fingerprint._asdict(),
        }


class Fingerprint(NamedTuple):
    """What two loaders must have in common for one to go on where the other stopped."""

    batch_size: int | None
    batches: int | None
    """Of a pass; None where that is not known before."""
    sampler: str
    """Its class: which order it is."""
    seed_by: str
    workers: int | None
    """None where their number makes no difference."""

    @classmethod
    def of(cls, loader: Any, *, iterable: bool) -> Fingerprint:
        try:
            batches = None if iterable else len(loader._index_sampler)
        except (TypeError, NotImplementedError):  # no __len__, or one that says so
            batches = None
        order = loader.sampler if loader.batch_sampler is None or loader.batch_size is not None else loader.batch_sampler
        return cls(
            batch_size=loader.batch_size,
            batches=batches,
            sampler=type(order).__qualname__,
            seed_by=loader.seed_by,
            workers=loader.num_workers if iterable else None,
        )

    def check(self, other: dict) -> None:
        """Raise ValueError where they differ from those that a state was made with."""
        if set(other) != set(self._fields):
            raise ValueError(
                f"this is not the state of a RingLoader: of the loader it has {sorted(other)}, not {sorted(self._fields)}"
            )
        saved = Fingerprint(**other)
        if saved.batch_size != self.batch_size:
            raise ValueError(
                f"the state was saved with batch_size={saved.batch_size}, this loader has {self.batch_size}: position "
                "counts batches, so give both the same"
            )
        if saved.batches != self.batches:
            raise ValueError(
                f"the state was saved over a pass of {saved.batches} batches, this loader's has {self.batches}: is it "
                "another dataset or sampler?"
            )
        if saved.sampler != self.sampler:
            raise ValueError(
                f"the state was saved over the order of a {saved.sampler}, this loader's sampler is a {self.sampler}: give both "
                "the same shuffle or sampler"
            )
        if saved.workers != self.workers:
            raise ValueError(
                f"the state was saved with num_workers={saved.workers}, this loader has {self.workers}: the workers of an "
                "iterable dataset each have a share of their own, so give both the same"
            )
        if saved.seed_by != self.seed_by:
            raise ValueError(f"the state was saved with seed_by={saved.seed_by!r}, this loader has {self.seed_by!r}")


def step_back(state: dict, batches: int) -> dict:
    """The state as it was so many batches before, in a pass whose batches come in order."""
    by_worker = list(state["by_worker"])
    for _ in range(min(batches, sum(by_worker))):
        # Workers take turns: the last batch came from who has given most, and from the last of those.
        last = max(range(len(by_worker)), key=lambda worker_id: (by_worker[worker_id], worker_id))
        by_worker[last] -= 1
    return {**state, "position": max(0, state["position"] - batches), "by_worker": by_worker}
