"""The consumer: reads of each batch what the workload says, and sees to it that nobody is fast by delivering something else.

While time runs it only takes down a few values of a batch; they are compared with the dataset afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.py.workloads import Fields, Samples, Workload

PAGE = 4096
SUMMED_AGAIN = 8  # of the sums over whole batches, one in so many is computed anew to compare


def fields(batch: Any) -> Fields:
    """The arrays of a batch; of tensors, the arrays that share their memory."""
    parts = batch if isinstance(batch, tuple | list) else (batch,)
    return tuple(part.numpy() if hasattr(part, "numpy") else np.asarray(part) for part in parts)


def corners(first: np.ndarray, last: np.ndarray) -> bytes:
    """The first values of one array and the last of another, as bytes: NaN equals NaN there."""
    return first.reshape(-1)[:2].tobytes() + last.reshape(-1)[-2:].tobytes()


def read(touch: str, array: np.ndarray) -> int:
    """Read what `touch` says of an array, and return a sum of it."""
    flat = array.reshape(-1)
    if touch == "page":
        return int(flat.view(np.uint8)[::PAGE].sum())
    return int(flat.view(np.uint64).sum())


class Consumer:
    def __init__(self, workload: Workload):
        self._touch = workload.touch
        self._every = workload.kind.LOOKED_AT
        self._workload = workload
        self._taken: list[tuple[int, bytes, bytes, tuple[int, ...], Any, int | None]] = []
        self._arrived = 0

    def look_at(self, batch: Any) -> None:
        """Take the next batch."""
        number = self._arrived
        self._arrived += 1
        looked_at = number % self._every == 0
        if not looked_at and self._touch == "nothing":
            return
        arrays = fields(batch)
        total = None if self._touch == "nothing" else read(self._touch, arrays[0])
        if looked_at:
            array = arrays[0]
            counts = b"".join(array.tobytes() for array in arrays[1:])
            self._taken.append((number, corners(array, array), counts, array.shape, array.dtype, total))

    def finish(self, dataset: Samples) -> None:
        """Compare what was taken down with the dataset, and be ready for another epoch. ValueError says what was wrong."""
        if self._arrived != self._workload.batches:
            raise ValueError(f"{self._workload.batches} batches were due, {self._arrived} arrived")
        for number, seen, counts, shape, dtype, total in self._taken:
            if (shape, dtype) != (dataset.batch_shape(number), np.dtype(dataset.DTYPE)):
                raise ValueError(
                    f"batch {number} should be {np.dtype(dataset.DTYPE)} {dataset.batch_shape(number)}, got {dtype} {shape}"
                )
            if seen != corners(*dataset.ends(number)):
                raise ValueError(f"batch {number} does not begin and end with the dataset's samples")
            if counts != (dataset.counts(number).tobytes() if dataset.COUNTED else b""):
                raise ValueError(f"batch {number} has other labels or lengths than the dataset")
            if total is not None and number % SUMMED_AGAIN == 0:
                want = read(self._touch, dataset.collate(dataset.batch(number))[0])
                if total != want:
                    raise ValueError(f"batch {number} adds up to {total}, the dataset's to {want}")
        self._taken.clear()
        self._arrived = 0


def compare(number: int, batch: Any, dataset: Samples) -> None:
    """Compare all bytes of a batch with the dataset's. ValueError says which field differs."""
    got, want = fields(batch), dataset.collate(dataset.batch(number))
    if len(got) != len(want):
        raise ValueError(f"batch {number} should have {len(want)} fields, got {len(got)}")
    for place, (here, there) in enumerate(zip(got, want)):
        if here.dtype != there.dtype or here.shape != there.shape or here.tobytes() != there.tobytes():
            raise ValueError(
                f"field {place} of batch {number} should be {there.dtype} {there.shape} as in the dataset, got other "
                f"values, or another form: {here.dtype} {here.shape}"
            )
