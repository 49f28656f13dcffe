"""What people are told to run, run: the example and the benchmark, small."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
DEADLINE_S = 55


def run(*command):
    """Standard output of `python COMMAND...` in the checkout; what went wrong is in the failure."""
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracies(output):
    return {
        int(workers): float(percent)
        for workers, percent in re.findall(r"^(\d+) workers: .* test accuracy ([\d.]+)%", output, re.MULTILINE)
    }


def test_the_example_learns_with_and_without_workers_and_says_how_they_compare():
    output = run("examples/digits.py", "--epochs=5", "--seed=3")
    assert accuracies(output).keys() == {0, 2}
    assert min(accuracies(output).values()) > 90
    assert re.search(r"With 2 workers the same training runs \d+\.\d\d times as fast", output)


def test_the_examples_batches_reach_the_trainer_without_a_copy():
    output = run("examples/digits.py", "--epochs=2", "--workers=1", "--no-compare")
    assert accuracies(output).keys() == {1}
    account = output.partition("The loader's account")[2]
    assert re.search(r"^\s*batches\b\D*42$", account, re.MULTILINE), account
    assert re.search(r"^\s*copies\b\D*0$", account, re.MULTILINE), account


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The benchmark's text and JSON at its smallest; the figures mean nothing."""
    path = tmp_path_factory.mktemp("benchmark") / "out.json"
    text = run("-m", "benchmarks.py.loader", "--quick", "--batches=8", "--batch-size=4", "--side=16", f"--json={path}")
    return text, json.loads(path.read_text())


def test_the_benchmark_gives_every_peers_rates_with_their_range(measured):
    _, result = measured
    assert result["peers"].keys() == {"ring", "torch", "ideal"}
    for figures in result["peers"].values():
        for rate in figures["total_gb_per_s"], figures["steady_gb_per_s"]:
            assert 0 < rate["min"] <= rate["median"] <= rate["max"]
        assert len(figures["runs"]) == 1
        assert 0 < figures["runs"][0]["first_s"] < figures["runs"][0]["total_s"]
        assert figures["workers_cpu_s"]["median"] > 0


def test_the_benchmarks_ratios_are_those_of_the_medians(measured):
    _, result = measured
    peers = result["peers"]
    for kind in "total", "steady":
        for other in "torch", "ideal":
            want = peers["ring"][f"{kind}_gb_per_s"]["median"] / peers[other][f"{kind}_gb_per_s"]["median"]
            assert result["ratios"][f"ring/{other}"][kind] == pytest.approx(want)


def test_the_benchmark_names_its_workload_machine_and_versions(measured):
    text, result = measured
    assert result["workload"]["batch_bytes"] == 4 * (16 * 16 * 3 + 8)
    assert result["machine"]["cores"] >= 1
    for figures in result["peers"].values():
        for name, version in figures["versions"].items():
            assert f"{name} {version}" in text


def test_the_benchmark_shows_progress_and_a_table(measured):
    text, result = measured
    assert text.index("round 1 of 1: ring") < text.index("round 1 of 1: torch") < text.index("Whole iteration")
    for figures in result["peers"].values():
        assert text.count(figures["label"]) == 3  # two rates, and what else was noted


@pytest.fixture
def inspected(monkeypatch):
    """The consumer's check, and the batches that it waits for."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.py.workload import Images, Inspector, Workload

    workload = Workload(batches=4, batch_size=2, side=4)
    dataset = Images(workload)
    samples = [[dataset[index] for index in (first, first + 1)] for first in range(0, len(dataset), 2)]
    batches = [(np.stack([image for image, _ in pair]), np.array([label for _, label in pair])) for pair in samples]
    return Inspector(dataset, workload), batches


def test_the_benchmark_accepts_the_right_batches(inspected):
    inspector, batches = inspected
    for images, labels in batches:
        inspector.look_at(images, labels)
    inspector.finish()


def test_the_benchmark_refuses_batches_out_of_order(inspected):
    inspector, batches = inspected
    with pytest.raises(ValueError, match="batch 0 should hold labels 0 to 1"):
        inspector.look_at(*batches[1])


def test_the_benchmark_refuses_an_image_that_was_overwritten(inspected):
    inspector, [(images, labels), *_] = inspected
    images[-1, -1, -1] += 1
    with pytest.raises(ValueError, match="image 1 differs"):
        inspector.look_at(images, labels)


def test_the_benchmark_refuses_an_epoch_that_ends_early(inspected):
    inspector, batches = inspected
    inspector.look_at(*batches[0])
    with pytest.raises(ValueError, match="4 batches were due, 1 arrived"):
        inspector.finish()


def test_the_benchmark_leaves_out_a_peer_that_fails_and_says_why(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.py import loader

    monkeypatch.setattr(loader, "NAMES", ["ideal", "torch"])
    monkeypatch.setattr(loader, "command", lambda peer, _: [sys.executable, "-c", f"print('[]'); import no_{peer}"])
    assert loader.main(["--quick"]) == 1
    assert "torch failed: exit code 1: ModuleNotFoundError: No module named 'no_torch'" in capsys.readouterr().out
