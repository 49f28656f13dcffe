"""What batches are made of: numpy's arrays here, torch's tensors behind ringbuf.torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringbuf.loader.collate import Stack, default_collate, default_convert
from ringbuf.loader.collate import convert as converted

__all__ = ["Arrays", "Dialect"]


class Dialect:
    """How samples become batches. Never instantiated: workers that inherit nothing get it by its name.

    collate: the default `collate_fn`, for which `stack` stands in where there is memory to build in.
    stack: builds a batch row by row, as `Stack`. Raises `collate.Irregular` for what only `collate` can judge.
    convert: what becomes of a sample that is a batch by itself.
    rows_in_process: whether `stack` also stands in where nobody has to be sent the batch.
    """

    collate: Callable[[list], Any]
    stack: type[Stack]
    convert: Callable
    rows_in_process: bool

    @staticmethod
    def deliver(sample: Any, *, private: bool) -> Any:
        """`convert`, sharing the memory of the sample where somebody else copies it."""
        raise NotImplementedError

    @staticmethod
    def keep(sample: Any) -> Any:
        """A sample that can wait until others were made."""
        return sample

    @staticmethod
    def set_up_worker() -> None:
        """Called once in each worker, before it loads the dataset."""

    @staticmethod
    def begin_pass(dataset: Any, shared_seed: int | None) -> Any:
        """The dataset to use in a pass that begins."""
        del shared_seed
        return dataset


class Arrays(Dialect):
    """numpy."""

    collate = staticmethod(default_collate)
    stack = Stack
    convert = staticmethod(default_convert)
    rows_in_process = True

    @staticmethod
    def deliver(sample: Any, *, private: bool) -> Any:
        return converted(sample, private=private)

    @staticmethod
    def keep(sample: Any) -> Any:
        return converted(sample, private=True)  # the dataset may hand out the same memory again
