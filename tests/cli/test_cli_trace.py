"""`ringbuf trace`: of loaders that run, of none, of several, of one that ends meanwhile."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import DEADLINE_S, command

from ringbuf.cli import main

sys.path.insert(0, str(Path(__file__).parents[1] / "telemetry"))
from trainers import names, trainer


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A trainer that goes on, as (name, process)."""
    name = next(names)
    with trainer(1, tmp_path_factory.mktemp("trainer"), name=name) as process:
        yield name, process


@pytest.fixture
def told(tmp_path, monkeypatch, capsys):
    """told(*arguments) runs `ringbuf trace`, here: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: (main(["trace", *arguments]), *capsys.readouterr())


@pytest.mark.parametrize("by", ["name", "pid"])
def test_a_running_loader_is_traced_by_name_and_by_pid(by, running, tmp_path, told):
    name, process = running
    code, out, err = told(name if by == "name" else str(process.pid), "--seconds", "0.3")
    path = tmp_path / f"{name}.trace.json"
    assert (code, err) == (0, "")
    assert out.startswith(f"{path}: ") and f"of {name}; open it at https://ui.perfetto.dev" in out
    events = json.loads(path.read_text())
    assert {"load", "collate", "wait", "use", "wait for a task"} <= {event["name"] for event in events}
    assert {event["pid"] for event in events} == {process.pid}


def test_json_tells_about_the_file(running, tmp_path):
    name, process = running
    done = command("trace", name, "--seconds", "0.2", "--json", "-o", "here.json", cwd=tmp_path)
    about = json.loads(done.stdout)
    assert about.pop("events") == len(json.loads((tmp_path / "here.json").read_text()))
    assert about.pop("seconds") >= 0.2 and about.pop("missed") >= 0
    assert about == {"name": name, "pid": process.pid, "file": str(tmp_path / "here.json"), "alive": True}


def test_a_loader_that_does_not_run_is_one_line(running, tmp_path, told):
    code, out, err = told("nobody")
    assert (code, out) == (1, "") and not list(tmp_path.iterdir())
    assert err.startswith("ringbuf trace: there is no loader called 'nobody'") and err.count("\n") == 1
    assert f"{running[0]} (pid {running[1].pid})" in err
    assert "there is no trainer with pid 1 " in told("1")[2]


def test_a_wrong_file_is_one_line(running, told):
    code, out, err = told(running[0], "-o", "nowhere/x.json")
    assert (code, out) == (1, "") and "there is no folder" in err and err.count("\n") == 1


def test_wrong_seconds_are_wrong_usage(told):
    code, _, err = told("x", "--seconds", "0")
    assert code == 2 and "'0' is no number of seconds above 0" in err


def test_a_name_that_two_have_needs_the_pid(running, tmp_path, told):
    name, process = running
    with trainer(0, tmp_path, name=name) as other:
        code, _, err = told(name)
    assert code == 2 and f"pids {process.pid}, {other.pid}; give the pid of one" in err


def traced(name, folder):
    """`ringbuf trace` at work, with something in the file."""
    line = [sys.executable, "-m", "ringbuf", "trace", name, "--seconds", "50"]
    process = subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = folder / f"{name}.trace.json"
    while not (path.exists() and path.stat().st_size > 1000):
        assert process.poll() is None, process.communicate()
        os.sched_yield()
    return process, path


def test_ctrl_c_ends_it_early_with_all_that_was_seen(running, tmp_path):
    process, path = traced(running[0], tmp_path)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0 and str(path) in out and json.loads(path.read_text())


def test_the_trainers_end_ends_it(tmp_path):
    name = next(names)
    with trainer(1, tmp_path, name=name) as ending:
        process, path = traced(name, tmp_path)
        ending.kill()
        ending.wait()
        _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0 and "has ended" in err and json.loads(path.read_text())


def test_output_that_nobody_reads_is_no_error(running, tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = command(
        "trace", running[0], "--seconds", "0.1", cwd=tmp_path, capture_output=False, stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
