"""The harness of the soak sees a hang where there is one: other queues hang when a process is killed, ours does not."""

import subprocess
import sys
from pathlib import Path

import pytest
from soak import control

ROOT = Path(__file__).parent.parent
MOST_S = 240  # on a busy machine; some seconds otherwise

pytestmark = pytest.mark.timeout(MOST_S + 60)


def run(over, *, kills, seed=1):
    """The figures of a run of the harness, and what it said."""
    command = [sys.executable, "-m", "tests.soak.control", "--over", over, f"--kills={kills}", f"--seed={seed}"]
    ended = subprocess.run(
        [*command, f"--seconds={MOST_S}"], cwd=ROOT, capture_output=True, text=True, timeout=MOST_S + 30
    )
    if ended.returncode == control.SKIPPED:
        pytest.skip(ended.stdout.strip())
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said, _, numbers = ended.stdout.strip().rpartition("\nfigures: ")
    return {name: int(value) for name, value in (pair.split("=") for pair in numbers.split())}, said


@pytest.mark.parametrize("over", ["multiprocessing", "faster-fifo"])
def test_other_queues_work_until_a_process_is_killed_and_then_hang(over, figures):
    calm, said = run(over, kills=0)
    assert not calm["hung"], said
    found, said = run(over, kills=300)
    assert found["hung"], said
    name = over.replace("-", "_")
    figures(**{f"kills_until_{name}_hung": found["kills"], f"messages_of_{name}": found["messages"]})


def test_the_ring_does_not_hang_however_many_are_killed(figures, thorough):
    kills = 900 if thorough else 300
    found, said = run("ringbuf", kills=kills)
    assert not found["hung"], said
    assert found["kills"] == kills
    figures(kills_without_a_hang=found["kills"], messages_of_the_ring=found["messages"])
