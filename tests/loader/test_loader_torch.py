"""What ringbuf.torch.RingLoader has beyond torch's loader and ours for arrays, each for itself."""

import inspect
import pickle
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from ringbuf.torch import RingLoader  # noqa: E402

RING_OPTIONS = {
    "slots": 5,
    "slot_bytes": 1 << 16,
    "max_bytes": 1 << 20,
    "max_restarts": 7,
    "seed_by": "sample",
    "on_error": "skip",
}


class Ramps(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return {
            "x": torch.full((8, 1024), index, dtype=torch.float32),
            "low": torch.full((3,), index, dtype=torch.bfloat16),
            "lower": torch.full((3,), index, dtype=torch.float32).to(torch.float8_e4m3fn),
            "y": index,
        }


def test_it_is_a_dataloader_with_torchs_arguments_in_torchs_order():
    assert issubclass(RingLoader, torch.utils.data.DataLoader)
    theirs = list(inspect.signature(torch.utils.data.DataLoader.__init__).parameters.values())
    ours = list(inspect.signature(RingLoader.__init__).parameters.values())
    assert [(p.name, p.kind, p.default) for p in ours[: len(theirs)]] == [(p.name, p.kind, p.default) for p in theirs]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in ours[len(theirs) :])


def test_every_option_of_the_ring_is_an_attribute_of_the_same_name():
    names = set(inspect.signature(RingLoader.__init__).parameters) - set(
        inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    )
    loader = RingLoader(Ramps(), **RING_OPTIONS)
    assert {name: vars(loader)[name] for name in RING_OPTIONS} == RING_OPTIONS
    assert names <= vars(loader).keys()


