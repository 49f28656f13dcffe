"""RingLoader under the frameworks that people train with, each in its real package.

The cases of a framework run in one process of their own: importing it is slow, and what it does to a process (threads,
signal handlers, environment) is not for the tests that follow.
"""

import ast
import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = {
    "pytorch_lightning": HERE / "lightning_cases.py",
    "accelerate": HERE / "accelerate_cases.py",
    "datasets": HERE / "datasets_cases.py",
    "keras": HERE / "keras_cases.py",
}
RUN_S = 280


def cases_of(file):
    names = [node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if name.startswith("test_")]


@functools.cache
def outcomes(file):
    """({case: [what went wrong]} of one run of a file, what it printed)."""
    with tempfile.TemporaryDirectory() as home:
        report = Path(home, "report.xml")
        settings = {"HF_HOME": home, "HF_HUB_OFFLINE": "1", "KERAS_HOME": home, "KERAS_BACKEND": "torch"}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", f"--junitxml={report}", file]
        run = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=RUN_S)
        found = {}
        for case in ET.parse(report).iter("testcase") if report.exists() else []:
            wrong = found.setdefault(case.get("name").partition("[")[0], [])
            wrong += [f"{case.get('name')}: {part.get('message')}\n{part.text}" for part in case]
        return found, run.stdout + run.stderr


@pytest.mark.timeout(RUN_S + 20)  # the first case waits for all of its file
@pytest.mark.parametrize(
    ("package", "case"),
    [(package, case) for package, file in FILES.items() for case in cases_of(file)],
    ids=lambda value: value.removeprefix("test_"),
)
def test_under(package, case):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; pip install 'ringloader[frameworks]' has it")
    found, output = outcomes(FILES[package])
    assert case in found, f"{case} did not run:\n{output}"
    assert not found[case], "\n".join(found[case])
