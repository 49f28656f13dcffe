"""What MODULE:OBJECT stands for."""

import sys

import numpy as np
import pytest
from commands import write_sources

import ringbuf
from ringbuf.cli.factory import load
from ringbuf.cli.outcome import WrongUsage


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    write_sources(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_modules_of_the_current_folder_come_first(folder):
    assert len(load("sources:batches")) == 4
    assert sys.path[0] == str(folder)


def test_an_iterable_is_the_source_itself():
    assert load("sources:loader") is sys.modules["sources"].loader
    assert load("package.data:Box.batches") == [1.5]


def test_a_callable_is_called_once():
    loader = load("sources:make_loader")
    assert isinstance(loader, ringbuf.RingLoader) and loader.batch_size == 4


def test_workers_go_to_a_callable_that_takes_them():
    assert load("sources:with_workers", workers=3) == [np.full(1, 3)]
    assert load("sources:with_workers") == [np.zeros(1)]


@pytest.mark.parametrize("target", ["sources:loader", "sources:make_loader"])
def test_workers_go_to_a_loader(target):
    loader = load(target, workers=2)
    assert loader.num_workers == 2 and [len(batch) for batch in loader] == [loader.batch_size] * (
        8 // loader.batch_size
    )
    loader.close()


def test_no_workers_can_be_asked_for():
    assert load("sources:make_loader", workers=0).num_workers == 0


def test_a_generator_function_is_called_for_each_epoch():
    source = load("sources:generate")
    assert [[float(b[0]) for b in source()] for _ in range(2)] == [[0.0, 1.0]] * 2


def test_what_returns_an_iterator_is_called_for_each_epoch_and_none_is_thrown_away():
    source = load("sources:iterator")
    assert [[int(b[0]) for b in source()] for _ in range(3)] == [[1], [2], [3]]


def test_a_callable_with_an_epoch_is_called_by_the_server():
    source = load("sources:of_epoch")
    assert source is sys.modules["sources"].of_epoch
    with ringbuf.Server(source, "factory-epochs", epochs=2), ringbuf.connect("factory-epochs") as stream:
        assert [[int(b[0]) for b in stream] for _ in range(2)] == [[0], [1]]


def test_workers_and_epochs_go_together(folder):
    (folder / "both.py").write_text(
        "def f(epoch, workers=0, start=0):\n    yield from [epoch, workers, start][start:]\n"
    )
    with ringbuf.Server(load("both:f", workers=5), "factory-both", epochs=2), ringbuf.connect("factory-both") as stream:
        assert [list(stream), list(stream)] == [[0, 5, 0], [1, 5, 0]]


def test_a_module_that_lacks_another_is_not_called_missing():
    with pytest.raises(WrongUsage, match="importing 'lacking' raised ModuleNotFoundError"):
        load("lacking:x")
