"""Every input that fuzzing of frames began with or found, once more: a batch or a FrameError, and no pickle runs."""

import importlib.util
from pathlib import Path

import pytest

from ringbuf import frame
from ringbuf.errors import FrameError

FUZZ = Path(__file__).with_name("fuzz")
CORPUS = sorted((FUZZ / "corpus/frame").iterdir())

spec = importlib.util.spec_from_file_location("fuzz_frame", FUZZ / "frame.py")
fuzzing = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzzing)


@pytest.fixture(autouse=True)
def no_pickles():
    with fuzzing.pickles_forbidden():
        yield


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_an_input_that_fuzzing_found_does_no_harm(path):
    fuzzing.run(path.read_bytes(), frame.read, FrameError)


def test_the_corpus_reaches_behind_the_checks():
    batches = [fuzzing.run(path.read_bytes(), frame.read, FrameError) for path in CORPUS]
    assert batches.count(2) > 8 and batches.count(0) > 3


def test_a_pickle_that_ran_would_be_noticed():
    def trusting(buffer, *, copy):
        return frame.read(buffer, copy=copy, pickle=True)

    with pytest.raises(fuzzing.PickleRan):
        fuzzing.run((FUZZ / "corpus/frame/seed-schema-pickle").read_bytes(), trusting, FrameError)


def test_the_corpora_stay_small():
    files = [path for path in (FUZZ / "corpus").rglob("*") if path.is_file()]
    assert len(files) <= 100 and sum(path.stat().st_size for path in files) <= 200_000
