"""The loaders that the field's failures are tried on, and what the tests compare."""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import ringbuf

torch = pytest.importorskip("torch", reason="one of the two loaders takes the place of torch's")
import ringbuf.torch  # noqa: E402

NumpyLoader = ringbuf.RingLoader
TorchLoader = ringbuf.torch.RingLoader
Theirs = torch.utils.data.DataLoader

COPIES = "ignore:RingLoader. .* slots are still looked at:UserWarning"
CORES = "ignore:.* cores:UserWarning"

both = pytest.mark.parametrize("Loader", [NumpyLoader, TorchLoader], ids=["numpy", "torch"])
workers_or_none = pytest.mark.parametrize("num_workers", [0, 1])


class _Stream(torch.utils.data.IterableDataset):
    """What torch's loader takes for a stream, and all that it says it does."""

    def __init__(self, stream):
        self.stream = stream

    def __iter__(self):
        return iter(self.stream)


class _ToldStream(_Stream):
    def __len__(self):
        return len(self.stream)


def stream_for(Loader, stream):
    """An iterable dataset as the loader knows them."""
    if not issubclass(Loader, Theirs):
        return stream
    return _ToldStream(stream) if hasattr(stream, "__len__") else _Stream(stream)


def rows(batch):
    """The first number of each row."""
    array = np.asarray(batch)
    return array.reshape(len(array), -1)[:, 0].astype(int).tolist()


def numbers(loader):
    """The first numbers of all rows of a pass."""
    return [number for batch in loader for number in rows(batch)]


def outcomes(iterator):
    """What each next() gives: an array's list, or the error."""
    found = []
    while True:
        try:
            found.append(np.asarray(next(iterator)).tolist())
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)
            assert len(found) < 1000


def same(one, other):
    """Equal in type, nesting and every bit; an array and a tensor are what they are."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and bool((one.contiguous().view(-1).view(torch.uint8) == other.contiguous().view(-1).view(torch.uint8)).all())
            if one.numel()
            else one.dtype == other.dtype and one.shape == other.shape
        )
    if isinstance(one, np.ndarray) and one.dtype != object:
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
    return bool(np.all(one == other)) or (one != one and other != other)


def verdict(make):
    """What a call gives: its result, or the type of the error."""
    try:
        return make()
    except Exception as error:
        return type(error)


def workers():
    """Our living children that are a loader's."""
    return [child for child in multiprocessing.active_children() if child.name.startswith("RingLoader")]


def usage():
    """What this process has: descriptors, mapped rings, threads, children."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    return len(os.listdir("/proc/self/fd")), maps.count("memfd:ringbuf"), threading.active_count(), len(workers())
