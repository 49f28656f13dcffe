"""Running a loader and writing down all that its user can see; and comparing two such records."""

from __future__ import annotations

import dataclasses
import gc
import random
import re
import struct
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader

from ringbuf.torch import RingLoader

__all__ = ["assert_same", "differences", "observe"]

MOST_STEPS = 200  # of a pass that does not end


# ---- what was seen --------------------------------------------------------------------------------------------------


AT_ONCE = "raised by iter()"


class Raised(NamedTuple):
    """An exception that came out of a loader."""

    kind: str
    """Its own type."""
    text: str
    original: str
    """The type it had where it was raised."""
    cause: str
    """What a worker said of it."""
    args: str

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        cause = "" if error.__cause__ is None else str(error.__cause__).lstrip("\n")
        kind = type(error).__name__
        text = str(error) or str(*error.args[:1])  # for errors that do not say what they were given
        account = cause if cause.startswith("Caught ") else text
        original = account.split()[1] if account.startswith("Caught ") else kind
        text, cause = (re.sub("0x[0-9a-f]{6,}", "0x", part) for part in (text, cause))  # where things lie
        return cls(kind, text, original, cause, repr(error.args))

    @property
    def account(self) -> str:
        return self.cause if self.cause.startswith("Caught ") else self.text


class Record(NamedTuple):
    """All that a program saw of a loader."""

    made: Any
    """How it looks; Raised where it could not be made."""
    lengths: list
    passes: list
    """For each pass: batches, as `describe` shows them, and Raised."""
    warned: list
    """(category, text) of each warning, in order."""
    streams: list
    """Where the program's random streams are afterwards."""


