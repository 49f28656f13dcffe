"""The state of a loader as it is saved: where its last pass began, and how far it came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ringbuf.loader.course import Course

__all__ = ["Bookmark", "Fingerprint"]

VERSION = 1
PARTS = {
    "version",
    "epoch",
    "position",
    "owed",
    "finished",
    "base_seed",
    "drawn",
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
    base_seed: the seed of its workers. drawn: whether it was drawn for this pass, not for an earlier one.
    sampler: the state that the sampler had, if it has one.
    to_skip: batches that this pass has to make again before it delivers any.
    position, owed, finished: as loaded.
    """

    course: Course | None = None
    source_before: Any = None
    base_seed: int = 0
    drawn: bool = True
    sampler: Any = None
    to_skip: int = 0
    position: int = 0
    owed: Sequence[int] = ()
    finished: bool = True

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
        return cls(
            source_before=state["source_before"],
            base_seed=state["base_seed"],
            drawn=state["drawn"],
            sampler=state["sampler"],
            position=state["position"],
            owed=list(state["owed"]),
            finished=state["finished"],
        )

    def progress(self) -> tuple[int, Sequence[int], bool]:
        """(position, owed, finished) of the pass now."""
        if self.course is None:
            return self.position, self.owed, self.finished
        if self.course.finished:
            return 0, [], True
        return *self.course.progress(), False

    def state(
        self, *, progress: tuple[int, Sequence[int], bool], source: Any, epoch: int | None, fingerprint: Fingerprint
    ) -> dict:
        position, owed, finished = progress
        return {
            "version": VERSION,
            "epoch": epoch,
            "position": position,
            "owed": list(owed),
            "finished": finished,
            "base_seed": self.base_seed,
            "drawn": self.drawn,
            "source": source,
            "source_before": None if finished else self.source_before,
            "sampler": None if finished else self.sampler,
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
