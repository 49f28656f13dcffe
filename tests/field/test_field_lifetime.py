"""Batches that are kept, changed, or outlive what they came from."""

import gc
import os
import signal
import sys

import numpy as np
import pytest
from field_data import Filled, OneBuffer, Stream
from field_loaders import COPIES, NumpyLoader, TorchLoader, both, numbers, rows, stream_for, torch, workers_or_none
from processes import script

import ringbuf

pytestmark = pytest.mark.filterwarnings(COPIES)

# Ways to keep a part of a batch, by what can be done to a tensor.
PARTS = {
    "whole": lambda batch: batch,
    "slice": lambda batch: batch[1, 1:, ::2],
    "transposed": lambda batch: batch.permute(2, 0, 1)[1:2],
    "reshaped": lambda batch: batch.view(-1)[5:9],
    "detached": lambda batch: batch.detach()[0],
    "array": lambda batch: batch.numpy()[1:, 0],
    "array and back": lambda batch: torch.from_numpy(np.asarray(batch)[..., 0]),
    "unbound": lambda batch: torch.unbind(batch)[1],
    "storage": lambda batch: torch.tensor([], dtype=batch.dtype).set_(batch.untyped_storage(), 0, (4,)),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_kept_part_of_a_tensor_stays_right_while_the_ring_goes_round(part):
    with TorchLoader(Filled(120, (4, 4)), 2, num_workers=2) as loader:
        kept = [part(batch) for batch in loader]
        assert loader.stats().slots * 5 < len(kept)
    gc.collect()
    for number, got in enumerate(kept):
        whole = torch.arange(2 * number, 2 * number + 2, dtype=torch.float32).repeat_interleave(16).view(2, 4, 4)
        assert np.array_equal(np.asarray(got), np.asarray(part(whole)))


@both
def test_the_first_batch_may_be_kept_to_the_end_while_all_others_are_dropped(Loader):
    with Loader(Filled(120), 2, num_workers=2) as loader:
        iterator = iter(loader)
        first = next(iterator)
        for _ in iterator:
            pass
        assert loader.stats().copies == 0
    assert rows(first) == [0, 1]


def read_one(Loader, leave):
    """A batch whose loader, iterator and workers are gone when this returns."""
    loader = Loader(Filled(20), 2, num_workers=1, persistent_workers=leave == "persistent")
    if leave == "with":
        with loader:
            return next(iter(loader))
    iterator = iter(loader)
    batch = next(iterator)
    if leave == "close":
        loader.close()
    return batch


@both
@pytest.mark.parametrize("leave", ["dropped", "with", "close", "persistent"])
def test_a_batch_outlives_its_loader_and_may_be_written_to(Loader, leave):
    loader = read_one(Loader, leave)  # a name that once was the loader's
    gc.collect()
    assert rows(loader) == [0, 1]
    loader[:] = 7
    assert rows(loader) == [7, 7]
    with Loader(Filled(20), 2, num_workers=1) as another:
        for _ in another:
            pass
    assert rows(loader) == [7, 7]


@both
def test_what_is_written_into_a_batch_is_in_no_other(Loader):
    with Loader(Filled(24, (4,)), 2, num_workers=2, persistent_workers=True) as loader:
        kept = []
        for batch in loader:
            batch += 1000
            torch.from_numpy(np.asarray(batch)).add_(1000)
            batch[:, 1:] = batch[:, 1:].sort()[0] if isinstance(batch, torch.Tensor) else np.sort(batch[:, 1:])
            kept.append(batch)
        assert numbers(loader) == list(range(24))
        again = list(loader)
    assert [number for batch in kept for number in rows(batch)] == list(range(2000, 2024))
    assert [number for batch in again for number in rows(batch)] == list(range(24))


@both
@pytest.mark.parametrize("tensor", [False, True], ids=["array", "tensor"])
@pytest.mark.parametrize("batch_size", [4, None])
def test_a_buffer_that_the_dataset_uses_again_is_read_before_the_next_sample(Loader, batch_size, tensor):
    with Loader(OneBuffer(tensor=tensor), batch_size, num_workers=1) as loader:
        got = [np.atleast_2d(np.asarray(batch)).tolist() for batch in list(loader)]
    assert [row for batch in got for row in batch] == [[float(number)] * 5 for number in range(20)]


def test_without_workers_a_reused_buffer_makes_right_arrays_too():
    got = list(NumpyLoader(OneBuffer(tensor=True), 4))
    assert [row for batch in got for row in np.asarray(batch).tolist()] == [[float(number)] * 5 for number in range(20)]


@both
@workers_or_none
def test_a_consumer_that_raises_in_every_round_loses_no_slot(Loader, num_workers):
    """More rounds than slots, each left by an exception whose traceback is dropped or kept for a while."""
    with Loader(Filled(60, (2,)), 2, num_workers=num_workers) as loader:
        iterator = iter(loader)
        seen, last = [], None
        for turn in range(30):
            try:
                batch = next(iterator)
                seen += rows(batch)
                raise ZeroDivisionError
            except ZeroDivisionError as error:
                last = error if turn % 2 else None
        assert seen == list(range(60))
        assert loader.stats().copies == 0
    del last


class Clings:
    """Looks at a view once more when it is collected, and fails."""

    def __init__(self, view):
        self.view = view

    def __del__(self):
        assert self.view[0] == self.view[-1]
        raise RuntimeError("on purpose")


def test_a_finaliser_that_raises_beside_a_view_gives_the_slot_back(monkeypatch):
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: raised.append(what.exc_type))
    with ringbuf.RingBuffer(slots=2, slot_bytes=1000) as ring:
        for number in range(10):
            ring.put(np.full(5, number), timeout=0)
            holder = Clings(ring.get(timeout=0))
            assert holder.view[0] == number
            del holder
        assert ring.stats().free == 2
    assert raised == [RuntimeError] * 10