def test_a_loader_made_anew_from_its_attributes_is_the_same():
    """As frameworks do that put another sampler in."""
    loader = RingLoader(Ramps(), batch_size=4, num_workers=1, **RING_OPTIONS)
    names = inspect.signature(RingLoader.__init__).parameters.keys()
    names -= {"self", "shuffle", "batch_sampler", "multiprocessing_context"}
    again = RingLoader(**{name: getattr(loader, name) for name in names})
    assert {name: vars(again)[name] for name in RING_OPTIONS} == RING_OPTIONS
    assert [batch["y"].tolist() for batch in again] == [batch["y"].tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_tensors_of_every_width_arrive_as_they_are(workers):
    batch = next(iter(RingLoader(Ramps(), batch_size=12, num_workers=workers)))
    assert {key: value.dtype for key, value in batch.items()} == {
        "x": torch.float32, "low": torch.bfloat16, "lower": torch.float8_e4m3fn, "y": torch.int64
    }  # fmt: skip
    expected = torch.arange(12)
    assert torch.equal(batch["low"][:, 0].long(), expected)
    assert torch.equal(batch["lower"].view(torch.uint8)[:, 1], expected.float().to(torch.float8_e4m3fn).view(torch.uint8))


class Zeros:
    """Some of them are torch's efficient zeros, which have no memory."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch._efficientzerotensor((600,)) if index % 2 else torch.full((600,), float(index))


def test_a_tensor_without_memory_is_no_crash():
    (batch,) = RingLoader(Zeros(), batch_size=4, num_workers=1)
    assert batch[:, 0].tolist() == [0, 0, 2, 0] and torch.equal(batch[3], torch.zeros(600))


def test_a_tensor_is_the_memory_of_its_slot():
    with RingLoader(Ramps(), batch_size=4, num_workers=1) as loader:
        iterator = iter(loader)
        batch = next(iterator)
        held = iterator._rings.held
        part = batch["x"][1:2, 3].view(2, 512)
        del batch
        assert held == iterator._rings.held == 1
        del part
        assert iterator._rings.held == 0


def test_batches_are_writable_and_nobody_elses():
    with RingLoader(Ramps(), batch_size=4, num_workers=2) as loader:
        kept = []
        for batch in loader:
            batch["x"].add_(1000)
            kept.append(batch["x"][:, 0, 0].tolist())
        assert kept == [[1000 + index for index in range(first, first + 4)] for first in (0, 4, 8)]


def test_a_copy_is_a_fresh_loader_of_the_same_settings():
    loader = RingLoader(Ramps(), batch_size=4, num_workers=1, **RING_OPTIONS)
    next(iter(loader))
    twin = pickle.loads(pickle.dumps(loader))
    assert {name: getattr(twin, name) for name in RING_OPTIONS} == RING_OPTIONS
    assert twin.stats().batches == 0
    assert len(list(twin)) == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_torchs_profiler_counts_waits_as_time_of_the_dataloader(workers):
    loader = RingLoader(Ramps(), batch_size=4, num_workers=workers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the profiler itself
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            assert len(list(loader)) == 3
    names = [event.key for event in profile.key_averages()]
    assert [name for name in names if name.startswith("enumerate(DataLoader)#") and name.endswith("Iter.__next__")]


class MixedArrays:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.full(3, index + 0.5, np.float32 if index else np.float16)


def test_arrays_of_several_dtypes_are_what_torchs_worker_makes_of_them():
    (theirs,) = torch.utils.data.DataLoader(MixedArrays(), batch_size=4)
    (ours,) = RingLoader(MixedArrays(), batch_size=4)
    assert (ours.dtype, ours.tolist()) == (theirs.dtype, theirs.tolist())
    outcomes = []
    for kind in (torch.utils.data.DataLoader, RingLoader):  # in a worker torch keeps the first dtype, or refuses
        try:
            (batch,) = kind(MixedArrays(), batch_size=4, num_workers=1)
            outcomes.append((batch.dtype, batch.tolist()))
        except RuntimeError as error:
            outcomes.append("can't be cast" in str(error))
    assert outcomes[0] == outcomes[1]


# ---- pinned memory --------------------------------------------------------------------------------------------------


class Envelope:
    """A batch of somebody's own making, which knows how to be pinned."""

    def __init__(self, samples):
        self.x = torch.stack([sample["x"] for sample in samples])
        self.pinned = False

    def pin_memory(self, device=None):
        self.x, self.pinned = self.x.clone(), True
        return self


@pytest.mark.parametrize("workers", [0, 1])
def test_with_an_accelerator_batches_are_pinned_and_their_slots_free(workers, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda *_, **__: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
    with RingLoader(Ramps(), batch_size=4, num_workers=workers, pin_memory=True, collate_fn=Envelope) as loader:
        iterator = iter(loader)
        batch = next(iterator)
        assert isinstance(batch, Envelope)
        assert batch.pinned
        assert batch.x[:, 0, 0].tolist() == [0, 1, 2, 3]
        assert workers == 0 or iterator._rings.held == 0


@pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator that torch knows")
def test_pinned_batches_reach_the_device_while_their_slots_are_used_again():
    with RingLoader(Ramps(), batch_size=2, num_workers=2, pin_memory=True) as loader:
        device = torch.accelerator.current_accelerator()
        moved = []
        for batch in loader:
            assert batch["x"].is_pinned()
            moved.append(batch["x"].to(device, non_blocking=True))
        torch.accelerator.synchronize()
        assert [int(x[0, 0, 0]) for x in moved] == [0, 2, 4, 6, 8, 10]


def test_without_an_accelerator_pinning_is_warned_of():
    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    with pytest.warns(UserWarning, match="no accelerator is found"):
        iter(RingLoader(Ramps(), pin_memory=True))


class Interrupted(Envelope):
    def pin_memory(self, device=None):
        raise KeyboardInterrupt


@pytest.mark.parametrize("workers", [0, 1])
def test_an_interrupt_while_a_batch_is_pinned_is_not_a_delivery(workers, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda *_, **__: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
    with RingLoader(Ramps(), batch_size=4, num_workers=workers, pin_memory=True, collate_fn=Interrupted) as loader:
        iterator = iter(loader)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert loader.state_dict()["position"] == 0


# ---- a collate_fn of one's own -----------------------------------------------------------------------------------------


def through_torch(samples):
    batch = torch.utils.data.default_collate(samples)
    batch["mine"] = np.arange(len(samples))
    return batch


def test_torchs_collate_inside_ones_own_makes_no_file_in_shared_memory(monkeypatch):
    """In a worker torch's function puts each tensor into a file in /dev/shm, which may be small."""

    def refuse(*_, **__):
        raise AssertionError("a file in /dev/shm")

    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", refuse)
    (batch,) = RingLoader(Ramps(), batch_size=12, num_workers=1, collate_fn=through_torch)
    assert batch["y"].tolist() == batch["mine"].tolist() == list(range(12))


def test_importing_ringbuf_leaves_torch_out():
    import subprocess
    import sys

    script = "import ringbuf, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=30).returncode == 0
