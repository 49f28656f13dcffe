"""Traces: what is in them, and that the file is in order whatever happens."""

import collections
import itertools
import json
import os
import pickle
import subprocess
import sys

import pytest
from processes import eventually, forked
from trainers import Rows, Stream, Together, listed, names, run, trainer

import ringbuf
import ringbuf.torch

LOADERS = {"numpy": ringbuf.RingLoader, "torch": ringbuf.torch.RingLoader}
KINDS = {"rows": (Rows(), {}), "collate_fn": (Rows(), {"collate_fn": listed}), "together": (Together(), {})}


def spans_of(path):
    """The spans of a trace, by thread and in order; its tracks by number. All of it was checked for its form."""
    events = json.loads(path.read_text())
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = collections.defaultdict(list)
    for event in events:
        assert event["ph"] in "MXC" and event["pid"] == os.getpid()
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["tid"] in tracks
            spans[tracks[event["tid"]]].append(event)
    for track in spans.values():
        for before, after in itertools.pairwise(track):
            assert after["ts"] >= before["ts"] + before["dur"] - 0.002, (before, after)  # printed with three digits
    return spans


def batches_in(spans, kind):
    found = [span["args"] for span in spans if span["name"] == kind]
    return sorted((one["pass"], one["batch"]) for one in found if "batch" in one)


def seconds_in(spans, kind):
    return sum(span["dur"] for span in spans if span["name"] == kind) / 1e6


