"""For frameworks that take a loader apart and build a plain one of its arguments: the way there, the way back, and a
warning where nobody finds the way back.

accelerate does so with every DataLoader that it is given, subclass or not. Its loader gives the same batches, by torch's
workers: what is lost is what a RingLoader is for, and nothing would tell.
"""

from __future__ import annotations

import copy
import warnings
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader

__all__ = ["as_plain", "as_ring", "warn_if_rebuilt"]

# Where accelerate reads a loader's arguments in order to build another one of them.
REBUILDER = "accelerate.data_loader"
REBUILDING = ("prepare_data_loader", "skip_first_batches")

warned = False


def as_plain(loader: DataLoader) -> DataLoader:
    """torch's own loader of the arguments of ours."""
    plain = DataLoader.__new__(DataLoader)
    plain.__dict__.update({name: vars(loader)[name] for name in vars(DataLoader((0,)))})
    plain.__dict__["_iterator"] = None
    return plain


def as_ring(loader: DataLoader, plain: DataLoader) -> Any:
    """A loader of ours with what `plain` was built from, and with the options and the class of `loader`."""
    ring = copy.copy(loader)  # a fresh one, with nothing under way
    kept = {"_iterator"}
    if plain.batch_sampler is not None:
        # It stands for all of them. But the generator that has the order, and set_epoch, are found by our own sampler.
        kept.add("sampler")
    ring.__dict__.update({name: value for name, value in vars(plain).items() if name in vars(ring).keys() - kept})
    return ring


def warn_if_rebuilt(reader: FrameType | None) -> None:
    """Warn, once in a process, if whoever reads an argument of a loader is accelerate, about to build a plain one."""
    global warned
    rebuilding, level = False, 2
    while reader is not None and reader.f_globals.get("__name__", "").split(".")[0] == "accelerate":
        rebuilding |= reader.f_globals["__name__"] == REBUILDER and reader.f_code.co_name in REBUILDING
        reader = reader.f_back
        level += 1
    if not rebuilding or warned:
        return
    warned = True
    warnings.warn(
        "accelerate builds a plain DataLoader from the arguments of this RingLoader, and uses that instead: the batches are "
        "the same, but neither the ring nor slots, seed_by, on_error, state_dict and the like are there any more. Use "
        "ringbuf.accelerate.prepare(accelerator, loader), or ringbuf.accelerate.skip_first_batches(loader, n), and give "
        "accelerator.prepare() what they return, or nothing",
        stacklevel=level + 1,
    )
