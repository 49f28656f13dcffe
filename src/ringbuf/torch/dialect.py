"""Batches of tensors, and what else torch's own workers do."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import IterDataPipe, graph_settings
from torch.utils.data._utils import collate as theirs

from ringbuf.loader.dialect import Dialect
from ringbuf.torch.collate import TensorStack, collate_in_memory_of_ones_own

__all__ = ["Tensors"]


class Tensors(Dialect):
    """torch."""

    collate = staticmethod(theirs.default_collate)
    stack = TensorStack
    convert = staticmethod(theirs.default_convert)
    rows_in_process = False

    @staticmethod
    def deliver(sample: Any, *, private: bool) -> Any:
        del private  # torch shares as well
        return theirs.default_convert(sample)

    @staticmethod
    def set_up_worker() -> None:
        torch.multiprocessing._set_thread_name("pt_data_worker")
        # Unless somebody has put a function of his own there.
        if theirs.default_collate_fn_map.get(torch.Tensor) is theirs.collate_tensor_fn:
            theirs.default_collate_fn_map[torch.Tensor] = collate_in_memory_of_ones_own

    @staticmethod
    def begin_pass(dataset: Any, shared_seed: int | None) -> Any:
        if not isinstance(dataset, IterDataPipe):
            return dataset
        shared = torch.Generator()
        shared.manual_seed(shared_seed)
        return graph_settings.apply_random_seed(dataset, shared)