INTERRUPTED_READS = """
import signal, threading, time
import numpy as np
from ringbuf import RingBuffer

def answer(*_):
    global inside
    if inside:
        inside = False
        raise KeyboardInterrupt

def interrupt(thread):
    for _ in range(60):
        time.sleep(0.003)
        signal.pthread_kill(thread, signal.SIGINT)

signal.signal(signal.SIGINT, answer)
inside, hits = False, 0
ring = RingBuffer(slots=3, slot_bytes=1000)
interrupter = threading.Thread(target=interrupt, args=(threading.get_ident(),))
interrupter.start()
while interrupter.is_alive():
    try:
        inside = True
        ring.put(np.arange(8), timeout=5)
        array = ring.get(timeout=5)
        assert array.tolist() == list(range(8))
        with ring.reserve(timeout=5) as slot:
            slot.value = slot.empty(8, np.int64)
            slot.value[:] = range(8)
        del array
        inside = False
    except KeyboardInterrupt:
        hits += 1
array = None
while len(ring):
    ring.get_copy(timeout=0)
stats = ring.stats()
print(hits > 0, stats.free, stats.writing, stats.reading)
"""


def test_an_interrupt_between_taking_and_giving_back_leaks_no_slot():
    done = script(INTERRUPTED_READS)
    assert (done.returncode, done.stdout) == (0, "True 3 0 0\n"), done.stderr


ENDS_AFTER_CLOSE = """
import gc, sys
import numpy as np
import ringbuf

ring = ringbuf.RingBuffer(slots=2, slot_bytes=1 << 20, name=sys.argv[1] or None)
ring.put(np.arange(1000))
view = ring.get()[10:20]
ring.close()
del ring
gc.collect()
view += 1
print(int(view.sum()))
"""


@pytest.mark.parametrize("name", ["", f"field-lifetime-{os.getpid()}"], ids=["anonymous", "named"])
def test_writing_to_a_view_after_everything_else_is_gone_is_no_signal(name):
    done = script(ENDS_AFTER_CLOSE, name)
    assert done.returncode not in (-signal.SIGSEGV, -signal.SIGBUS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "155\n", "")


@both
def test_a_stream_may_be_kept_whole(Loader):
    with Loader(stream_for(Loader, Stream([40, 40])), 2, num_workers=2) as loader:
        kept = list(loader)
    assert sorted(number for batch in kept for number in rows(batch)) == sorted(
        1000 * shard + number for shard in range(2) for number in range(40)
    )
