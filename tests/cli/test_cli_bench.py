"""`ringbuf bench`: what it shows, what it refuses, what it finds wrong, and how it ends early. No figure is judged."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import DEADLINE_S, command

from ringbuf import memory
from ringbuf.cli import main
from ringbuf.cli.bench import measure, plan, tensors
from ringbuf.cli.bench.copying import WAYS
from ringbuf.cli.bench.epochs import Entrant
from ringbuf.cli.bench.pair import Pair, _message
from ringbuf.cli.bench.picture import Picture
from ringbuf.cli.bench.progress import Progress
from ringbuf.cli.bench.samples import Samples
from ringbuf.cli.bench.signals import Signals
from ringbuf.cli.bench.table import page
from ringbuf.cli.outcome import Failed
from ringbuf.cli.page import ASCII, UNICODE, lines_of, plain
from ringbuf.cli.sigterm import Terminated

PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """(its JSON, its stderr, its picture) of a whole run."""
    folder = tmp_path_factory.mktemp("bench")
    done = command("bench", "--tiny", "--json", "--plot", "here.png", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr, folder / "here.png"


@pytest.fixture
def lacking(tmp_path):
    """lacking("torch") is an environment where that is not installed."""

    def environment(*packages):
        for name in packages:
            (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name='{name}')\n")
        here = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        return {**os.environ, "PYTHONPATH": here}

    return environment


# ---- what comes of it


def test_json_has_each_loader_with_each_number_of_workers(measured):
    result = measured[0]
    cells = [(cell["workload"], cell["workers"]) for cell in result["loaders"]]
    assert cells == [(name, workers) for name in ("large", "small") for workers in plan.worker_counts()]
    assert result["torch"] and not result["why_no_torch"] and not result["scaled_down"]
    assert result["checked"]["batches"] > 0 and result["checked"]["messages"] > 0
    assert result["messages_per_s"]["median"] > 0 and result["wake_s"]["median"] > 0


def test_figures_are_of_rounds_and_ratios_within_rounds(measured):
    result = measured[0]
    for cell in result["loaders"]:
        ours, torch = cell["ringbuf_batches_per_s"], cell["torch_batches_per_s"]
        assert len(ours["rounds"]) == result["rounds"] and ours["min"] <= ours["median"] <= ours["max"]
        assert cell["ratio"]["rounds"] == [a / b for a, b in zip(ours["rounds"], torch["rounds"])]
        if cell["workload"] == "large":
            copied = cell["copying_bytes_per_s"]["rounds"]
            assert cell["copying"] in WAYS
            assert cell["of_copying"]["rounds"] == [rate * cell["batch_bytes"] / c for rate, c in zip(ours["rounds"], copied)]


def test_the_picture_is_one(measured):
    assert measured[2].read_bytes().startswith(PNG)


def test_without_a_terminal_progress_is_a_line_for_each_part(measured):
    lines = measured[1].splitlines()
    assert "ringbuf bench: large batches, 1 worker" in lines and "ringbuf bench: two processes" in lines
    assert "\r" not in measured[1] and len(lines) == 2 + len(measured[0]["loaders"])


@pytest.mark.parametrize("columns", [40, 80])
def test_the_table_fits(columns, measured):
    lines = [plain(line) for line in lines_of(page(measured[0]), columns, UNICODE)]
    assert max(map(len, lines)) <= columns
    titles = [line.split() for line in lines if line.startswith("workers")]
    wanted = {"RingLoader", "torch", "ratio"} | ({"min-max", "copying"} if columns == 80 else set())
    assert wanted <= set(titles[0]) and any(line.startswith("all right: ") for line in lines)


def test_the_table_is_ascii_alone(measured):
    result = {**measured[0], "machine": {**measured[0]["machine"], "processor": "x"}}
    assert not any("?" in plain(line) for line in lines_of(page(result), 80, ASCII))


@pytest.mark.parametrize("load, told", [(0.0, False), (50.0, True)])
def test_a_machine_that_was_busy_is_told(load, told, measured):
    result = {**measured[0], "machine": {**measured[0]["machine"], "load_before": load}}
    text = "\n".join(plain(line) for line in lines_of(page(result), None, ASCII))
    assert (f"the load was {load} before this began" in text) == told


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_pictures_of_any_kind_and_without_torch(kind, measured, tmp_path):
    cells = [{**cell, "torch_batches_per_s": None, "ratio": None} for cell in measured[0]["loaders"]]
    path = Picture(str(tmp_path / f"x.{kind}")).draw({**measured[0], "torch": None, "loaders": cells})
    assert Path(path).read_bytes()[:5] in (PNG[:5], b"<?xml", b"%PDF-")


# ---- what may be missing


def test_without_torch_it_says_so_and_measures_the_rest(lacking, tmp_path):
    done = command("bench", "--tiny", cwd=tmp_path, env=lacking("torch", "matplotlib"))
    assert done.returncode == 0, done.stderr
    assert "torch is not installed, so there is nothing to compare with" in done.stdout
    assert "RingLoader" in done.stdout and "ratio" not in done.stdout and "of copying" in done.stdout


def test_a_torch_that_is_broken_is_told(tmp_path, lacking):
    environment = lacking("torch")
    (tmp_path / "torch.py").write_text("raise OSError('libtorch.so: no such\\nfile')\n")
    done = command("bench", "--tiny", cwd=tmp_path, env=environment)
    assert done.returncode == 0 and "torch cannot be imported, so there is nothing to compare with: libtorch.so" in done.stdout


def test_a_plot_without_matplotlib_is_refused_before_anything_runs(lacking, tmp_path):
    done = command("bench", "--tiny", "--plot", "x.png", cwd=tmp_path, env=lacking("matplotlib"))
    assert (done.returncode, done.stdout) == (2, "") and not (tmp_path / "x.png").exists()
    assert done.stderr.startswith("ringbuf bench: --plot needs matplotlib") and done.stderr.count("\n") == 1
    assert "pip install 'ringloader[bench]'" in done.stderr


@pytest.mark.parametrize(
    "path, words",
    [
        ("none/x.png", "there is no folder"),
        ("x.exe", "should end in .pdf, .png or .svg"),
        ("x", "should end in"),
        ("folder.png", "is a folder"),
        ("", "should end in"),
    ],
)
def test_a_wrong_path_is_refused_before_anything_runs(path, words, tmp_path, monkeypatch, capsys):
    (tmp_path / "folder.png").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--tiny", "--plot", path]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("ringbuf bench: --plot ") and words in err and err.count("\n") == 1


def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(Exception, match="may not be written by this user"):
        Picture(str(tmp_path / "x.png"))


def test_output_that_nobody_reads_is_no_error(lacking, tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = command("bench", "--tiny", cwd=tmp_path, env=lacking("torch"), capture_output=False, stdout=write, stderr=write)
    os.close(write)
    assert done.returncode == 0


# ---- what may be wrong


def rows_of(samples, number):
    return samples.rows[(number * plan.BATCH_ROWS + np.arange(plan.BATCH_ROWS)) % len(samples.rows)].copy()


class Loader:
    """Batches as they should be, but for what `spoil(number, batch)` makes of them: a list of batches in its place."""

    def __init__(self, samples, workers=0, spoil=lambda number, batch: [batch]):
        self._samples, self._spoil = samples, spoil

    def __iter__(self):
        for number in range(self._samples.batches):
            yield from self._spoil(number, rows_of(self._samples, number))


def changed(batch, *place):
    batch.view(np.uint32)[place] ^= 1
    return [batch]


SPOILED = {
    "changed": (lambda n, b: changed(b, 5, 3) if n == 2 else [b], r"row 5 of batch 2 should add up to 0x\w+, got 0x\w+"),
    "lost": (lambda n, b: [] if n == 2 else [b], "row 0 of batch 2 should add up to"),
    "doubled": (lambda n, b: [b, b] if n == 2 else [b], "row 0 of batch 3 should add up to"),
    "rows swapped": (lambda n, b: [b[::-1].copy()] if n == 1 else [b], "row 0 of batch 1"),
    "last lost": (lambda n, b: [] if n == 9 else [b], "10 batches were due, 9 arrived"),
    "another form": (lambda n, b: [b[:-1]] if n == 4 else [b], r"batch 4 should be float32 \(32, 256\), got float32 \(31, 256\)"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_arrives_wrongly_is_found(name):
    spoil, words = SPOILED[name]
    samples = Samples(plan.Shape(1024, 193))
    entrant = Entrant("the loader", Loader(samples, spoil=spoil), samples, run_s=0.01)
    entrant.start(10)
    with pytest.raises(Failed, match=f"the loader: .*{words}"):
        entrant.check()


def test_a_timed_run_looks_at_both_ends_of_a_large_batch():
    samples = Samples(plan.Shape(1 << 16, 193))
    for place in ((0, 0), (-1, -1)):
        spoiled = Loader(samples, spoil=lambda n, b, place=place: changed(b, *place) if n == 7 else [b])
        with pytest.raises(Failed, match="batch 7 should begin and end with"):
            Entrant("the loader", spoiled, samples, run_s=0.01).rate()


def test_good_batches_pass():
    samples = Samples(plan.Shape(1024, 193))
    entrant = Entrant("the loader", Loader(samples), samples, run_s=0.001)
    entrant.start(10)
    entrant.check()
    entrant.warm_up()
    assert entrant.rate() > 0 and entrant.arrived >= 30


def test_a_wrong_message_is_found():
    messages = iter([_message(0), _message(1), _message(1)])
    pair = Pair(SimpleNamespace(get=lambda timeout: next(messages)), _Willing(), run_s=0.01)
    pair._count = 3
    with pytest.raises(Failed, match="message 2 of 3 should be"):
        pair.rate()


def test_another_process_that_dies_is_told():
    ours, theirs = os.pipe()
    os.close(theirs)
    with os.fdopen(ours) as _, pytest.raises(Failed, match="the other process died"):
        Pair(None, SimpleNamespace(send=lambda order: (_ for _ in ()).throw(BrokenPipeError())), run_s=0.01).rate()


class _Willing:
    """The end of a pipe to a process that is always ready."""

    def send(self, order): ...
    def recv(self): ...
    def poll(self, seconds):
        return True


@contextlib.contextmanager
def opened(samples, workers, spoil=lambda n, b: [b]):
    yield Loader(samples, spoil=spoil)


def test_a_broken_installation_is_one_line_and_exit_code_1(monkeypatch, capsys):
    broken = lambda samples, workers: opened(samples, workers, SPOILED["changed"][0])  # noqa: E731
    monkeypatch.setattr(tensors, "LOADERS", {"ringbuf": broken})
    assert main(["bench", "--tiny"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "ringbuf bench: RingLoader: row 5 of batch 2 should add up to" in err.splitlines()[-1]


def test_a_loader_of_ours_that_raises_is_one_line_and_exit_code_1(monkeypatch, capsys):
    def raises(samples, workers):
        raise LookupError("no such\nloader")

    monkeypatch.setattr(tensors, "LOADERS", {"ringbuf": raises})
    assert main(["bench", "--tiny"]) == 1
    assert capsys.readouterr().err.endswith("ringbuf bench: RingLoader raised LookupError: no such loader\n")


def test_what_torch_raises_is_told_and_no_failure_of_ours(monkeypatch, capsys):
    def raises(samples, workers):
        raise RuntimeError("bus error")

    monkeypatch.setattr(tensors, "LOADERS", {"ringbuf": opened, "torch": raises})
    assert main(["bench", "--tiny"]) == 0
    out = capsys.readouterr().out
    assert out.count("torch's DataLoader failed: bus error") == 2 and "of copying" in out and "ratio" not in out


# ---- how much it takes


@pytest.mark.parametrize("cores, counts", [(1, [1]), (2, [1, 2]), (3, [1, 2]), (4, [1, 2, 4]), (64, [1, 2, 4])])
def test_workers_are_as_many_as_there_are_cores_for(cores, counts, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert plan.worker_counts() == counts


GB = 10**9


@pytest.mark.parametrize("free, shm", [(64 * GB, 32 * GB), (64 * GB, 64 << 20), (1 * GB, 1 * GB), (100 << 20, 50 << 20)])
@pytest.mark.parametrize("torch", [True, False])
def test_at_most_a_quarter_of_memory_and_of_dev_shm_is_taken(free, shm, torch, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda *, named: min(free, shm) if named else free)
    shape, why = plan.fit(plan.LARGE, workers=4, torch=torch)
    batch_bytes, of_a_loader = 32 * shape.row_bytes, 4 * 2 + 2  # two ahead of each worker, and two with the consumer
    copied = loaders = of_a_loader * batch_bytes
    assert shape.rows * shape.row_bytes + copied + loaders * (2 if torch else 1) <= free / 4
    assert not torch or of_a_loader * batch_bytes <= shm / 4
    assert bool(why) == (shape.row_bytes < plan.LARGE.row_bytes) and shape.rows % 2
    assert not why or ("instead of 25.2 MB" in why and ("of /dev/shm are free" in why or "of memory are free" in why))


def test_smaller_samples_are_as_much_memory_as_larger_ones(monkeypatch):
    """Or they would be copied from the cache."""
    monkeypatch.setattr(memory, "free_bytes", lambda *, named: 64 << 20 if named else 64 * GB)
    shape, _ = plan.fit(plan.LARGE, workers=4, torch=True)
    assert shape.row_bytes < plan.LARGE.row_bytes and shape.row_bytes * shape.rows >= plan.LARGE.row_bytes * plan.LARGE.rows


def test_too_little_memory_for_anything_is_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(memory, "free_bytes", lambda *, named: 1 << 20)
    assert main(["bench", "--quick"]) == 1
    assert "too little memory: 1.05 MB of memory are free" in capsys.readouterr().err.splitlines()[-1]


def test_what_is_scaled_down_is_told(measured):
    result = {**measured[0], "scaled_down": "the large batches are of 1 MB"}
    assert "the large batches are of 1 MB" in [plain(line) for line in lines_of(page(result), 80, UNICODE)]


# ---- while it runs


class Terminal:
    encoding = "utf-8"

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def fileno(self):
        raise OSError

    def flush(self): ...

    def write(self, text):
        self.text += text


def test_on_a_terminal_one_line_is_written_over_and_then_removed(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with Progress(terminal) as progress:
        progress.runs = 4
        progress.part("small batches, 2 workers")
        progress.run("round 1 of 2, RingLoader")
        progress.run("x" * 200)
    first, *lines, last = terminal.text.split("\r\x1b[K")
    assert first == last == "" and "\n" not in terminal.text and max(map(len, lines)) <= 79
    assert lines[1] == "  0 %  small batches, 2 workers: round 1 of 2, RingLoader" and lines[2].startswith(" 25 %  ")


def test_there_are_as_many_runs_as_were_told(monkeypatch):
    told = []
    progress = SimpleNamespace(part=lambda text: None, run=told.append)
    monkeypatch.setattr(tensors, "LOADERS", {"ringbuf": opened, "torch": opened})
    measure.measure(plan.TINY, progress, Signals())
    assert len(told) == progress.runs


@pytest.mark.parametrize("number, code, line", [(signal.SIGINT, 130, "ringbuf: stopped by Ctrl-C"), (signal.SIGTERM, 143, None)])
def test_a_signal_ends_it_and_its_processes_also_as_they_start(number, code, line, tmp_path):
    """Whether a process is left is looked at after every test."""
    started = [sys.executable, "-m", "ringbuf", "bench"]
    with subprocess.Popen(
        started, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while process.stderr.readline() != "ringbuf bench: large batches, 1 worker\n":
            assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text():
            os.sched_yield()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err.splitlines()) == (code, "", [line] if line else [])


@pytest.mark.parametrize("number, error", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_signal_waits_until_processes_are_started_and_a_second_does_not(number, error):
    started = []
    before = signal.getsignal(number)
    with Signals() as signals:
        with pytest.raises(error), signals.held():
            signal.raise_signal(number)
            started.append("all")
        assert started == ["all"]
        with pytest.raises(error), signals.held():
            signal.raise_signal(number)
            signal.raise_signal(number)
            started.append("too late")
        with pytest.raises(error):
            signal.raise_signal(number)
    assert started == ["all"] and signal.getsignal(number) == before
