"""What a type checker is told is what there is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ringbuf

pytest.importorskip("mypy", reason="the type checker")

HERE = Path(__file__).parent
PACKAGE = Path(ringbuf.__file__).parent
PUBLIC = ["ringbuf", *(f"ringbuf.{part}" for part in ("buffer", "building", "checks", "errors", "memory", "loader.dataset"))]


def mypy(folder, *arguments):
    """Run `python -m mypy...` in a folder without a configuration of ours; its output, None if it found nothing."""
    environment = {**os.environ, "MYPYPATH": str(HERE), "MYPY_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=110, check=False)
    return done.stdout + done.stderr if done.returncode else None


@pytest.mark.timeout(120)
def test_a_users_program_and_what_it_imports_pass_strict_checks(tmp_path):
    modules = [argument for name in ("user", *PUBLIC) for argument in ("-m", name)]
    assert mypy(tmp_path, "mypy", "--strict", "--follow-imports=silent", *modules) is None


@pytest.mark.timeout(120)
def test_each_extension_has_a_stub_that_agrees_with_it(tmp_path):
    libraries = sorted(path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.so"))
    modules = [".".join((*path.parts[:-1], path.name.partition(".")[0])) for path in libraries]
    assert len(modules) >= 7
    stubtest = ("mypy.stubtest", "--ignore-disjoint-bases", "--allowlist", str(HERE / "allowed.txt"), "--ignore-unused-allowlist")
    assert mypy(tmp_path, *stubtest, *modules) is None
