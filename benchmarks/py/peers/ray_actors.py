"""Ray: an actor for each worker, batches through its object store, `prefetch` of each actor's under way."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from benchmarks.py.workloads import Workload

LABEL = "Ray (actors)"
ROOT = os.getcwd()


def versions() -> dict[str, str]:
    return {"ray": ray.__version__}


@ray.remote(num_cpus=0)
class Maker:
    def __init__(self, workload: Workload):
        self._dataset = workload.dataset()

    def make(self, number: int) -> Any:
        return self._dataset.collate(self._dataset.batch(number))


@contextmanager
def open(workload: Workload) -> Iterator[Any]:
    ray.init(
        num_cpus=workload.workers,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
        object_store_memory=max(2**30, 4 * workload.workers * workload.prefetch * workload.batch_bytes),
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}},
    )
    try:
        yield Actors(workload)
    finally:
        ray.shutdown()


class Actors:
    def __init__(self, workload: Workload):
        self._workload = workload
        self._actors: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        workload = self._workload
        if not self._actors:
            self._actors = [Maker.remote(workload) for _ in range(workload.workers)]
        ahead = workload.workers * workload.prefetch
        under_way = [self._ask(number) for number in range(min(ahead, workload.batches))]
        for number in range(workload.batches):
            batch = ray.get(under_way.pop(0))
            yield batch
            del batch
            if number + ahead < workload.batches:
                under_way.append(self._ask(number + ahead))

    def _ask(self, number: int) -> Any:
        return self._actors[number % len(self._actors)].make.remote(number)
