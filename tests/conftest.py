"""Every test: a deadline (pyproject.toml), and nothing left behind when it ends."""

import contextlib
import importlib.util
import os
import signal
import time
from pathlib import Path

import pytest
from scene import SHM, Scene

GRACE_S = 5.0  # what a loader may take to stop its workers


def pytest_addoption(parser):
    parser.addoption("--thorough", action="store_true", help="run sweeps at full length, as `make verify` does")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--thorough"):
        long = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="session")
def thorough(request):
    """Whether sweeps shall take all the time they need; otherwise a short version that finds most of it."""
    return request.config.getoption("--thorough")


@pytest.fixture
def figures(capfd):
    """figures(kills=12, ...) reports what a sweep did, for `make verify` to collect from its output."""

    def report(**numbers):
        with capfd.disabled():
            print("\nfigures: " + " ".join(f"{name}={number}" for name, number in numbers.items()), flush=True)

    return report


def pytest_report_header():
    spec = importlib.util.find_spec("ringbuf")
    return f"ringbuf: {Path(spec.origin).parent if spec else 'not installed'}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call":
        item.failed = report.failed
    return report


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request):
    """A process or a segment that outlives its test fails it, and is removed so that the next test starts clean."""
    before = Scene.now()
    yield
    deadline = time.monotonic() + GRACE_S
    while any(left := before.remains()) and time.monotonic() < deadline:
        time.sleep(0.02)
    if not any(left):
        return
    strays, names = left
    found = [f"process {p.pid} ({p.state}): {p.command or 'exited, but nobody waited for it'}" for p in strays]
    found += [f"segment {SHM / name}" for name in sorted(names)]
    for stray in strays:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stray.pid, signal.SIGKILL)
        if stray.parent == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(stray.pid, 0)
    for name in names:
        (SHM / name).unlink(missing_ok=True)
    if not getattr(request.node, "failed", False):  # a failed test has said enough
        pytest.fail("left behind after the test:\n  " + "\n  ".join(found))
