"""Whichever system call fails, a loader starts or says why not, leaves nothing behind, and starts when tried again.

What is failed, and how, is in tests/c/fault.h; tests/fault/harness.py does it and can repeat a single case. The calls of the C
library by itself: tests/c/fault_syscalls.c.
"""

import json
import os
import subprocess
import sys

import pytest
from c_build import ROOT, build

HARNESS = ROOT / "tests/fault/harness.py"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def library():
    return build("futex", "fault") / "tests/libfault.so"


@pytest.mark.parametrize("where", ["main", "worker"])
def test_every_system_call_of_a_loaders_start_may_fail(where, library, thorough, figures):
    command = [sys.executable, str(HARNESS), str(library), where, *(["--thorough"] if thorough else [])]
    stderr = None if thorough else subprocess.PIPE  # which says how far it is
    done = subprocess.run(command, env=os.environ, text=True, stdout=subprocess.PIPE, stderr=stderr, timeout=800)
    if done.returncode == 77:
        pytest.skip("ptrace is not permitted here, or this processor is not known to tests/c/fault.h")
    assert done.returncode == 0, f"{done.stderr or ''}\nrepeat one with: {' '.join(command[:3])} {where} NTH PICK PERSISTENT"
    counts = json.loads(done.stdout.splitlines()[-1])["figures"]
    assert counts["errors"] > 0 < counts["successes"]
    figures(**counts)