@pytest.mark.parametrize(("dataset", "options"), KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_every_batch_has_its_spans_and_they_add_up(workers, dataset, options, tmp_path):
    path = tmp_path / "trace.json"
    with ringbuf.RingLoader(dataset, 4, num_workers=workers, trace=path, **options) as loader:
        for _ in range(2):
            run(loader)
    spans, stats = spans_of(path), loader.stats()
    assert set(spans) == {"consumer", *(f"worker {number}" for number in range(max(1, workers)))}
    made = [span for track, found in spans.items() if track != "consumer" for span in found]
    all_batches = [(number, batch) for number in range(2) for batch in range(16)]
    for kind in ("load", "collate"):
        assert batches_in(made, kind) == all_batches
    for kind in ("wait", "use"):
        assert batches_in(spans["consumer"], kind) == all_batches
    sums = {"load": stats.load_ns, "collate": stats.collate_ns, "wait for a task": stats.wait_task_ns}
    for kind, total_ns in sums.items():
        assert seconds_in(made, kind) == pytest.approx(total_ns / 1e9, abs=1e-5)
    for kind, total_ns in {"wait": stats.wait_ns, "use": stats.use_ns}.items():
        assert seconds_in(spans["consumer"], kind) == pytest.approx(total_ns / 1e9, abs=1e-5)


def test_a_wait_names_the_worker_that_made_the_batch_and_ends_after_it(tmp_path):
    path = tmp_path / "trace.json"
    with ringbuf.RingLoader(Rows(), 4, num_workers=2, trace=path) as loader:
        run(loader)
    spans = spans_of(path)
    waits = [span for span in spans["consumer"] if span["name"] == "wait" and "batch" in span["args"]]
    assert [span["args"]["worker"] for span in waits] == [batch % 2 for batch in range(16)]
    for wait in waits:
        makers = spans[f"worker {wait['args']['worker']}"]
        (made,) = [span for span in makers if span["name"] == "load" and span["args"]["batch"] == wait["args"]["batch"]]
        assert wait["ts"] + wait["dur"] > made["ts"] + made["dur"]  # one clock


@pytest.mark.parametrize("Loader", LOADERS.values(), ids=LOADERS)
def test_ready_batches_are_a_counter_and_names_are_given(Loader, tmp_path):
    path = tmp_path / "trace.json"
    with Loader(Rows(), 4, num_workers=1, trace=str(path), name=next(names)) as loader:
        run(loader)
    events = json.loads(path.read_text())
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == [
        f"{loader.name} ({os.path.basename(getattr(sys.modules['__main__'], '__file__', None) or sys.executable)})"
    ]
    counts = [event["args"]["ready"] for event in events if event["ph"] == "C"]
    assert counts and all(0 <= count <= 4 for count in counts)


@pytest.mark.parametrize("Loader", LOADERS.values(), ids=LOADERS)
def test_passes_of_all_kinds_go_to_one_file(Loader, tmp_path):
    path = tmp_path / "trace.json"
    with Loader(Rows(), 4, num_workers=1, persistent_workers=True, trace=path) as loader:
        for _ in range(3):
            run(loader)
            assert batches_in(spans_of(path)["worker 0"], "load")[-1] == (loader.stats().batches // 16 - 1, 15)
    assert len(batches_in(spans_of(path)["worker 0"], "load")) == 48


def test_passes_at_the_same_time_have_tracks_of_their_own(tmp_path):
    path = tmp_path / "trace.json"
    with ringbuf.RingLoader(Rows(), 4, num_workers=1, trace=path, name=next(names)) as loader:
        assert sum(1 for _ in zip(loader, loader)) == 16
    spans = spans_of(path)
    assert set(spans) == {"consumer", "worker 0", f"consumer of {loader.name}-2", f"worker 0 of {loader.name}-2"}
    assert len(batches_in(spans[f"worker 0 of {loader.name}-2"], "load")) == 16


def test_a_pass_that_is_broken_off_is_there_as_far_as_it_came(tmp_path):
    path = tmp_path / "trace.json"
    with ringbuf.RingLoader(Stream(), 4, num_workers=1, trace=path) as loader:
        batches = iter(loader)
        next(batches)
        del batches
        assert (0, 0) in batches_in(spans_of(path)["consumer"], "wait")


def test_many_quick_batches_are_all_there(tmp_path):
    """More than a log has room for: it is read in time."""
    path = tmp_path / "trace.json"
    with ringbuf.RingLoader(Rows(6000), 1, num_workers=1, trace=path) as loader:
        run(loader)
    spans = spans_of(path)
    assert len(batches_in(spans["worker 0"], "load")) == len(batches_in(spans["consumer"], "use")) == 6000


# ---- the file -----------------------------------------------------------------------------------------------------


def test_a_killed_trainer_leaves_valid_json(tmp_path):
    with trainer(1, tmp_path, trace=str(tmp_path / "trace.json")) as process:
        path = tmp_path / "trace.json"
        assert eventually(lambda: path.stat().st_size > 100_000)
        process.kill()
        process.wait()
    assert len(json.loads(path.read_text())) > 500


def test_the_file_is_valid_json_at_every_moment_it_is_not_written(tmp_path):
    path = tmp_path / "trace.json"
    file = ringbuf.telemetry.tracing.TraceFile(str(path))
    assert json.loads(path.read_text()) == []
    for number in range(3):
        file.put([f'{{"n":{number}}}', "1"])
        assert json.loads(path.read_text()) == [part for n in range(number + 1) for part in ({"n": n}, 1)]
    file.close()


@pytest.mark.parametrize("Loader", LOADERS.values(), ids=LOADERS)
def test_a_path_that_cannot_be_written_is_refused_when_the_loader_is_made(Loader, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    wrong = {
        tmp_path: (IsADirectoryError, "is a folder"),
        tmp_path / "nowhere" / "x.json": (FileNotFoundError, "there is no folder"),
        plain / "x.json": (FileNotFoundError, "there is no folder"),
        "/dev/null": (OSError, "no plain file"),
        "/proc/x.json": (OSError, "."),
        7.5: (TypeError, "should be the path"),
    }
    for path, (kind, words) in wrong.items():
        with pytest.raises(kind, match=words):
            loader = Loader(Rows(), 8, trace=path)
            run(loader)
    assert plain.read_text() == ""


def test_nothing_is_written_before_the_first_pass(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("old")
    loader = ringbuf.RingLoader(Rows(), 8, trace=path)
    assert path.read_text() == "old"
    run(loader)
    loader.close()
    assert len(json.loads(path.read_text())) > 8


def test_two_loaders_do_not_write_one_file(tmp_path):
    path = tmp_path / "trace.json"
    one = ringbuf.RingLoader(Rows(), 8, trace=path)
    run(one)
    two = pickle.loads(pickle.dumps(one))
    assert two.trace == one.trace == str(path)
    with pytest.raises(BlockingIOError, match=r"another loader, .*, writes its trace"):
        run(two)
    script = f"import ringbuf\nfor _ in ringbuf.RingLoader([1], trace={str(path)!r}): pass"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert "another loader, of this process or of another one, writes its trace" in done.stderr
    one.close()
    run(two)
    two.close()
    assert len(batches_in(spans_of(path)["worker 0"], "load")) == 8


def test_a_forked_child_writes_nothing_into_its_parents_file(tmp_path):
    path = tmp_path / "trace.json"
    loader = ringbuf.RingLoader(Rows(), 8, trace=path)
    batches = iter(loader)
    next(batches)
    before = path.read_text()

    def child():
        with pytest.raises(BlockingIOError, match="another loader"):
            run(loader)
        loader.close()

    assert forked(child) == 0
    assert path.read_text() == before
    run(batches)
    loader.close()
    assert len(batches_in(spans_of(path)["consumer"], "wait")) == 8


def test_a_disk_that_is_full_ends_the_trace_and_not_the_pass(tmp_path, monkeypatch):
    loader = ringbuf.RingLoader(Rows(), 8, trace=tmp_path / "trace.json")

    def full(*_):
        raise OSError(28, "No space left on device")

    batches = iter(loader)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.warns(RuntimeWarning, match="the trace .* ends here: No space left"):
        assert run(batches) == 8
    monkeypatch.undo()
    assert run(loader) == 8
    loader.close()
