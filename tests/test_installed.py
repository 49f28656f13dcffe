"""What an installation holds: the package and its extensions, and of each extension one symbol."""

import re
import subprocess
from importlib import metadata

import pytest

import ringbuf
from ringbuf import _core, _messages
from ringbuf.loader import _course, _ledger, _rows, _samples

EXTENSIONS = [_core, _messages, _course, _ledger, _rows, _samples]


def test_the_wheel_holds_the_package_and_nothing_else():
    files = [file for file in metadata.files("ringloader") if file.suffix != ".pyc"]
    others = {file.parts[0] for file in files if file.parts[-2:] != ("bin", "ringbuf")} - {"ringbuf"}
    assert all(name.endswith(".dist-info") for name in others), others
    package = {file.suffix for file in files if file.parts[0] == "ringbuf"}
    for_builders = {".a", ".cmake", ".h", ".pc", ".pxd"}
    assert package == {".html", ".py", ".pyi", ".so", ".typed"} | for_builders


def test_the_version_is_that_of_the_distribution():
    assert ringbuf.__version__ == metadata.version("ringloader")


@pytest.mark.parametrize("module", EXTENSIONS, ids=lambda module: module.__name__)
def test_an_extension_exports_its_init_function_alone(module):
    listing = subprocess.run(["nm", "-D", "--defined-only", module.__file__], check=True, capture_output=True, text=True)
    assert [line.split()[-1] for line in listing.stdout.splitlines()] == [f"PyInit_{module.__name__.rpartition('.')[2]}"]


@pytest.mark.parametrize("module", EXTENSIONS[1:], ids=lambda module: module.__name__)
def test_the_library_is_in_one_extension_alone(module):
    """A second copy would know nothing of the rings that the first has to see to at a fork."""
    listing = subprocess.run(["nm", "-D", "--undefined-only", module.__file__], check=True, capture_output=True, text=True)
    assert "pthread_atfork" not in listing.stdout and "futex" not in listing.stdout


def test_every_extra_that_an_extra_takes_in_is_there():
    """pip goes on without one that is not, with a warning that nobody reads."""
    about = metadata.metadata("ringloader")
    own = [re.match(r"ringloader\[([\w,]+)\]", need) for need in about.get_all("Requires-Dist")]
    taken_in = {extra for match in own if match for extra in match[1].split(",")}
    assert taken_in
    assert taken_in <= set(about.get_all("Provides-Extra"))
