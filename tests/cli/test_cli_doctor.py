"""`ringbuf doctor`: of loaders in modules, of loaders that run, of machines; and what it says where there is nothing to say."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import DEADLINE_S, command
from processes import eventually

from ringbuf.cli import doctor, main
from ringbuf.cli.diagnosis import report
from ringbuf.cli.diagnosis.machine import Check
from ringbuf.cli.diagnosis.verdict import diagnose
from ringbuf.cli.page import ASCII, UNICODE, lines_of, plain

sys.path.insert(0, str(Path(__file__).parents[1] / "telemetry"))
from test_cli_doctor_verdict import measured
from trainers import names, trainer

JOBS = """
import os, signal, time
import numpy as np
import ringbuf

class Waiting(ringbuf.Dataset):
    def __init__(self, seconds=0.001, length=512):
        self.seconds, self.length = seconds, length
    def __len__(self): return self.length
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return np.full(8, index, np.float32)

class Failing(Waiting):
    def __getitem__(self, index):
        if index == 40: raise LookupError("no such file:\\nimage 40")
        return super().__getitem__(index)

class Dying(Waiting):
    def __getitem__(self, index):
        if index == 40: os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)

def slowly(samples):
    time.sleep(0.02)
    return np.stack(samples)

def waiting(): return ringbuf.RingLoader(Waiting(), 16, num_workers=1)
def alone(): return ringbuf.RingLoader(Waiting(), 4)
def quick(): return ringbuf.RingLoader(Waiting(0), 4, num_workers=1, persistent_workers=True)
def collating(): return ringbuf.RingLoader(Waiting(0), 4, num_workers=1, collate_fn=slowly, persistent_workers=True)
def failing(): return ringbuf.RingLoader(Failing(), 4, num_workers=1)
def skipping(): return ringbuf.RingLoader(Failing(0, 64), 4, num_workers=1, on_error="skip")
def dying(): return ringbuf.RingLoader(Dying(), 4, num_workers=1)
def empty(): return ringbuf.RingLoader(Waiting(0, 0), 4)
def spawned(): return ringbuf.RingLoader(Waiting(0), 4, num_workers=1, multiprocessing_context="spawn", persistent_workers=True)
def crowd(): return ringbuf.RingLoader(Waiting(0), 4, num_workers=os.cpu_count() + 1)

named = ringbuf.RingLoader(Waiting(0.0005), 4, name="mine", trace="here.json")
numbers = [1, 2, 3]
"""

TORCH_JOBS = """
import torch
from torch.utils.data import DataLoader, TensorDataset

