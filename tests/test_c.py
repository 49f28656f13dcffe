"""Each program of tests/c, in each build of the C library (CMakePresets.json), is one test here.

`pytest tests/test_c.py -k "tsan and claim"` picks some; `cmake --preset tsan && cmake --build --preset tsan &&
ctest --preset tsan` is the same without pytest.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = [*sorted(source.stem for source in (ROOT / "tests/c").glob("*.c")), "fuzz_attach"]  # replays its corpus
SCHEDULES = ["queue", "broadcast", "waiting"]
PRESETS = [preset["name"] for preset in json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]]

# cmake and ninja may be this environment's own.
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

# ctest ends a program after 60 seconds; the first test of a preset also builds it.
pytestmark = pytest.mark.timeout(300)


def run(*command):
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


@pytest.fixture(scope="module", params=PRESETS)
def preset(request):
    """A preset's name, once it is built from the sources as they are now."""
    for command in (["cmake", "--preset", request.param], ["cmake", "--build", "--preset", request.param]):
        rc, output = run(*command)
        assert rc == 0, f"{' '.join(command)} failed:\n{output}"
    return request.param


def test_there_are_programs():
    assert PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS)
def test_c(preset, program, tmp_path):
    report = tmp_path / "report.xml"
    rc, output = run("ctest", "--preset", preset, "-R", f"^{program}$", "--no-tests=error", "--output-junit", str(report))
    assert rc == 0, output
    case = ElementTree.parse(report).find("testcase")
    if case.find("skipped") is not None:
        said = case.findtext("system-out").strip().removeprefix("skipped: ")
        pytest.skip(said or f"{program} exited with 77 and did not say why")


@pytest.mark.parametrize("preset", ["futex"], indirect=True)
@pytest.mark.parametrize("program", SCHEDULES)
def test_schedule(preset, program, tmp_path):
    """Each program of tests/schedule: fibers in one thread, of which a sanitizer would see nothing."""
    test_c(preset, f"schedule_{program}", tmp_path)
