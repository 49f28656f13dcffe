"""SPDL with threads, its usual way: no process boundary, so no transport; what holds the interpreter's lock takes turns."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from spdl.pipeline import PipelineBuilder

from benchmarks.py.workloads import Workload

LABEL = "SPDL (threads)"


def versions() -> dict[str, str]:
    return {"spdl": version("spdl")}


@contextmanager
def open(workload: Workload) -> Iterator[Any]:
    yield Pipelines(workload)


class Pipelines:
    """A pipeline for each epoch, as SPDL has it."""

    def __init__(self, workload: Workload):
        self._workload = workload
        self._dataset = workload.dataset()

    def _make(self, number: int) -> Any:
        return self._dataset.collate(self._dataset.batch(number))

    def __iter__(self) -> Iterator[Any]:
        workers = self._workload.workers
        pipeline = (
            PipelineBuilder()
            .add_source(range(self._workload.batches))
            .pipe(self._make, concurrency=workers, output_order="input")
            .add_sink(workers * (self._workload.prefetch - 1))
            .build(num_threads=workers)
        )
        with pipeline.auto_stop():
            yield from pipeline
