"""What is built and run here is so outside of the source tree, against the package as it is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 100


@pytest.fixture
def run(tmp_path):
    """run(*command, folder=tmp_path) gives standard output of a command in that folder; what went wrong is in the failure."""
    scripts = Path(sys.executable).parent  # cmake, ninja and python3 may be this environment's own
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}

    def run(*command, folder=tmp_path, **variables):
        done = subprocess.run(
            [*map(str, command)],
            cwd=folder,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run
