"""What every peer is asked to do: the same samples, in the same batches, to a consumer that looks at them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

POOL_IMAGES = 1024  # 154 MB at full size: well over any cache that two cores have to themselves


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Sizes of the job. The defaults are batches of 38 MB."""

    batches: int = 256
    batch_size: int = 256
    side: int = 224
    workers: int = 2
    prefetch: int = 2
    """Batches that each worker may be ahead."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.side, self.side, 3

    @property
    def batch_bytes(self) -> int:
        """Of the images and their int64 labels."""
        return self.batch_size * (self.side * self.side * 3 + 8)

    @property
    def unsteady(self) -> int:
        """Batches that the steady rate leaves out: until each slot, or place in a queue, was used twice."""
        return min(self.batches // 2, 2 * (self.workers * self.prefetch + 2))


class Images:
    """A map-style dataset that costs nothing: item i is a view of one of some images in memory, and its label is i."""

    def __init__(self, workload: Workload):
        self._length = workload.batches * workload.batch_size
        count = min(self._length, POOL_IMAGES)
        self._images = np.random.default_rng(0).integers(0, 256, (count, *workload.image_shape), np.uint8)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self._images[index % len(self._images)], index


class Inspector:
    """Sees to it that nobody is fast by delivering something else: all labels, and the corners of two images."""

    def __init__(self, dataset: Images, workload: Workload):
        self._dataset = dataset
        self._workload = workload
        self._arrived = 0

    def look_at(self, images: Any, labels: Any) -> None:
        """Check the next batch; arrays, or tensors that share their memory with arrays."""
        images, labels = np.asarray(images), np.asarray(labels)
        first = self._arrived * self._workload.batch_size
        want = np.arange(first, first + self._workload.batch_size)
        if labels.dtype != np.int64 or not np.array_equal(labels, want):
            raise ValueError(f"batch {self._arrived} should hold labels {want[0]} to {want[-1]}, got {labels}")
        if images.dtype != np.uint8 or images.shape != (self._workload.batch_size, *self._workload.image_shape):
            raise ValueError(f"batch {self._arrived} should be uint8 images, got {images.dtype} {images.shape}")
        for row in 0, -1:
            image, _ = self._dataset[int(want[row])]
            corners = [0, -1], [0, -1]
            if not np.array_equal(images[row][corners], image[corners]):
                raise ValueError(f"batch {self._arrived}: image {want[row]} differs from the dataset's")
        self._arrived += 1

    def finish(self) -> None:
        if self._arrived != self._workload.batches:
            raise ValueError(f"{self._workload.batches} batches were due, {self._arrived} arrived")


Batches = Iterable[tuple[Any, Any]]
