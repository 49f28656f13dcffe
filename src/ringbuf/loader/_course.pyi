from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, final

__all__ = ["Course", "Job", "Progress", "pack", "unpack"]

class Job(NamedTuple):
    batch: int
    index: Any
    seed: int | None = None
    epoch: int | None = None
    shared_seed: int | None = None

class Progress(NamedTuple):
    position: int = 0
    owed: Sequence[int] = ()
    pulled: int = 0
    by_worker: Sequence[int] = ()

@final
class Course:
    finished: bool
    constants: dict[str, Any]
    to_skip: Sequence[int]
    def __init__(
        self, indices: Iterable[Any], *, numbered: bool = True, resumed: Progress | None = None, **constants: Any
    ) -> None: ...
    def __iter__(self) -> Course: ...
    def __next__(self) -> Job: ...
    handed: tuple[int, int] | None
    def settle(self) -> None: ...
    def deliver(self, number: int, worker_id: int = 0) -> None: ...
    def progress(self) -> Progress: ...

def pack(job: Job) -> bytes: ...
def unpack(content: bytes) -> Job: ...
