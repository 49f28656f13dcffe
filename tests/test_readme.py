"""The code that README.md shows runs as shown, and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
BLOCKS = BLOCK.findall(README.read_text())


@pytest.mark.docs
@pytest.mark.parametrize(("code", "output"), BLOCKS, ids=[f"block-{n}" for n, _ in enumerate(BLOCKS, 1)])
def test_the_readmes_code_runs(code, output, tmp_path):
    script = tmp_path / "readme.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=40)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == output


@pytest.mark.docs
def test_the_files_that_the_readme_names_exist():
    for name in re.findall(r"`((?:src|tests|examples|benchmarks)/[\w./]+)`", README.read_text()):
        assert (README.parent / name).exists(), name
