"""What people are told to run with torch, run: the Fashion-MNIST example and the start-up benchmark, small."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
FOLDER = Path("/usr/share/datasets/fashion-mnist")
DEADLINE_S = 55

# Of torch and of us, where there is one core only.
pytestmark = pytest.mark.filterwarnings("ignore:This .*Loader will create|This RingLoader has num_workers")


def run(*command):
    """`python COMMAND...` in the checkout, ended."""
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the pictures: apt-get install dataset-fashion-mnist")
def test_the_fashion_example_trains_the_same_network_with_either_loader():
    done = run("examples/fashion.py", "--quick", "--epochs=2", "--workers=2", "--seed=5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 64 losses, 2 accuracies and the final weights: identical." in done.stdout
    rows = re.findall(r"^ +(\d) +([\d.]+) +([\d.]+)%.*? {3,}([\d.]+) +([\d.]+)% ", done.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "2"]
    for _, loss, accuracy, other_loss, other_accuracy in rows:
        assert (loss, accuracy) == (other_loss, other_accuracy)
    assert float(rows[1][1]) < float(rows[0][1])
    assert max(len(line) for line in re.split("[\r\n]", done.stdout)) <= 80


def test_the_fashion_example_says_how_to_get_the_pictures_that_it_does_not_find(tmp_path):
    done = run("examples/fashion.py", f"--data={tmp_path}")
    assert done.returncode == 1
    assert f"{tmp_path}/train-images-idx3-ubyte.gz is missing" in done.stderr
    assert "apt-get install dataset-fashion-mnist" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def fashion():
    spec = importlib.util.spec_from_file_location("fashion", ROOT / "examples/fashion.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("losses", "correct", "weight", "said"),
    [
        ([0.5, 0.25], 7, 1.0, None),
        ([0.5, 0.2500000001], 7, 1.0, "the loss at batch 2 of epoch 1 is 0.25 with DataLoader, 0.2500000001 with RingLoader"),
        ([0.5, 0.25], 8, 1.0, "after epoch 1 7 test pictures are right with DataLoader, 8 with RingLoader"),
        ([0.5, 0.25], 7, 1.0000001, r"the weights \['weight'\] differ"),
    ],
)
def test_the_fashion_example_finds_every_difference(fashion, losses, correct, weight, said):
    def net(value):
        layer = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(layer.weight, value)
        torch.nn.init.constant_(layer.bias, 0.0)
        return layer

    runs = {
        "DataLoader": [fashion.Epoch([0.5, 0.25], 7, 1.0, 0.5)],
        "RingLoader": [fashion.Epoch(losses, correct, 2.0, 0.1)],
    }
    found = fashion.difference(runs, [net(1.0), net(weight)])
    assert found is None if said is None else re.fullmatch(said, found)


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """The start-up benchmark's text and JSON at its smallest. What needs no process of its own runs in this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        from benchmarks.py import startup, startup_cases, turns

        def here(command):
            case, loader, size = command[3:]
            if case == "kept":
                return turns.in_fresh_process(command)
            run = startup_cases.CASES[case](startup_cases.LOADERS[loader], json.loads(size))
            return run | {"versions": {"torch": torch.__version__}}

        said = []
        patch.setattr(startup, "in_fresh_process", here)
        patch.setattr("builtins.print", lambda *words, **_: said.append(" ".join(map(str, words))))
        path = tmp_path_factory.mktemp("startup") / "out.json"
        assert startup.main(["--quick", f"--json={path}"]) == 0, said
        return "\n".join(said), json.loads(path.read_text())["cases"]


def test_the_start_up_benchmark_has_a_time_for_each_start_of_both_loaders(started):
    text, cases = started
    for name in "small batches, 2 workers", "large batches, 2 workers":
        for loader in "torch", "ring":
            figures = cases[name]["loaders"][loader]
            for figure in "first", "again", "restart", "gap", "gap_new":
                assert 0 < figures[figure]["min"] <= figures[figure]["median"] <= figures[figure]["max"]
    assert all(title in text for title in ("first batch", "restart", "gap (new)", "ratio"))


def test_the_start_up_benchmark_finds_nothing_of_a_ring_loader_that_was_left_early(started):
    stock = started[1]["left early"]["loaders"]["ring"]["runs"][0]["stock"]
    assert stock["after_all"] == stock["after_one"]
    for name in "processes", "descriptors", "shared_bytes":  # in /dev/shm other tests may have rings at the same time
        assert stock["afterwards"][name] == stock["before"][name], name
    assert stock["afterwards"]["threads"] <= stock["before"]["threads"]


def test_the_start_up_benchmark_keeps_more_batches_than_descriptors_with_a_ring_loader_only(started):
    loaders = started[1]["batches kept"]["loaders"]
    assert loaders["ring"]["kept"]["median"] == 100 and loaders["ring"]["error"] is None
    assert loaders["torch"]["kept"]["median"] < 64
    assert "Too many open files" in loaders["torch"]["error"]
