"""tests/bugs_not_applicable.md: what it names exists, and each row has its reason."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "tests/bugs_not_applicable.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+(?:::\w+)?)`", PAGE)))


def rows(title):
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines()[3:] if line.startswith("|")]


@pytest.mark.parametrize("named", NAMED)
def test_what_the_table_names_exists(named):
    path, _, name = named.partition("::")
    assert (ROOT / path).exists()
    assert not name or re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_every_failure_that_cannot_occur_has_a_source_and_a_reason():
    table = rows("What cannot occur here")
    assert len(table) > 20
    for failure, source, reason in table:
        assert failure and len(reason) > 30
        assert source == "no report found" or re.match(r"[\w.-]+/[\w.-]+ ?(PR)?#\d+", source)


def test_every_behaviour_that_is_shown_elsewhere_names_a_test():
    table = rows("Shown elsewhere")
    assert len(table) > 30
    for behaviour, tests in table:
        assert behaviour and re.fullmatch(r"(`tests/[\w/.]+(::\w+)?`(, )?)+", tests)
