"""ringbuf's RingLoader, as anyone would call it."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from benchmarks.py.workload import Batches, Images, Workload
from ringbuf import RingLoader

LABEL = "ringbuf RingLoader"


def versions() -> dict[str, str]:
    return {"ringloader": version("ringloader")}


@contextmanager
def open(dataset: Images, workload: Workload) -> Iterator[Batches]:
    with RingLoader(
        dataset,
        batch_size=workload.batch_size,
        num_workers=workload.workers,
        prefetch_factor=workload.prefetch,
        multiprocessing_context="fork",
    ) as loader:
        yield loader