rows = TensorDataset(torch.arange(64.0))
loader = DataLoader(rows, batch_size=8, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doctor")
    (folder / "jobs.py").write_text(JOBS)
    (folder / "torch_jobs.py").write_text(TORCH_JOBS)
    return folder


@pytest.fixture
def told(folder, monkeypatch, capsys):
    """told(*arguments) runs `ringbuf doctor`, here: (exit code, stdout, stderr)."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield lambda *arguments: (main(["doctor", *arguments]), *capsys.readouterr())
    for name in ("jobs", "torch_jobs"):
        sys.modules.pop(name, None)


@pytest.fixture
def found(told):
    """found(*arguments) is what `ringbuf doctor --json` prints, of 0.3 s."""

    def run(*arguments):
        code, out, err = told(*arguments, "--json", "--seconds", "0.3")
        answer = json.loads(out)
        assert code == (0 if answer["healthy"] else 1) and err.count("\n") == 1, err
        return answer

    return run


# ---- a loader that is run here


def test_samples_that_wait_are_told_with_how_many_workers_would_do(found):
    answer = found("jobs:waiting", "--step", "4")
    finding = answer["finding"]
    assert (finding["kind"], finding["cause"], finding["advice"]["knob"]) == ("input", "workers", "workers")
    assert finding["advice"]["value"] >= 4  # a batch takes 16 ms and more, the step 4
    assert "most of it waiting" in finding["text"] and not answer["healthy"]
    measures = answer["measures"]
    assert measures["batches"] > 0 and 0.4 < measures["wait_share"] < 1
    assert measures["use_s"] >= 0.004 * (measures["batches"] - 1)
    assert measures["makers"][0]["load_s"] > 10 * measures["makers"][0]["collate_s"]
    assert answer["loader"] == {"object": "jobs:waiting", "step_ms": 4.0, "like": None}


def test_without_a_step_it_says_how_much_there_can_be(found):
    answer = found("jobs:waiting")
    assert answer["finding"]["kind"] == "capacity" and answer["finding"]["level"] == "ok"
    measures = answer["measures"]
    each_ms = 1e3 * (measures["wait_s"] + measures["use_s"]) / measures["batches"]
    assert each_ms >= 16 and "batches/s: enough for a training step of" in answer["finding"]["text"]


def test_a_loader_that_is_quick_enough_is_left_alone(found):
    finding = found("jobs:quick", "--step", "15")["finding"]
    assert (finding["kind"], finding["level"]) == ("consumer", "ok")


def test_a_collate_fn_that_takes_the_time_is_named(found):
    finding = found("jobs:collating")["finding"]
    assert finding["cause"] == "collate" and "leave out collate_fn=" in finding["advice"]["text"]


def test_without_workers_they_are_advised(found):
    finding = found("jobs:alone", "--step", "2")["finding"]
    assert finding["cause"] == "alone" and "there are no workers" in finding["text"]


def test_samples_that_were_passed_over_are_told(found, recwarn):
    (finding,) = [finding for finding in found("jobs:skipping")["also"] if finding["kind"] == "errors"]
    assert "failed and were passed over" in finding["text"]


def test_it_is_a_copy_that_runs(found, folder):
    found("jobs:named")
    named = sys.modules["jobs"].named
    assert (named.name, named.stats().batches) == ("mine", 0)
    assert not (folder / "here.json").exists()


def test_workers_beyond_the_processors_are_no_warning_of_the_loaders_own(found):
    assert found("jobs:crowd")["measures"]["workers"] == os.cpu_count() + 1  # warnings are errors here


def test_a_loader_of_torch_is_run_as_a_ring_loader(found, told):
    answer = found("torch_jobs:loader", "--step", "1")
    assert answer["loader"]["like"] == (
        "RingLoader(dataset, batch_size=8, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True)"
    )
    assert answer["measures"]["workers"] == 1 and answer["measures"]["persistent"]
    assert "as ringbuf.torch.RingLoader(dataset, batch_size=8" in told("torch_jobs:loader", "--seconds", "0.1")[1]


def test_spawned_workers_are_said_to_import_the_program(folder):
    done = command("doctor", "jobs:spawned", "--seconds", "0.2", "--json", cwd=folder)
    (start,) = [check for check in json.loads(done.stdout)["machine"] if check["name"] == "start method"]
    assert start["text"].startswith("spawn; a worker imports the program anew")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("jobs:failing", "the loader raised LookupError: no such file: image 40"),
        ("jobs:dying", "the loader raised WorkerDied"),
        ("jobs:empty", "the loader gives no batch"),
    ],
)
def test_a_loader_that_fails_is_one_more_line(target, words, told):
    code, out, err = told(target, "--seconds", "5")
    assert (code, out) == (1, "") and err.count("\n") == 2 and words in err.splitlines()[1]


# ---- wrong usage


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["nowhere:loader"], "there is no module 'nowhere'", 2),
        (["jobs:nothing"], "module 'jobs' has no 'nothing'", 2),
        (["jobs:numbers"], "jobs:numbers is neither a RingLoader nor a DataLoader of torch, but a list", 2),
        (["jobs:Waiting"], "should return an iterable of batches", 2),
        (["doctor-nobody"], "(a loader in a module is MODULE:OBJECT)", 1),
        (["4194305"], "there is no trainer with pid 4194305", 1),
        (["train", "--step", "3"], "--step is for a loader in a module", 2),
        (["--step", "3"], "--step is for a loader in a module", 2),
        (["jobs:quick", "--step", "-1"], "no number of milliseconds", 2),
        (["jobs:quick", "--seconds", "0"], "not a number of seconds", 2),
    ],
)
def test_what_cannot_be_diagnosed_is_one_line(arguments, words, code, told):
    assert (found := told(*arguments))[:2] == (code, "")
    assert found[2].count("\n") == 1 and words in found[2]


# ---- a loader that runs


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A trainer that goes on, as (name, process)."""
    name = next(names)
    with trainer(1, tmp_path_factory.mktemp("trainer"), name=name, persistent_workers=True) as process:
        yield name, process


@pytest.mark.parametrize("by", ["name", "pid"])
def test_a_loader_that_runs_is_looked_at_by_name_and_by_pid(by, running, found):
    name, process = running
    answer = found(name if by == "name" else str(process.pid))
    assert answer["loader"]["name"] == name and answer["loader"]["pid"] == process.pid
    measures = answer["measures"]
    assert measures["batches"] > 0 and measures["workers"] == 1 and 0 < measures["wait_share"] < 1
    assert measures["seconds"] >= 0.3 and not measures["alone"] and measures["first_batch_s"] is None
    assert measures["trainer_processor_s"] >= 0 and measures["processor_s"] >= 0


def test_a_loader_that_hangs_is_looked_at_like_any_other(tmp_path, told):
    name = next(names)
    with trainer(1, tmp_path, name=name) as process:
        os.kill(process.pid, signal.SIGSTOP)
        code, out, _ = told(name, "--seconds", "0.2", "--json")
        assert json.loads(out)["measures"]["batches"] <= 1 and code in (0, 1)


def test_a_trainer_that_ends_meanwhile_is_told(tmp_path):
    name = next(names)
    with trainer(1, tmp_path, name=name) as process:
        line = [sys.executable, "-m", "ringbuf", "doctor", name, "--seconds", "40"]
        with subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stderr.readline() == f"ringbuf doctor: looking at {name} for 40 s\n"
            process.kill()
            process.wait()
            out, err = watching.communicate(timeout=DEADLINE_S)
    assert (watching.returncode, out) == (1, "")
    assert err == f"ringbuf doctor: the trainer with pid {process.pid} ended while it was looked at\n"


# ---- the machine alone, and the page


def test_without_an_argument_it_is_the_machine(told):
    code, out, err = told()
    lines = out.splitlines()
    assert err == "" and [line for line in lines if "/dev/shm:" in line] and [line for line in lines if "processors:" in line]
    assert code == (1 if any(line.startswith("warning") for line in lines) else 0)


def test_a_warning_of_the_machine_is_something_to_do(told, monkeypatch):
    checked = [Check("processors", False, "0.5 to use", "ask for more")]
    monkeypatch.setattr(doctor, "checks", lambda known, use: checked)
    assert told() == (1, "warning  processors: 0.5 to use\n  do     ask for more\n", "")
    checked[:] = [Check("processors", True, "2 to use")]
    assert told()[0] == 0


@pytest.mark.parametrize("columns", [40, 80, None])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["utf-8", "ascii"])
def test_nothing_of_a_page_is_lost_or_too_wide(columns, glyphs):
    measures = measured(wait=0.5, workers=3, processor_s=10.0, errors=2)
    diagnosis = diagnose(measures)
    machine = [Check("memory", False, "2 GB of 64 GB available", "raise the limit"), Check("processors", True, "8 to use")]
    lines = [plain(line) for line in lines_of(report.page("loader a:b", measures, diagnosis, machine), columns, glyphs)]
    assert columns is None or max(map(len, lines)) <= columns
    words = " ".join(lines).split()
    for text in (diagnosis.main.text, diagnosis.main.advice.text, diagnosis.also[0].text, diagnosis.remark, machine[0].advice):
        missing = set(text.split()) - set(words)
        assert not missing and "?" not in text
    assert "".join(lines).isascii()


def test_a_closed_pipe_and_ctrl_c_end_it_quietly(folder):
    line = f"{sys.executable} -m ringbuf doctor jobs:quick --seconds 0.2 | head -1"
    done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout.startswith("loader jobs:quick: ") and done.stdout.count("\n") == 1 and done.stderr.count("\n") == 1
    line = [sys.executable, "-m", "ringbuf", "doctor", "jobs:waiting", "--seconds", "40"]
    with subprocess.Popen(line, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert "running jobs:waiting for 40 s" in process.stderr.readline()
        assert eventually(lambda: children_of(process.pid))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err) == (130, "", "ringbuf: stopped by Ctrl-C\n")


def children_of(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
