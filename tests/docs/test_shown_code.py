"""The code that README.md and the pages of docs/ show runs as shown, and prints what it says."""

import doctest
import os
import re
import subprocess
import sys

import pytest
from pages import PAGES, ROOT, before_and_after, blocks, commands, without_numbers

BLOCKS = [block for page in PAGES for block in blocks(page)]
DEADLINE_S = 50
EXACTLY = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1 | doctest.DONT_ACCEPT_BLANKLINE
LOOSELY = EXACTLY | doctest.NORMALIZE_WHITESPACE

pytestmark = pytest.mark.docs


def some(*languages):
    chosen = [block for block in BLOCKS if block.language in languages and not block.skipped]
    return pytest.mark.parametrize("block", chosen, ids=lambda block: block.name)


def printed(code, folder):
    """What a program prints, in a process of its own, without a warning."""
    script = folder / "shown.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", script], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


@some("python")
def test_the_python_of_a_page_runs(block, tmp_path):
    said = printed(block.code, tmp_path)
    assert doctest.OutputChecker().check_output(block.output, said, EXACTLY), f"{block.output!r} became {said!r}"


@some("diff")
def test_both_sides_of_a_change_run_and_print_the_same(block, tmp_path):
    before, after = (printed(code, tmp_path) for code in before_and_after(block.code))
    assert before == after


@some("console", "sh")
def test_the_commands_of_a_page_run(block, tmp_path):
    shown = commands(block.code) if block.language == "console" else [(block.code, None)]
    for command, output in shown:
        said = shell(command, tmp_path)
        if output is not None:
            same = doctest.OutputChecker().check_output(without_numbers(output), without_numbers(said), LOOSELY)
            assert same, f"$ {command}\nThe page says\n{output}and the command\n{said}"


def shell(command, folder):
    """What a command says, in a shell that has this Python and its `ringbuf`."""
    here = f'python() {{ {sys.executable} "$@"; }}; ringbuf() {{ python -m ringbuf "$@"; }}; set -e\n'
    done = subprocess.run(
        ["bash", "-c", here + command],
        cwd=folder,
        env=os.environ | {"COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_block_of_a_page_runs_or_says_why_it_does_not():
    known = "python", "diff", "console", "sh"
    unknown = [block.name for block in BLOCKS if block.language not in known and not block.skipped]
    assert not unknown, f"nobody runs these; skip them with a reason, or see what pages.py calls prose: {unknown}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_that_a_page_names_exist(page):
    text = page.read_text()
    for name in re.findall(r"`((?:src|tests|examples|benchmarks|scripts|docs)/[\w./-]*\w)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", text):
        assert (page.parent / name).exists(), name
