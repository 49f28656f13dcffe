"""grain's MapDataset, batched, with worker processes that put large arrays into shared memory."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

logging.getLogger("absl").setLevel(logging.ERROR)  # it would miss a profiler

import grain  # noqa: E402
from absl import app, flags  # noqa: E402, F401

from benchmarks.py.workloads import Workload  # noqa: E402

LABEL = "grain"


def versions() -> dict[str, str]:
    return {"grain": version("grain")}


@contextmanager
def open(workload: Workload) -> Iterator[Any]:
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["benchmark"])
    dataset = workload.dataset()
    batched = grain.MapDataset.source(dataset).batch(workload.batch_size, batch_fn=dataset.collate_fn)
    options = grain.MultiprocessingOptions(num_workers=workload.workers, per_worker_buffer_size=workload.prefetch)
    yield batched.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)).mp_prefetch(options)
