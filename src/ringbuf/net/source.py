"""What a server serves: a loader, an iterable of batches, or a callable that makes one for each epoch."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any

from ringbuf.loader.base import SPARE_SLOTS, LoaderBase
from ringbuf.loader.iterator import WorkerIterator
from ringbuf.net.parcel import Memory, Parcel, Pool
from ringbuf.rebuild import compile_schema

__all__ = ["Source"]


class Source:
    """Batches of one epoch after another.

    source: a RingLoader, whose workers write where clients read; any iterable of batches; or a callable that returns one for an
        epoch, and may take the parameters `epoch`, and `start`: the first batch of it that is wanted. A loader that it returns
        without asking for the epoch is kept and used for later epochs too.
    Raises TypeError for anything else.
    """

    def __init__(self, source: Any, memory: Memory, pool: Pool, batches_ahead: int):
        self._given = source
        self._memory = memory
        self._pool = pool
        self._ahead = batches_ahead
        self._made: Any = None
        self._before: dict[str, Any] | None = None  # the state of a loader before its first pass
        self._wanted: set[str] = set()
        self.length: int | None = _length_of(source)
        if not isinstance(source, LoaderBase) and callable(source) and not isinstance(source, Iterable):
            self._wanted = _parameters_of(source) & {"epoch", "start"}
        elif not isinstance(source, Iterable):
            raise TypeError(
                "the source should be a RingLoader, an iterable of batches, or a callable that returns one; "
                f"got {type(source).__name__}: {source!r}"
            )

    @property
    def once(self) -> bool:
        """Whether it can be gone through a single time."""
        return not self._callable and isinstance(self._given, Iterator)

    @property
    def _callable(self) -> bool:
        return not isinstance(self._given, Iterable)

    def epoch(self, number: int, start: int, *, anew: bool = False) -> Generator[Parcel | None, None, None]:
        """The batches of an epoch from number `start` on; None where there is no more use in them.

        anew: whether that is to be what the source gives there when it begins with epoch 0, whatever it gave since.
        """
        iterable = self._iterable(number, start)
        self.length = _length_of(iterable)
        if isinstance(iterable, LoaderBase) and not self._wanted:
            if self._before is None:
                self._before = iterable.state_dict()
            if anew:
                iterable.go_to(number, start, since=self._before)
                start = 0
        elif "start" in self._wanted:
            self.length = None if self.length is None else self.length + start
            start = 0
        return self._parcels(iterable, number, start)

    def close(self) -> None:
        """End workers of a loader that was made here; a loader that was given is its owner's."""
        if isinstance(self._made, LoaderBase):
            self._made.close()
        elif isinstance(self._given, LoaderBase):
            self._given.leave_memory()

    def _iterable(self, number: int, start: int) -> Any:
        if not self._callable:
            return self._given
        if isinstance(self._made, LoaderBase):
            if not self._wanted:
                return self._made
            self._made.close()  # batches that somebody looks at stay as they are
        self._made = self._given(
            **{name: value for name, value in (("epoch", number), ("start", start)) if name in self._wanted}
        )
        if not isinstance(self._made, Iterable):
            raise TypeError(
                f"the source returned no iterable of batches, but {type(self._made).__name__}: {self._made!r}"
            )
        return self._made

    def _parcels(self, iterable: Any, number: int, skip: int) -> Generator[Parcel | None, None, None]:
        batches = self._passed(iterable, number) if isinstance(iterable, LoaderBase) else iterable
        for batch in islice(batches, skip, None):
            yield batch if isinstance(batch, Parcel) else self._pool.put(batch)
            del batch  # or its slot would be in use until the next one is there

    def _passed(self, loader: LoaderBase, number: int) -> Iterator[Any]:
        """A pass of a loader: batches as they lie in its slots, and private ones where it gave those."""
        if loader.slots is None and loader.num_workers > 0:  # memory of slots that are not used is not there
            loader.slots = loader.prefetch_factor * loader.num_workers + SPARE_SLOTS + 2 * self._ahead
        loader.set_epoch(number)
        batches = iter(loader)
        if isinstance(batches, WorkerIterator):
            batches.hand_out = self._lend
        return batches

    def _lend(self, lease: Any) -> Parcel:
        parcel = Parcel(lease, self._memory.record(lease.ring), copied=False)
        schema = parcel.schema()
        if schema not in _sound:
            _refuse_pickles(schema)
        return parcel


_sound: dict[bytes, bool] = {}


def _refuse_pickles(schema: bytes) -> None:
    """A loader's workers may send their own parent pickles; no client reads one."""
    if compile_schema(schema, imports=False).pickled:
        path = _path_to_pickle(json.loads(schema.decode("utf-8", "surrogatepass"))[0])
        raise TypeError(
            f"batch{path} is of a kind that travels only pickled, and pickles are never served; let the collate function "
            "return arrays, tensors, numbers and text"
        )
    if len(_sound) >= 64:
        _sound.clear()
    _sound[schema] = True


def _path_to_pickle(node: Any) -> str | None:
    """Where in a tree, as tree.py draws it, the first pickled leaf is."""
    if not isinstance(node, list):
        return None
    word, *rest = node
    if word == "p":
        return ""
    if word in ("list", "tuple"):
        steps, children = [f"[{i}]" for i in range(len(rest))], rest
    elif word in ("dict", "ordered"):
        steps, children = [f"[{key!r}]" for key in rest[0]], rest[1:]
    elif word in ("named", "data"):
        steps, children = [f".{name}" for name in rest[2]], rest[3:]
    else:
        return None
    for step, child in zip(steps, children):
        path = _path_to_pickle(child)
        if path is not None:
            return step + path
    return None


def _length_of(source: Any) -> int | None:
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        return None


def _parameters_of(function: Callable) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()
