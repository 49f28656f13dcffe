"""`ringbuf trace`: of loaders that run, of none, of several, of one that ends meanwhile."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import DEADLINE_S, command

sys.path.insert(0, str(Path(__file__).parents[1] / "telemetry"))
from trainers import names, trainer


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A trainer that goes on, as (name, process)."""
    name = next(names)
    with trainer(1, tmp_path_factory.mktemp("trainer"), name=name) as process:
        yield name, process


@pytest.mark.parametrize("by", ["name", "pid"])
def test_a_running_loader_is_traced_by_name_and_by_pid(by, running, tmp_path):
    name, process = running
    which = name if by == "name" else str(process.pid)
    done = command("trace", which, "--seconds", "0.3", cwd=tmp_path)
    path = tmp_path / f"{name}.trace.json"
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{path}: ") and f"of {name}; open it at https://ui.perfetto.dev" in done.stdout
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


def test_a_loader_that_does_not_run_is_one_line(running, tmp_path):
    done = command("trace", "nobody", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == "" and not list(tmp_path.iterdir())
    assert done.stderr.startswith("ringbuf trace: there is no loader called 'nobody'") and done.stderr.count("\n") == 1
    assert f"{running[0]} (pid {running[1].pid})" in done.stderr
    assert "there is no trainer with pid 1 " in command("trace", "1", cwd=tmp_path).stderr


def test_a_wrong_file_is_one_line(running, tmp_path):
    done = command("trace", running[0], "-o", "nowhere/x.json", cwd=tmp_path)
    assert done.returncode == 1 and "there is no folder" in done.stderr and done.stderr.count("\n") == 1


def test_wrong_seconds_are_wrong_usage(tmp_path):
    done = command("trace", "x", "--seconds", "0", cwd=tmp_path)
    assert done.returncode == 2 and "'0' is no number of seconds above 0" in done.stderr


def test_a_name_that_two_have_needs_the_pid(running, tmp_path):
    name, process = running
    with trainer(0, tmp_path, name=name) as other:
        done = command("trace", name, cwd=tmp_path)
    assert done.returncode == 2 and f"pids {process.pid}, {other.pid}; give the pid of one" in done.stderr


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
