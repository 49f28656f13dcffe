"""A warning points at the line that called into the package, whichever class and way it came from."""

import numpy as np
import pytest

import ringbuf

torch = pytest.importorskip("torch")
from ringbuf.torch import RingLoader as TorchLoader  # noqa: E402

LOADERS = {"arrays": ringbuf.RingLoader, "tensors": TorchLoader}


@pytest.fixture(params=LOADERS)
def Loader(request):
    return LOADERS[request.param]


class FailsAtThree:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 3:
            raise ValueError("three")
        return np.zeros(2)


class SaysThreeGivesFour(torch.utils.data.IterableDataset):
    def __len__(self):
        return 3

    def __iter__(self):
        return iter(range(4))


def all_at_once(loader):
    list(loader)


def one_by_one(loader):
    for _ in loader:
        pass


@pytest.mark.parametrize("consume", [all_at_once, one_by_one])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("policy", ["skip", lambda index, error: np.zeros(3)], ids=["skip", "replaced, then refused"])
def test_that_a_sample_failed(Loader, workers, policy, consume):
    with Loader(FailsAtThree(), 4, num_workers=workers, on_error=policy) as loader:
        with pytest.warns(RuntimeWarning, match="sample 3 failed") as warned:
            try:
                consume(loader)
            except RuntimeError as error:
                assert policy != "skip" and "equal size" in str(error)
    assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.parametrize("workers", [0, 1])
def test_that_more_samples_come_than_were_promised(Loader, workers):
    with Loader(SaysThreeGivesFour(), None, num_workers=workers) as loader:
        assert len(loader) == 3
        with pytest.warns(UserWarning, match="4 samples have been fetched") as warned:
            one_by_one(loader)
    assert [warning.filename for warning in warned] == [__file__]


def test_that_batches_are_copies(Loader):
    with Loader(range(40), 2, num_workers=1) as loader:
        kept = []
        with pytest.warns(UserWarning, match="private copy") as warned:
            for batch in loader:
                kept.append(batch)
    assert [warning.filename for warning in warned] == [__file__]


class NotPickled:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return index

    def __reduce__(self):
        raise TypeError("not this one")


def test_that_a_spawned_worker_needs_pickles(Loader):
    with Loader(NotPickled(), num_workers=1, multiprocessing_context="spawn") as loader:
        with pytest.warns(UserWarning, match="Got pickle error") as warned, pytest.raises(TypeError, match="not this one"):
            iter(loader)
    assert [warning.filename for warning in warned] == [__file__]