def describe(value: Any) -> Any:
    """`value` as nested tuples that are equal if and only if a user cannot tell what they describe apart."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, torch.Tensor):
        return _described_tensor(name, value)
    if isinstance(value, np.ndarray):
        # Pickling, which is how torch's workers send them, turns arrays to the machine's byte order.
        dtype = value.dtype.newbyteorder("=")
        # Of the sixteen bytes of a long double six are padding.
        content = repr(value.tolist()) if dtype.hasobject or dtype.char in "gG" else np.ascontiguousarray(value, dtype).tobytes()
        return (name, repr(dtype), value.shape, content)
    if isinstance(value, np.generic):
        name = name.replace("longlong", "int64")  # likewise
        return (name, repr(value.dtype), value.tobytes())
    if kind is float:
        return struct.pack("<d", value)
    attributes = tuple((key, describe(content)) for key, content in getattr(value, "__dict__", {}).items())
    if isinstance(value, (str, bytes, int, float)) or value is None:
        return value if not attributes and kind in (str, bytes, int, bool, type(None)) else (name, repr(value), attributes)
    if isinstance(value, Mapping):
        factory = getattr(value, "default_factory", None)
        return (name, attributes, factory, tuple((describe(key), describe(value[key])) for key in value))
    if isinstance(value, range):
        return repr(value)
    if isinstance(value, (Sequence, tuple)) or type(value).__name__ == "deque":
        return (name, attributes, tuple(map(describe, value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (name, tuple((field.name, describe(getattr(value, field.name))) for field in dataclasses.fields(value)))
    if attributes:
        return (name, attributes)
    return (name, repr(value))


def _described_tensor(name: str, value: torch.Tensor) -> Any:
    facts = (name, str(value.dtype), str(value.layout), value.requires_grad, value.is_leaf)
    value = value.detach()
    if type(value) is not torch.Tensor and not value.is_nested:
        value = value.as_subclass(torch.Tensor)
    if value.is_nested or value.layout is not torch.strided:
        parts = value.unbind() if value.is_nested else [value.to_dense()]
        return (*facts, tuple(map(describe, parts)))
    plain = value.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    bits = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return (*facts, tuple(value.shape), order_in_memory(value), bits)


def order_in_memory(tensor: torch.Tensor) -> Any:
    """In which order the dimensions lie; what overlaps or has gaps is as good as one that does not."""
    long = [axis for axis, length in enumerate(tensor.shape) if length > 1]
    if tensor.numel() == 0 or any(tensor.stride(axis) == 0 for axis in long):
        return tuple(long)
    return tuple(sorted(long, key=lambda axis: -tensor.stride(axis)))


def look(loader: DataLoader) -> Any:
    """A loader's attributes that torch's has."""
    public = {name: value for name, value in vars(loader).items() if not name.startswith("_") and name in TORCHS}
    public["context"] = loader.multiprocessing_context
    kinds = {"dataset", "sampler", "batch_sampler", "generator", "context"}
    seen = {name: type(value).__name__ if name in kinds else repr(value) for name, value in public.items()}
    seen.update(kind=loader._dataset_kind, together=loader._auto_collation, indices=type(loader._index_sampler).__name__)
    return tuple(sorted((name, str(value)) for name, value in seen.items()))


def keywords(text: str) -> str:
    """A warning without advice that may be put in other words."""
    told, found, _ = text.partition("samples have been fetched")
    return told.replace(" (when", "(when") if found else text


# What torch's own code says of its own code when a tensor arrives.
NOT_OF_LOADERS = "TypedStorage is deprecated|ComplexHalf support is experimental|nested tensors is in prototype"

TORCHS = set(vars(DataLoader([0])))


# ---- running --------------------------------------------------------------------------------------------------------


def observe(Loader: type, case: Any) -> Record:
    """Run `case` with a loader class. It has `seed`, `arguments()`, and what a program does with the loader: `passes`, for
    each pass the number of batches after which it breaks off, or None; `length`, when it asks for the length."""
    _seed(case.seed)
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", ".*multi-threaded.*", DeprecationWarning)
            record = _run(Loader, case)
        warned = [(one.category.__name__, keywords(str(one.message))) for one in caught]
        warned = [one for one in warned if not re.search(NOT_OF_LOADERS, one[1])]
        return record._replace(warned=warned)
    finally:
        torch.set_warn_always(always)


def _run(Loader: type, case: Any) -> Record:
    arguments = case.arguments()
    lengths: list = []
    passes: list = []
    loader = None
    try:
        loader = Loader(**arguments)
    except Exception as error:
        made: Any = Raised.of(error)
    else:
        made = look(loader)
        for number, stop in enumerate(case.passes):
            if case.length == number:
                lengths.append(_length(loader))
            passes.append(_events(loader, stop))
        if case.length == len(case.passes):
            lengths.append(_length(loader))
    finally:
        if isinstance(loader, RingLoader):
            loader.close()
        elif hasattr(getattr(loader, "_iterator", None), "_shutdown_workers"):
            loader._iterator._shutdown_workers()  # left to the garbage collector, it takes five seconds for each worker
        loader = None
        if arguments.get("num_workers"):
            gc.collect()  # errors that were raised hold iterators; not to be inherited by the next workers
    streams = [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]
    streams += [generator.get_state().tolist() for generator in _generators(arguments)]
    return Record(made, lengths, passes, [], streams)


def _events(loader: DataLoader, stop: int | None) -> list:
    events: list = []
    try:
        iterator = iter(loader)
    except Exception as error:
        return [Raised.of(error)._replace(cause=AT_ONCE)]
    while len(events) != stop:
        assert len(events) < MOST_STEPS, "the pass does not end"
        try:
            events.append(describe(next(iterator)))
        except StopIteration as end:
            if end.args:  # a sample's own
                events.append(Raised.of(end))
                continue
            break
        except Exception as error:
            events.append(Raised.of(error))
            if "timed out" in str(error):
                raise AssertionError("a loader waits in vain") from error
            if FATAL in events[-1].text:
                break  # torch's goes on for ever, with errors about its own variables
    if type(loader) is DataLoader and not loader.persistent_workers and loader.num_workers:
        iterator._shutdown_workers()  # see _run
    return events


def _length(loader: DataLoader) -> Any:
    try:
        return len(loader)
    except Exception as error:
        return Raised.of(error)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _generators(arguments: dict) -> list:
    found = [arguments.get("generator"), getattr(arguments.get("sampler"), "generator", None)]
    found.append(getattr(getattr(arguments.get("batch_sampler"), "sampler", None), "generator", None))
    return [one for one in found if isinstance(one, torch.Generator)]


# ---- comparing ------------------------------------------------------------------------------------------------------


def assert_same(case: Any) -> Record:
    """Run `case` with torch's loader and with ours; AssertionError for each thing that differs without being documented."""
    theirs, ours = observe(DataLoader, case), observe(RingLoader, case)
    found = differences(theirs, ours, unordered=getattr(case, "unordered", False))
    assert not found, "torch's loader and ours differ:\n" + "\n".join(found)
    return theirs


def differences(theirs: Record, ours: Record, *, unordered: bool = False) -> list[str]:
    """What differs between two records, a line each."""
    found = []
    if isinstance(theirs.made, Raised) or isinstance(ours.made, Raised):
        found += _of_refusals(theirs.made, ours.made)
    elif theirs.made != ours.made:
        found.append(f"attributes: {sorted(set(theirs.made) ^ set(ours.made))}")
    for name in ("lengths", "warned"):
        one, other = getattr(theirs, name), getattr(ours, name)
        if one != other:
            found.append(f"{name}: torch's {one}, ours {other}")
    for number, (one, other) in enumerate(zip(theirs.passes, ours.passes)):
        if unordered:
            one, other = sorted_out(one), sorted_out(other)
        found += [f"pass {number}, {line}" for line in _of_passes(one, other)]
    if any(event.cause == AT_ONCE for one in theirs.passes for event in one[:1] if isinstance(event, Raised)):
        return found  # torch draws before it refuses
    for name, one, other in zip(("random", "numpy", "torch", "generator", "second generator"), theirs.streams, ours.streams):
        if one != other:
            found.append(f"the stream of {name} is elsewhere afterwards")
    return found


