"""A minute of rings and loaders under random kills and stops (tests/soak), and what its judges would have noticed."""

import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MINUTE = 60


def soak(*arguments):
    return [sys.executable, "-m", "tests.soak", *map(str, arguments)]


@pytest.mark.timeout(300)
def test_rings_and_loaders_survive_a_minute_of_random_kills(figures, thorough):
    """Each run the same plan of faults; a thorough one twice as long, from a seed of its own that its output shows."""
    minutes, seed = (2, secrets.randbelow(1 << 31)) if thorough else (1, 1)
    ended = subprocess.run(
        soak("--minutes", minutes, "--seed", seed),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=minutes * MINUTE + 120,
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    numbers = ended.stdout.rpartition("figures: ")[2].split()
    found = {name: int(value) for name, value in (pair.split("=") for pair in numbers)}
    # Not how many, which the machine decides, but that each kind came about.
    for name in ("rounds", "messages", "batches", "stops", "losses"):
        assert found[name] > 0, f"{name}: {ended.stdout}"
    for role in ("producer", "consumer", "reader", "worker", "main"):
        assert found[f"kills_{role}"] > 0, f"{role}: {ended.stdout}"
    figures(seed=seed, **found)


def test_ctrl_c_ends_it_with_the_table_and_leaves_nothing():
    with subprocess.Popen(
        soak("--minutes", 10, "--seed", 1), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            assert "seed 1" in run.stderr.readline()
            time.sleep(4)
            run.send_signal(signal.SIGINT)
            out, err = run.communicate(timeout=50)
        finally:
            run.kill()
    assert run.returncode == 0, err + out
    assert "interrupted" in out
    assert "figures: " in out
