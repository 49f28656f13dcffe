"""The ceiling once more, with stores that bypass the cache: a batch that is larger than the cache need not go through it.

Each sample is copied by a call of a compiled function (stream.c), which is most of what a small batch costs here.
"""

from __future__ import annotations

import ctypes
import platform
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.py import crew
from benchmarks.py.peers import ideal
from benchmarks.py.workloads import Workload

LABEL = "ideal_nt (non-temporal stores)"
SOURCE = Path(__file__).with_name("stream.c")
BUILT = SOURCE.parents[3] / "build" / "stream.so"

versions = ideal.versions


def _compiled() -> Any:
    """The function of stream.c. ImportError says why there is none."""
    if platform.machine() != "x86_64":
        raise ImportError(f"stream.c has stores for x86_64, this is {platform.machine()}")
    if not BUILT.exists() or BUILT.stat().st_mtime < SOURCE.stat().st_mtime:
        BUILT.parent.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", BUILT, SOURCE], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ImportError(f"stream.c could not be compiled: {error}") from error
    function = ctypes.CDLL(str(BUILT)).stream
    function.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
    return function


STREAM = _compiled()


def open(workload: Workload) -> AbstractContextManager[Any]:
    return crew.working(workload, Streamed)


class Streamed(ideal.Slots):
    def write(self, samples: list[Any], slot: np.ndarray) -> None:
        fields = self.dataset.view(slot)
        if self.dataset.LABELS:
            fields[1][:] = [label for _, label in samples]
            samples = [array for array, _ in samples]
        place, step = fields[0].ctypes.data, fields[0][0].nbytes
        for sample in samples:
            STREAM(place, sample.ctypes.data, step)
            place += step