def sorted_out(events: list) -> list:
    """The steps of a pass in an order that does not depend on which worker made what, and when."""

    def key(event: Any) -> str:
        return f"{event.original}: {event.account.rstrip().rpartition(chr(10))[2]}" if isinstance(event, Raised) else repr(event)

    def anonymous(event: Any) -> Any:
        if not isinstance(event, Raised):
            return event
        return Raised(*(re.sub(r"worker process \d+", "worker process N", part) for part in event))

    return sorted(map(anonymous, events), key=key)


def _of_refusals(theirs: Any, ours: Any) -> list[str]:
    if not isinstance(theirs, Raised):
        return [f"only ours refuses: {ours.kind}: {ours.text}"]
    if not isinstance(ours, Raised):
        return [f"only torch's refuses: {theirs.kind}: {theirs.text}"]
    if theirs.kind == ours.kind and theirs.text == ours.text.replace("RingLoader", "DataLoader"):
        return []
    return [f"refused by torch's with {theirs.kind}: {theirs.text}\nby ours with {ours}"]


def first_difference(theirs: Any, ours: Any, path: str = "") -> str:
    if isinstance(theirs, tuple) and isinstance(ours, tuple) and len(theirs) == len(ours) and theirs[:1] == ours[:1]:
        for place, (one, other) in enumerate(zip(theirs, ours)):
            if one != other:
                name = next((part for part in (theirs[0],) if isinstance(part, str)), "")
                return first_difference(one, other, f"{path}.{name.rpartition('.')[2]}[{place}]")
    return f"at {path or 'its root'} torch has {theirs!r}\n  ours {ours!r}"


def _of_passes(theirs: list, ours: list) -> list[str]:
    found = []
    for at, (one, other) in enumerate(zip(theirs, ours)):
        if isinstance(one, Raised) and isinstance(other, Raised):
            line = _of_errors(one, other)
        else:
            line = None if one == other else first_difference(one, other)
        if line is not None:
            found.append(f"step {at}: {line}")
    if len(theirs) != len(ours):
        found.append(f"torch has {len(theirs)} steps, ours {len(ours)}: next is {(theirs + ours)[min(len(theirs), len(ours))]!r}")
    return found


FATAL = "broken from the start"  # what datasets here say when they fail before the first batch
NOT_REBUILT = ("Unpicklable",)  # errors here that cannot leave their process
# Torch's words, and type and words of ours where they say more: of a batch of no samples; of what torch's collate fails with
# in a worker, where it comes to its shared memory before it comes to look at the samples.
OTHER_WORDS = {
    "list index out of range": ("IndexError", "a batch of no samples"),
    "Trying to resize storage that is not resizable": ("RuntimeError", "stack expects each tensor to be equal size"),
    "requires timeout == 0": ("AssertionError", "needs worker processes"),
    "prefetch_factor must be greater than 0": ("AssertionError", "it must be positive"),
    "object has no attribute 'numel'": ("TypeError", "expected Tensor as element"),
}


def _of_errors(theirs: Raised, ours: Raised) -> str | None:
    """None, or what differs. Ours keep their type and arguments; torch's words on a worker's error are in their cause."""
    if theirs.original == "StopIteration":
        if ours.kind == "RuntimeError" and "StopIteration was raised for sample" in ours.text:
            return None
    elif not theirs.account.startswith("Caught "):
        words = next((words for said, (_, words) in OTHER_WORDS.items() if said in theirs.text), "\0")
        if ours.kind == theirs.kind and (ours.args == theirs.args or words in ours.text):
            return None
    else:
        last = theirs.account.rstrip().rpartition("\n")[2]
        kind, words = next((ours for said, ours in OTHER_WORDS.items() if said in last), (theirs.original, last))
        head = f"Caught {kind} in DataLoader worker process {theirs.account.split()[6].strip('.:')}"
        same_kind = ours.kind == ("RuntimeError" if kind in NOT_REBUILT else kind)
        if same_kind and ours.account.startswith(head) and words in ours.account:
            return None
    return f"torch raises {theirs.kind}: {theirs.account}\n  ours {ours.kind}: {ours.text}\n  from {ours.cause}"
