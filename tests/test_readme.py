"""The code that README.md and the pages of docs/ show runs as shown, and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "server.md", ROOT / "docs" / "ringbuffer.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
BLOCKS = {f"{page.stem}-{n}": block for page in PAGES for n, block in enumerate(BLOCK.findall(page.read_text()), 1)}


@pytest.mark.docs
@pytest.mark.parametrize(("code", "output"), BLOCKS.values(), ids=list(BLOCKS))
def test_the_code_of_a_page_runs(code, output, tmp_path):
    script = tmp_path / "shown.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=40)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == output


@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_that_a_page_names_exist(page):
    for name in re.findall(r"`((?:src|tests|examples|benchmarks)/[\w./]+)`", page.read_text()):
        assert (ROOT / name).exists(), name
