"""Programs that use a loader end when they are over, with the right exit code, and take their workers along.

Of torch's own suite: test_proper_exit, its whole matrix, and with the two columns that it leaves out: worker killed, and main
process killed with workers. And that many indices under way do not hold up the exit.
"""

import json
import os
import subprocess
import sys

import pytest

from conformance.exits import cases
from conformance.expect import is_ours

EXPECTED = {  # how a program ends: (its exit code, the last line that it prints)
    "leaves_the_loop": (0, ""),
    "finishes": (0, ""),
    "main_error": (1, "RuntimeError: main error"),
    "sample_error": (1, "ValueError: sample error"),
    "worker_killed": (1, ""),  # what torch raises depends on what the worker was about
    "main_killed": (-9, ""),
    "many_indices": (1, "RuntimeError: main error"),
}


@pytest.fixture(scope="module")
def outcomes(Loader, tmp_path_factory):
    directory = tmp_path_factory.mktemp("exits")
    which = "ringbuf" if is_ours(Loader) else "torch"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "conformance.exits", which, directory],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads((directory / "outcome.json").read_text())


@pytest.mark.parametrize("case", list(cases()))
def test_a_program_ends_and_takes_its_workers_along(outcomes, case):
    code, text = EXPECTED[case.split("-")[-1]]
    outcome = outcomes[case]
    assert outcome["code"] == code, outcome["output"]
    assert outcome["survivors"] == []
    assert text in outcome["output"]
    if code != 1:
        assert outcome["output"] == ""
