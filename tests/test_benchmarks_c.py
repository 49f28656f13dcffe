"""The C benchmark runs, with and without peers, and its programs notice when a message does not arrive as it was put."""

import json
import subprocess
import sys

import pytest
from c_build import ROOT, run

FOLDER = ROOT / "build/benchmarks-test"
DEADLINE_S = 50
FOREIGN = {"ck", "moodycamel", "boost", "dpdk"}
OWN = {"ringbuf", "ringbuf_sleeping", "mutex", "mutex_sleeping", "pipe", "fetch_add", "floor"}

pytestmark = pytest.mark.timeout(300)  # the first test builds


@pytest.fixture(scope="module")
def build():
    """build(*options) -> the programs, in a folder that is kept, so that later runs only rebuild what changed."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.c.build import Programs, build

    def built(*options):
        build(FOLDER, *options)
        return Programs(FOLDER)

    yield built
    sys.path.remove(str(ROOT))


@pytest.fixture(scope="module")
def programs(build):
    return build("-DRINGBUF_BENCHMARK_PEERS=ON")


def benchmark(path, *arguments):
    """What a quick run prints, and what it writes to `path`."""
    command = [sys.executable, "-m", "benchmarks.c", "--quick", "--no-build", f"--build={FOLDER}", f"--json={path}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(path.read_text())


def test_a_quick_run_measures_all_peers_that_are_there(programs, tmp_path):
    names = "throughput_threads_1", "throughput_processes_16", "round_trip", "wake", "uncontended_empty", "recovery"
    text, result = benchmark(tmp_path / "out.json", "--ms=2", "--tables", *names)

    assert result["failures"] == []
    assert set(result["peers"]) | set(result["missing"]) >= OWN | FOREIGN
    assert result["machine"]["cores"] >= 1 and result["compiler"]
    assert len(result["recovery"]) == 4
    tables = result["tables"]
    assert tables["throughput_threads_1"]["rows"].keys() == result["peers"].keys()
    assert tables["wake"]["rows"].keys() == {name for name, peer in result["peers"].items() if peer["sleeps"]}
    for table in tables.values():
        assert table["title"] in text
        for name, row in table["rows"].items():
            threads_only = result["peers"][name]["threads_only"]
            assert list(row) == [column for column in table["columns"] if not (threads_only and "processes" in column)]
            assert all(0 <= cell["min"] <= cell["median"] <= cell["max"] and len(cell["runs"]) == 1 for cell in row.values())
    assert "moodycamel" not in tables["throughput_processes_16"]["rows"]


def test_peers_that_are_absent_are_named_and_the_others_measured(build, tmp_path):
    build("-DRINGBUF_BENCHMARK_PEERS=OFF")
    text, result = benchmark(tmp_path / "out.json", "--ms=1", "--tables", "throughput_threads_1")
    assert result["peers"].keys() == result["tables"]["throughput_threads_1"]["rows"].keys() >= OWN
    assert result["missing"].keys() >= FOREIGN
    assert all(f"{name} is left out: " in text for name in FOREIGN)


# What a broken queue does, and how the programs say so.
SPOILT = {
    ("throughput", "lose"): r"of the \d+ messages of producer 0 \d+ arrived",
    ("throughput", "double"): r"message \d+ of producer 0 came after its \d+",
    ("throughput", "change"): r"message \d+ of producer 0 came after its \d+",
    ("pingpong", "change"): r"round \d+ came back as \d+",
    ("uncontended", "lose"): r"message \d+ came instead of \d+",
    ("wake", "change"): r"what arrived adds up to \d+, not to \d+",
}


@pytest.mark.parametrize("workload, how", SPOILT)
def test_every_program_notices_a_message_that_did_not_arrive_as_it_was_put(programs, workload, how):
    for name, peer in programs.peers.items():
        if not peer["carries"] or (workload == "wake" and not peer["sleeps"]):
            continue
        for processes in (0,) if peer["threads_only"] or workload == "uncontended" else (0, 1):
            arguments = [workload, "ms=20", f"processes={processes}"]
            with pytest.raises(RuntimeError, match=SPOILT[workload, how]):
                programs.run(name, *arguments, f"spoil={how}")
            assert programs.run(name, *arguments)


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["throughput", "producers=0"], "producers=0: it takes 1 to 32"),
        (["throughput", "batch=1x"], "batch=1x: it takes 1 to 64"),
        (["throughput", "speed=9"], "speed=9: there is no such argument"),
        (["wake"], "it does not sleep"),
        (["dance"], "usage: "),
    ],
)
def test_a_program_refuses_what_it_cannot_do_and_says_what_it_takes(programs, arguments, complaint):
    rc, output = run(programs.folder / "ringbuf", *arguments)
    assert rc == 1 and complaint in output
