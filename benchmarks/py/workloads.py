"""What every peer is asked to do: the same samples, in the same batches.

A dataset gives numpy arrays, or what `form` makes of them (torch.from_numpy, so that no peer pays for a conversion that
its users would not have). It also says how a batch lies in memory as bytes, for peers that have nothing but bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

TOUCHES = ("nothing", "page", "all")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One job. `touch` is what the consumer reads of each batch: nothing, a byte of every page, or all of it."""

    name: str
    batches: int
    workers: int = 4
    touch: str = "nothing"
    epochs: int = 3
    prefetch: int = 2
    """Batches that each worker may be ahead."""
    tiny: bool = False
    """Whether samples are of a few values only: to see that it runs."""

    @property
    def kind(self) -> type[Samples]:
        return KINDS[self.name]

    @property
    def batch_size(self) -> int:
        return self.kind.BATCH_SIZE

    @property
    def unsteady(self) -> int:
        """Batches that the steady rate leaves out: until each slot, or place in a queue, was used twice."""
        return min(self.batches // 2, 2 * (self.workers * self.prefetch + 2))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample."""
        return self.kind.TINY if self.tiny else self.kind.SHAPE

    @property
    def batch_bytes(self) -> int:
        """Room that a batch needs, at most."""
        each = int(np.prod(self.shape)) * np.dtype(self.kind.DTYPE).itemsize
        return self.batch_size * (each + (8 if self.kind.COUNTED else 0))

    def shortened(self, factor: int) -> Workload:
        return replace(self, batches=max(self.batches // factor, 4 * self.workers))

    def dataset(self, form: Callable[[np.ndarray], Any] = np.asarray) -> Samples:
        return self.kind(self, form)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


Fields = tuple[np.ndarray, ...]


class Samples:
    """A map-style dataset of arrays of one shape; with LABELS, sample i is (array, i)."""

    SHAPE: ClassVar[tuple[int, ...]]
    TINY: ClassVar[tuple[int, ...]] = (8, 8, 3)
    DTYPE: ClassVar[Any] = np.float32
    BATCH_SIZE: ClassVar[int] = 32
    LABELS: ClassVar[bool] = False
    COUNTED: ClassVar[bool] = False
    """Whether each sample has an int64 in the batch besides: its label or its length."""
    LOOKED_AT: ClassVar[int] = 1
    """Every so many batches one is checked while time runs."""
    COMPARED: ClassVar[int] = 1
    """Every so many batches one is compared whole, when no time runs."""
    collate_fn: Callable[[Sequence[Any]], Any] | None = None
    """What a user would have to give a loader; None where samples are only stacked."""

    def __init__(self, workload: Workload, form: Callable[[np.ndarray], Any] = np.asarray):
        self._length = workload.batches * workload.batch_size
        self._form = form
        self.shape = workload.shape
        self.batch_bytes = workload.batch_bytes

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        array = self._form(self.make(index))
        return (array, index) if self.LABELS else array

    def make(self, index: int) -> np.ndarray:
        raise NotImplementedError

    def batch(self, number: int) -> list[Any]:
        """The samples of batch `number`."""
        first = number * self.BATCH_SIZE
        return [self[index] for index in range(first, first + self.BATCH_SIZE)]

    def batch_shape(self, number: int) -> tuple[int, ...]:
        """Of the array of batch `number`."""
        return self.BATCH_SIZE, *self.shape

    def ends(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last array of batch `number`."""
        first = number * self.BATCH_SIZE
        return np.asarray(self.make(first)), np.asarray(self.make(first + self.BATCH_SIZE - 1))

    def counts(self, number: int) -> np.ndarray:
        """Its int64 values, of a dataset that is COUNTED: labels, here."""
        first = number * self.BATCH_SIZE
        return np.arange(first, first + self.BATCH_SIZE)

    def collate(self, samples: Sequence[Any]) -> Fields:
        """A batch in memory of its own."""
        memory = np.empty(self.batch_bytes, np.uint8)
        self.write(samples, memory)
        return self.view(memory)

    def write(self, samples: Sequence[Any], memory: np.ndarray) -> int:
        """Make a batch in `memory` (of bytes), from where `view` reads it. Returns how many bytes it took."""
        fields = self.view(memory)
        if self.LABELS:
            fields[1][:] = [label for _, label in samples]
            samples = [array for array, _ in samples]
        np.stack(samples, out=fields[0])
        return self.batch_bytes

    def view(self, memory: np.ndarray) -> Fields:
        """The fields of the batch that `write` made in `memory`."""
        labels = self.BATCH_SIZE * 8 if self.LABELS else 0
        arrays = memory[labels : self.batch_bytes].view(self.DTYPE).reshape(self.BATCH_SIZE, *self.shape)
        return (arrays, memory[:labels].view(np.int64)) if self.LABELS else (arrays,)


class Pool(Samples):
    """Samples that lie in memory, so that making one costs nothing. Their number has no factor in common with a batch's."""

    COUNT: ClassVar[int]

    def __init__(self, workload: Workload, form: Callable[[np.ndarray], Any] = np.asarray):
        super().__init__(workload, form)
        self._pool = [form(array) for array in pooled(type(self), self.shape)]

    @classmethod
    def fill(cls, shape: tuple[int, ...]) -> Iterable[np.ndarray]:
        words = np.random.default_rng(0).integers(0, 2**30, (cls.COUNT, *shape), np.uint32)
        return words.astype(np.uint8) if cls.DTYPE == np.uint8 else words.view(np.float32)  # finite, whatever the bits

    def make(self, index: int) -> Any:
        return self._pool[index % len(self._pool)]

    def __getitem__(self, index: int) -> Any:
        array = self._pool[index % len(self._pool)]
        return (array, index) if self.LABELS else array


@cache
def pooled(kind: type[Pool], shape: tuple[int, ...]) -> list[np.ndarray]:
    """The arrays of a pool, of which a process has one, however many datasets."""
    return list(kind.fill(shape))


class Mem(Pool):
    """32 float32 images of 256 x 256 x 3, copied from memory: 25 MB a batch."""

    SHAPE = (256, 256, 3)
    COUNT = 193  # 152 MB: well over any cache that two cores have to themselves

    def write_into(self, index: int, out: np.ndarray) -> None:
        np.copyto(out, self[index])


class Img(Pool):
    """256 uint8 images of 224 x 224 x 3 and their int64 labels, copied from memory: 38 MB a batch."""

    SHAPE = (224, 224, 3)
    DTYPE = np.uint8
    BATCH_SIZE = 256
    LABELS = COUNTED = True
    COUNT = 1021


class Small(Pool):
    """32 rows of 64 float32: 8 KB a batch, so that what counts is what each batch costs besides its bytes."""

    SHAPE = TINY = (64,)
    LOOKED_AT = 64
    COUNT = 1021

    def write_into(self, index: int, out: np.ndarray) -> None:
        np.copyto(out, self[index])


class Seed(Samples):
    """32 images of 256 x 256 x 3 float32 normals, drawn in `__getitem__` by numpy's legacy generator: bound by that."""

    SHAPE = (256, 256, 3)
    COMPARED = 4

    def make(self, index: int) -> np.ndarray:
        return np.random.RandomState(index).standard_normal(self.shape).astype(np.float32)

    def write_into(self, index: int, out: np.ndarray) -> None:
        out[...] = np.random.RandomState(index).standard_normal(self.shape)


class SeedPcg(Seed):
    """The same with the newer generator, PCG64, which draws float32 directly."""

    def make(self, index: int) -> np.ndarray:
        return np.random.Generator(np.random.PCG64(index)).standard_normal(self.shape, np.float32)

    def write_into(self, index: int, out: np.ndarray) -> None:
        np.random.Generator(np.random.PCG64(index)).standard_normal(dtype=np.float32, out=out)


class Jpeg(Samples):
    """32 photographs, decoded from JPEG by Pillow, cropped to 224 x 224 at random, flipped, made float32 and normalised."""

    SHAPE = (3, 224, 224)
    TINY = (3, 8, 8)
    LABELS = COUNTED = True
    COMPARED = 4

    def make(self, index: int) -> np.ndarray:
        from PIL import Image

        random = np.random.default_rng(index)
        files = photographs()
        picture = Image.open(io.BytesIO(files[index % len(files)])).convert("RGB")
        side = int(min(picture.size) * random.uniform(0.5, 1.0))
        left, top = (int(random.uniform(0, room - side)) for room in picture.size)
        crop = picture.resize(self.shape[1:], Image.Resampling.BILINEAR, (left, top, left + side, top + side))
        pixels = np.asarray(crop, np.float32)[:, :: -1 if random.random() < 0.5 else 1]
        normal = (pixels / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
        return np.ascontiguousarray(normal.transpose(2, 0, 1), np.float32)


@cache
def photographs() -> list[bytes]:
    """JPEG files that installed packages bring along: one of matplotlib's, and two of scikit-learn's where that is here."""
    import matplotlib

    files = [Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg"]
    if sklearn := find_spec("sklearn"):
        files += sorted(Path(sklearn.origin).parent.glob("datasets/images/*.jpg"))
    return [file.read_bytes() for file in files]


class Ragged(Pool):
    """32 float32 sequences of 2 to 65 thousand elements, joined to one array with their lengths by a collate function."""

    SHAPE = (65_536,)  # of the longest
    TINY = (64,)
    COUNTED = True
    COUNT = 251

    @classmethod
    def fill(cls, shape: tuple[int, ...]) -> Iterable[np.ndarray]:
        random = np.random.default_rng(0)
        half = shape[0] // 2
        return [random.standard_normal(2 * length, np.float32) for length in random.integers(half // 32, half, cls.COUNT)]

    def batch_shape(self, number: int) -> tuple[int, ...]:
        return (int(self.counts(number).sum()),)

    def counts(self, number: int) -> np.ndarray:
        return np.array([len(sample) for sample in self.batch(number)])

    @property
    def collate_fn(self) -> Callable[[Sequence[Any]], Any]:
        return join if self._form is np.asarray else join_tensors

    def write(self, samples: Sequence[Any], memory: np.ndarray) -> int:
        lengths = memory[: self.BATCH_SIZE * 8].view(np.int64)
        lengths[:] = [len(sample) for sample in samples]
        values = self.view(memory)[0]
        np.concatenate(samples, out=values)
        return lengths.nbytes + values.nbytes

    def view(self, memory: np.ndarray) -> Fields:
        first = self.BATCH_SIZE * 8
        lengths = memory[:first].view(np.int64)
        return memory[first : first + 4 * int(lengths.sum())].view(np.float32), lengths


def join(samples: Sequence[np.ndarray]) -> Fields:
    return np.concatenate(samples), np.array([len(sample) for sample in samples])


def join_tensors(samples: Sequence[Any]) -> tuple[Any, ...]:
    import torch

    return torch.cat(list(samples)), torch.tensor([len(sample) for sample in samples])


class Into:
    """A dataset that writes its samples where the batch has them, through the loader's `__getitem_into__`."""

    def __init__(self, dataset: Any):
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[index]

    def __getitem_into__(self, index: int, out: Any) -> None:
        self._dataset.write_into(index, out)


KINDS: dict[str, type[Samples]] = {
    "seed": Seed,
    "seed-pcg": SeedPcg,
    "mem": Mem,
    "img": Img,
    "small": Small,
    "jpeg": Jpeg,
    "ragged": Ragged,
}
