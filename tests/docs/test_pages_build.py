"""Sphinx builds the pages without a warning, and they need nothing of another host."""

import re
import subprocess
import sys

import pytest
from pages import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of HTML pages, as `make docs` makes it."""
    folder = tmp_path_factory.mktemp("pages")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "--quiet", "-d", folder / "doctrees", ROOT / "docs", folder],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return folder


def test_the_pages_build_without_a_warning_and_have_what_is_public(built):
    import ringbuf

    described = "".join(page.read_text() for page in (built / "api").glob("*.html"))
    attributes = [f"{kind.__name__}.{name}" for kind in (ringbuf.Stats, ringbuf.LoaderStats) for name in kind.__annotations__]
    assert [name for name in [*ringbuf.__all__, *attributes] if f'id="ringbuf.{name}"' not in described] == []


def test_the_pages_load_nothing_from_elsewhere(built):
    for page in built.rglob("*.html"):
        tags = re.findall(r"<(?:script|img|iframe|link)\b[^>]*>", page.read_text())
        assert [tag for tag in tags if re.search(r'(?:src|href)="(?:https?:)?//', tag)] == [], page
