"""RingLoader under accelerate: `loader = ringbuf.accelerate.prepare(accelerator, loader)`.

accelerator.prepare() makes a plain DataLoader of any loader, and a RingLoader warns of that. Here accelerate does all that
it does there (which samples belong to which process, the move to the device, which step is the last one of an
accumulated gradient), and the plain loader inside is then replaced by a RingLoader that reads the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accelerate import data_loader as theirs

from ringbuf.loader.state import step_back
from ringbuf.torch import RingLoader
from ringbuf.torch.rebuilding import as_plain, as_ring

__all__ = ["prepare", "skip_first_batches"]


def prepare(
    accelerator: Any,
    loader: RingLoader,
    *,
    device_placement: bool | None = None,
    slice_fn_for_dispatch: Callable | None = None,
) -> Any:
    """What accelerator.prepare(loader) returns, with batches made by the workers of a RingLoader.

    It is one of the accelerator's loaders: accelerator.prepare() leaves it alone, accelerator.save_state() saves where it
    is, and load_state() goes there. `loader` itself stays as it was.
    """
    if isinstance(loader, _Prepared):
        return accelerator.prepare_data_loader(loader)
    if not isinstance(loader, RingLoader):
        raise TypeError(
            f"loader should be a ringbuf.torch.RingLoader, but got {type(loader).__name__}; accelerator.prepare() is for others"
        )
    made = accelerator.prepare_data_loader(as_plain(loader), device_placement, slice_fn_for_dispatch)
    accelerator._dataloaders[:] = [other for other in accelerator._dataloaders if other is not made]
    return accelerator.prepare_data_loader(_with_ring(made, loader))  # enters it in the books


def skip_first_batches(loader: Any, num_batches: int = 0) -> Any:
    """accelerate's function of the same name, for what `prepare` returned.

    The state of a loader does more: it has the order of samples, too.
    """
    if not isinstance(loader, _Prepared):
        raise TypeError(f"loader should be what ringbuf.accelerate.prepare returned, but got {type(loader).__name__}")
    base = type(loader).__bases__[1]
    plain = base.__new__(base)
    plain.__dict__.update(vars(loader), base_dataloader=as_plain(loader.base_dataloader))
    return _with_ring(theirs.skip_first_batches(plain, num_batches), loader.base_dataloader)


def _with_ring(made: Any, loader: RingLoader) -> Any:
    """`made` by accelerate, around a loader like ours."""
    for kind in (_Shard, _Dispatcher):
        if type(made) is kind.__bases__[1]:
            return kind(made, as_ring(loader, made.base_dataloader))
    raise NotImplementedError(f"accelerate made a {type(made).__name__}, and only its own loaders can have a ring inside")


class _Prepared:
    """What is ours about accelerate's loaders. accelerate's class comes next in the order of methods."""

    base_dataloader: RingLoader

    def __init__(self, made: Any, ring: RingLoader):
        self.__dict__.update(vars(made), base_dataloader=ring, dl_state_dict=ring.state_dict())
        self.use_stateful_dataloader = True  # by which save_state() and load_state() know
        self._is_accelerate_prepared = True

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.base_dataloader.set_epoch(epoch)  # and its workers, which may be alive

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self.dl_state_dict = state
        if state.get("epoch") is not None:  # what the next pass will be announced as
            self.iteration = state["epoch"] + state["finished"]

    def __reduce__(self) -> tuple:
        return _restored, (type(self), vars(self).copy())


class _Shard(_Prepared, theirs.DataLoaderShard):
    pass


class _Dispatcher(_Prepared, theirs.DataLoaderDispatcher):
    def adjust_state_dict_for_prefetch(self) -> None:
        # Taken before the last of the batches that make one for all processes.
        ahead = 0 if self.split_batches else self.state.num_processes - 1
        self.dl_state_dict = step_back(self.dl_state_dict, ahead)


def _restored(kind: type, attributes: dict) -> Any:
    prepared = kind.__new__(kind)
    prepared.__dict__.update(attributes)
    return prepared
