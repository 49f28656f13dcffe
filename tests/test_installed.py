"""What an installation holds: the package and its extensions, and of each extension one symbol."""

import re
import subprocess
from importlib import metadata

import pytest

import ringbuf
from ringbuf import _core
from ringbuf.loader import _rows, _samples


def test_the_wheel_holds_the_package_and_nothing_else():
    files = [file for file in metadata.files("ringloader") if file.suffix != ".pyc"]
    others = {file.parts[0] for file in files} - {"ringbuf"}
    assert all(name.endswith(".dist-info") for name in others), others
    package = {file.suffix for file in files if file.parts[0] == "ringbuf"}
    assert package == {".py", ".pyi", ".so", ".typed"}


def test_the_version_is_that_of_the_distribution():
    assert ringbuf.__version__ == metadata.version("ringloader")


@pytest.mark.parametrize("extension", [_core, _rows, _samples], ids=lambda extension: extension.__name__)
def test_an_extension_exports_its_init_function_alone(extension):
    listing = subprocess.run(["nm", "-D", "--defined-only", extension.__file__], check=True, capture_output=True, text=True)
    assert [line.split()[-1] for line in listing.stdout.splitlines()] == [f"PyInit_{extension.__name__.rpartition('.')[2]}"]


def test_every_extra_that_an_extra_takes_in_is_there():
    """pip goes on without one that is not, with a warning that nobody reads."""
    about = metadata.metadata("ringloader")
    own = [re.match(r"ringloader\[([\w,]+)\]", need) for need in about.get_all("Requires-Dist")]
    taken_in = {extra for match in own if match for extra in match[1].split(",")}
    assert taken_in
    assert taken_in <= set(about.get_all("Provides-Extra"))
