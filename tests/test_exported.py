"""What `import ringbuf` gives, and what it costs."""

import os

import pytest
from processes import script

import ringbuf


def test_all_is_sorted_and_is_what_is_there():
    assert ringbuf.__all__ == sorted(ringbuf.__all__)
    public = {name for name, value in vars(ringbuf).items() if not name.startswith("_") and not is_module(value)}
    assert public == set(ringbuf.__all__)


def is_module(value):
    return type(value).__name__ == "module"


def test_public_names_call_themselves_by_their_public_name():
    for name in ringbuf.__all__:
        assert getattr(getattr(ringbuf, name), "__module__", "ringbuf") == "ringbuf", name


@pytest.mark.parametrize("heavy", ["torch", "zmq", "ray", "scipy", "sklearn", "pandas", "multiprocessing", "asyncio"])
def test_importing_ringbuf_imports_nothing_heavy(heavy):
    ended = script("import sys; before = set(sys.modules); import ringbuf; print(*set(sys.modules) - before)")
    assert ended.returncode == 0, ended.stderr
    assert heavy not in {module.partition(".")[0] for module in ended.stdout.split()}


def test_the_package_is_marked_as_typed():
    assert os.path.exists(os.path.join(os.path.dirname(ringbuf.__file__), "py.typed"))
