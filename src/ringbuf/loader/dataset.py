"""What a loader asks of a dataset. No base class is needed; these protocols are for type checkers and readers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

__all__ = ["Dataset", "IterableDataset", "is_iterable_style"]


@runtime_checkable
class Dataset(Protocol):
    """Map style: samples by index. `__len__` is needed unless a sampler says which indices there are.

    A `__getitems__(indices) -> list of samples`, where there is one, is asked for a whole batch at a time.
    """

    def __getitem__(self, index: Any) -> Any: ...


@runtime_checkable
class IterableDataset(Protocol):
    """Iterable style: samples in the dataset's own order. Each worker iterates a copy of its own: see
    `get_worker_info()` for sharing the samples out between them."""

    def __iter__(self) -> Iterator[Any]: ...


def is_iterable_style(dataset: Any) -> bool:
    """Whether a loader iterates this dataset instead of indexing it."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(dataset, torch_data.Dataset):
        return isinstance(dataset, torch_data.IterableDataset)
    return hasattr(type(dataset), "__iter__") and not hasattr(type(dataset), "__getitem__")
