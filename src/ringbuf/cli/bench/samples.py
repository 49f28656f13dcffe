"""What the loaders load: rows that lie in memory, so that making a sample costs nothing, and what they add up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ringbuf.cli.bench.plan import BATCH_ROWS, Shape
from ringbuf.cli.outcome import Failed

__all__ = ["Samples"]


class Samples:
    """A dataset of float32 rows: sample i is row i, and after the last one the first comes again.

    form: what becomes of each row, such as torch.from_numpy.
    batches: how long the dataset is. A loader asks at the beginning of an epoch, so that it may change between two.
    """

    def __init__(self, shape: Shape, form: Callable[[np.ndarray], Any] = np.asarray):
        words = np.random.default_rng(0).integers(0, 2**30, (shape.rows, shape.row_bytes // 4), np.uint32)
        self.rows = words.view(np.float32)  # finite, whatever the bits
        self.batch_bytes = BATCH_ROWS * shape.row_bytes
        self.batches = 0
        self._formed = [form(row) for row in self.rows]
        self._sums = _sums(self.rows)
        self._ends = [(row[0], row[-1]) for row in words]

    def __len__(self) -> int:
        return self.batches * BATCH_ROWS

    def __getitem__(self, index: int) -> Any:
        return self._formed[index % len(self._formed)]

    def check_all(self, who: str, number: int, batch: Any) -> None:
        """Compare what the rows of a batch add up to. Failed says which row is another."""
        array = self._array(who, number, batch)
        want, got = self._sums[self._places(number)], _sums(array)
        if (wrong := np.flatnonzero(want != got)).size:
            row = int(wrong[0])
            raise Failed(f"{who}: row {row} of batch {number} should add up to {want[row]:#x}, got {got[row]:#x}")

    def check_ends(self, who: str, number: int, batch: Any) -> None:
        """The same of the first and the last word alone, which takes next to no time."""
        array = self._array(who, number, batch).view(np.uint32)
        places = self._places(number)
        want = self._ends[places[0]][0], self._ends[places[-1]][1]
        got = array[0, 0], array[-1, -1]
        if got != want:
            raise Failed(f"{who}: batch {number} should begin and end with {_hex(want)}, got {_hex(got)}")

    def _array(self, who: str, number: int, batch: Any) -> np.ndarray:
        array = np.asarray(batch)
        shape = (BATCH_ROWS, self.rows.shape[1])
        if array.dtype != np.float32 or array.shape != shape:
            raise Failed(f"{who}: batch {number} should be float32 {shape}, got {array.dtype} {array.shape}")
        return array

    def _places(self, number: int) -> np.ndarray:
        return (number * BATCH_ROWS + np.arange(BATCH_ROWS)) % len(self.rows)


def _sums(rows: np.ndarray) -> np.ndarray:
    return rows.view(np.uint64).sum(axis=1)  # modulo 2**64


def _hex(words: tuple[np.uint32, np.uint32]) -> str:
    return " and ".join(f"{word:#x}" for word in words)
