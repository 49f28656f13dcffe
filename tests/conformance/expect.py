"""What the two loaders are expected to do, and how it is compared."""

import gc
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch

# For tests that need more workers than some machine has cores.
many_workers = pytest.mark.filterwarnings("ignore:This .* worker:UserWarning")


def either(Loader, *, torch, ringbuf):
    """The expectation for the loader under test, where the two differ on purpose."""
    return ringbuf if is_ours(Loader) else torch


def is_ours(Loader):
    return Loader.__module__.partition(".")[0] == "ringbuf"


def children():
    """Our living children: the workers of loaders."""
    return [child for child in multiprocessing.active_children() if os.path.exists(f"/proc/{child.pid}")]


def same(left, right):
    """Whether two batches are equal: types of containers, dtypes, shapes and every value."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and bool(torch.equal(left, right))
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and bool((left == right).all())
    if isinstance(left, (str, bytes)):
        return left == right
    if isinstance(left, Mapping):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, Sequence):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def chain(error):
    """The text of an exception and of all that it came from."""
    texts = []
    while error is not None:
        texts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def drain(iterator):
    """All that an iterator gives, with the exceptions that it raises at their places."""
    got = []
    while True:
        try:
            got.append(next(iterator))
        except StopIteration:
            return got
        except Exception as error:
            got.append(error)
        assert len(got) < 10_000, "the iterator does not end"


def refuses_to_begin(loader, error, match=None):
    """Check that no pass can begin. torch's half-made iterator complains when it is collected; ours may not."""
    hook = sys.unraisablehook
    if not is_ours(type(loader)):
        sys.unraisablehook = lambda _: None
    try:
        with pytest.raises(error, match=match):
            iter(loader)
        gc.collect()
    finally:
        sys.unraisablehook = hook
