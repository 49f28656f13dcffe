from collections.abc import Callable
from typing import Any, final

from ringbuf.telemetry._meter import WorkerMeter

@final
class Samples:
    at: Any
    def __init__(
        self,
        dataset: Any,
        pause: Callable[[], int],
        substitute: Callable[[Any, Exception], Any] | None,
        meter: WorkerMeter,
    ) -> None: ...
    def begin(self, indices: list[Any], prepare: Callable[[int], object] | None = None) -> Samples: ...
    def __iter__(self) -> Samples: ...
    def __next__(self) -> Any: ...

def no_sample(index: Any) -> RuntimeError: ...
