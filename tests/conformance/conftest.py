"""The two loaders, as a parameter of every test here."""

import gc
import importlib
import importlib.util
import multiprocessing
import sys
import weakref
from pathlib import Path

import pytest

LOADERS = {"torch": ("torch.utils.data", "DataLoader"), "ringbuf": ("ringbuf.torch", "RingLoader")}

# torch is the judge here. Without it there is nothing to compare with.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]


def pytest_collection_modifyitems(items):
    """Many tests keep all batches of a pass, which costs copies; ours says so once. And threads of torch's queues are sometimes
    still about their pipes when these are closed."""
    for item in items:
        which = item.callspec.params.get("Loader") if hasattr(item, "callspec") else None
        if item.path.parent == Path(__file__).parent and which != "ringbuf":
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"))
        if item.path.parent == Path(__file__).parent and which != "torch":
            item.add_marker(pytest.mark.filterwarnings("ignore:RingLoader. .* private copy:UserWarning"))


@pytest.fixture(scope="module", params=list(LOADERS))
def Loader(request):
    """The class under test: torch's first, then ours."""
    module, name = LOADERS[request.param]
    return getattr(importlib.import_module(module), name)


@pytest.fixture(params=[0, 2], ids=["in_process", "2_workers"])
def num_workers(request):
    return request.param


@pytest.fixture(autouse=True)
def no_iterator_survives_in_a_traceback(nothing_is_left_behind, monkeypatch):
    """An iterator that raised is in a cycle with its exception; end it before somebody looks for its workers. torch's takes 5 s
    for that when it is collected with its queues, and none when it is asked to."""
    torchs = sys.modules.get("torch.utils.data.dataloader")
    begun = weakref.WeakSet()
    if torchs is not None:
        begin = torchs._MultiProcessingDataLoaderIter.__init__

        def noted(iterator, *arguments):
            begin(iterator, *arguments)
            begun.add(iterator)

        monkeypatch.setattr(torchs._MultiProcessingDataLoaderIter, "__init__", noted)
    gc.disable()  # it would come across one before
    yield
    gc.enable()
    if multiprocessing.active_children():
        for iterator in list(begun):
            iterator._shutdown_workers()
        gc.collect()
