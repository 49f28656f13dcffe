"""tests/uncovered_branches.txt against the source, as far as one sees without running it; scripts/coverage does the rest."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES = [
    line
    for line in (ROOT / "tests/uncovered_branches.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("line", LINES)
def test_a_branch_that_is_never_taken_is_in_the_source_and_argued(line):
    file, function, condition, way, argument = line.split("\t")
    source = (ROOT / "src/ringbuf_c" / file).read_text()
    assert re.search(rf"^\w[^;\n]*\b{function}\(", source, re.MULTILINE), f"{file} has no function {function}()"
    text = re.sub(r"\s+", "", re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL))
    assert re.sub(r"\s+", "", re.sub(r" #\d+$", "", condition)) in text, f"{file} does not ask whether {condition}"
    assert way in ("never true", "never false")
    assert len(argument) > 20 and "TODO" not in argument
