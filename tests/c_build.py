"""The C library and its programs, built for tests: CMakePresets.json names the builds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# cmake and ninja may be this environment's own.
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def run(*command):
    """(exit status, output) of a command in the repository's root."""
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def build(preset, *targets):
    """Build a preset, or some of it, from the sources as they are now; returns the folder that it is in."""
    chosen = ("--target", *targets) if targets else ()
    for command in (("cmake", "--preset", preset), ("cmake", "--build", "--preset", preset, *chosen)):
        rc, output = run(*command)
        assert rc == 0, f"{' '.join(command)} failed:\n{output}"
    return ROOT / f"build/c-{preset}"
