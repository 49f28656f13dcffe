"""Each program of tests/c, in each build of the C library (CMakePresets.json), is one test here.

`pytest tests/test_c.py -k "tsan and claim"` picks some; `cmake --preset tsan && cmake --build --preset tsan &&
ctest --preset tsan` is the same without pytest.
"""

import json
import os
from itertools import chain
from xml.etree import ElementTree

import pytest
from c_build import ROOT, build, run
from scene import Scene

PROGRAMS = [*sorted(source.stem for source in (ROOT / "tests/c").glob("*.c")), "fuzz_attach"]  # replays its corpus
SCHEDULES = ["queue", "broadcast", "waiting"]
PRESETS = [preset["name"] for preset in json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]]

JOBS = min(len(os.sched_getaffinity(0)), 4)  # many programs wait most of their time, and each is one test of several

# The first test of a preset builds it and runs all its programs.
pytestmark = pytest.mark.timeout(900)


class Outcomes:
    """What came of the programs of one preset: `cases` as in ctest's report, and what they left behind."""

    def __init__(self, preset, programs, report):
        before = Scene.now()
        rc, output = run(
            *("ctest", "--preset", preset, f"-j{JOBS}", "--no-tests=error", "--output-junit", str(report)),
            *("-R", f"^({'|'.join(programs)})$"),
        )
        assert report.exists(), f"ctest said {rc}:\n{output}"
        self.cases = {case.get("name"): case for case in ElementTree.parse(report).iter("testcase")}
        self.left = [*map(str, chain(*before.remains()))]


@pytest.fixture(scope="module", params=PRESETS)
def outcomes(request, tmp_path_factory):
    build(request.param)
    params = [item.callspec.params for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    chosen = {its["program"] for its in params if its["outcomes"] == request.param and "program" in its}
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{request.param}: running {len(chosen)} programs", end=" ", flush=True)
    return Outcomes(request.param, sorted(chosen or PROGRAMS), tmp_path_factory.mktemp(request.param) / "report.xml")


def test_there_are_programs():
    assert PROGRAMS


def test_the_programs_leave_nothing_behind(outcomes):
    assert not outcomes.left


@pytest.mark.parametrize("program", PROGRAMS)
def test_c(outcomes, program):
    case = outcomes.cases[program]
    said = (case.findtext("system-out") or "").strip()
    if case.find("skipped") is not None:
        pytest.skip(said.removeprefix("skipped: ") or f"{program} exited with 77 and did not say why")
    assert case.get("status") == "run", f"{program}: {case.get('status')}\n{said}"


@pytest.mark.parametrize("outcomes", ["futex"], indirect=True)
@pytest.mark.parametrize("program", [f"schedule_{name}" for name in SCHEDULES])
def test_schedule(outcomes, program):
    """Each program of tests/schedule: fibers in one thread, of which a sanitizer would see nothing."""
    test_c(outcomes, program)
