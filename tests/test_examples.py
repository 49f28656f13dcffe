"""What people are told to run, run: the example, small."""

import re
import subprocess
import sys
from pathlib import Path

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
