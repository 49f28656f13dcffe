"""A RingLoader like a DataLoader of torch, and how it would be called."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from ringbuf.torch.dialect import Tensors
from ringbuf.torch.loader import RingLoader

__all__ = ["like"]

# Arguments that an attribute of the same name tells, and what they are if nobody says anything.
PLAIN = {
    "num_workers": 0,
    "pin_memory": False,
    "timeout": 0,
    "worker_init_fn": None,
    "multiprocessing_context": None,
    "generator": None,
    "persistent_workers": False,
    "pin_memory_device": "",
    "in_order": True,
}
PREFETCH = 2


def like(loader: DataLoader) -> tuple[RingLoader, str]:
    """A loader with the arguments of that one, which gives the same batches; and the call that makes it, as text."""
    given: dict[str, Any] = {}
    if loader.batch_sampler is not None and loader.batch_size is None:
        given["batch_sampler"] = loader.batch_sampler
    else:
        if loader.batch_size != 1:
            given["batch_size"] = loader.batch_size
        given |= _order(loader)
        if loader.drop_last:
            given["drop_last"] = True
    if loader.collate_fn not in (Tensors.collate, Tensors.convert):
        given["collate_fn"] = loader.collate_fn
    given |= {name: value for name, usual in PLAIN.items() if (value := getattr(loader, name, usual)) != usual}
    if loader.prefetch_factor not in (None, PREFETCH):
        given["prefetch_factor"] = loader.prefetch_factor
    words = ["dataset", *(f"{name}={_shown(value)}" for name, value in given.items())]
    return RingLoader(loader.dataset, **given), f"RingLoader({', '.join(words)})"


def _order(loader: DataLoader) -> dict[str, Any]:
    """By which argument its samples come in the order that they do."""
    sampler = loader.sampler
    if loader._dataset_kind or type(sampler) is SequentialSampler:  # 1 of iterable datasets, which have none
        return {}
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.generator is loader.generator:
        return {"shuffle": True} if sampler._num_samples is None else {"sampler": sampler}
    return {"sampler": sampler}


def _shown(value: Any) -> str:
    """As somebody would write it: of objects, what they are."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    return getattr(value, "__qualname__", None) or f"{type(value).__name__}(...)"
