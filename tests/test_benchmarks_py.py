"""The benchmark from Python: every peer does every workload, nobody can cheat, and the page says what was measured."""

import importlib
import json
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))  # where `benchmarks` is

import canned_benchmark  # noqa: E402
from benchmarks.py import consumer, loaders, measure, messages, peers, plan, reach, turns, usage  # noqa: E402
from benchmarks.py.figures import paired  # noqa: E402
from benchmarks.py.workloads import KINDS, Workload  # noqa: E402

EVERY_WORKLOAD = """
import json, sys
from benchmarks.py import measure, peers, plan
from benchmarks.py.workloads import Workload

name = sys.argv[1]
try:
    peers.NAMES[name].load()
except ImportError as error:
    sys.exit(print(json.dumps({"skipped": str(error)})))
names = [kind for kind in plan.BATCHES if plan.able([name], kind)]
each = {
    kind: measure.measure(
        name, Workload(name=kind, batches=3 if kind == "jpeg" else 6, workers=2, epochs=2, touch=touch, tiny=True)
    )
    for kind, touch in zip(names, 3 * ["nothing", "page", "all"])
}
print(json.dumps(each))
"""


# Workers that are spawned import torch in every run, which takes half a minute; that they are new does not matter here.
LIGHT = [name for name, peer in peers.NAMES.items() if peer.light and not peer.options.keys() & {"start", "persistent"}]


@pytest.mark.parametrize("peer", LIGHT)
def test_a_peer_does_every_workload_that_it_is_said_to(peer):
    runs = turns.in_fresh_process([sys.executable, "-c", EVERY_WORKLOAD, peer])
    if "skipped" in runs:
        pytest.skip(runs["skipped"])
    assert list(runs) == [name for name in plan.BATCHES if plan.able([peer], name)]
    for run in runs.values():
        assert run["label"] and run["versions"]
        assert len(run["epochs"]) == 2
        for epoch in run["epochs"]:
            assert 0 < epoch["first_s"] < epoch["total_s"]
            assert 0 < epoch["steady_s"] < epoch["total_s"]
        assert run["workers_cpu_s"] > 0 and run["workers_faults"] > 0


def deliver(change):
    """A peer in this process that makes all batches itself, then has `change(number, batches)` its way with them."""

    @contextmanager
    def open_(workload):
        dataset = workload.dataset()

        class Batches:
            def __iter__(self):
                return iter(change([dataset.collate(dataset.batch(number)) for number in range(workload.batches)]))

        yield Batches()

    module = SimpleNamespace(LABEL="made up", versions=dict, open=open_)
    return SimpleNamespace(load=lambda: module, fewer={}, options={}, label="")


def edited(number, field, place):
    """Another value at one place of one batch."""

    def change(batches):
        array = batches[number][field].reshape(-1)
        array[place] = array[place] + 1
        return batches

    return change


def as_float64(batches):
    return [(array.astype(np.float64), *rest) for array, *rest in batches]


@pytest.mark.parametrize(
    ("kind", "touch", "change", "said"),
    [
        ("mem", "nothing", lambda batches: batches, None),
        ("mem", "nothing", edited(3, 0, 0), "batch 3 does not begin and end with the dataset's samples"),
        ("mem", "nothing", edited(3, 0, -1), "batch 3 does not begin and end with the dataset's samples"),
        ("mem", "nothing", edited(3, 0, 1000), "field 0 of batch 3 should be float32 .* as in the dataset"),
        ("mem", "all", edited(0, 0, 1000), r"batch 0 adds up to \d+, the dataset's to \d+"),
        ("mem", "nothing", lambda batches: batches[:-1], "9 batches were due, 8 arrived"),
        ("mem", "nothing", lambda batches: [*batches, batches[0]], "9 batches were due, 10 arrived"),
        ("mem", "nothing", lambda batches: batches[::-1], "batch 0 does not begin and end"),
        ("mem", "nothing", as_float64, r"batch 0 should be float32 \(32, 8, 8, 3\), got float64"),
        ("img", "nothing", edited(0, 1, 7), "batch 0 has other labels or lengths than the dataset"),
        ("ragged", "nothing", edited(3, 1, 7), "batch 3 has other labels or lengths than the dataset"),
        ("small", "nothing", edited(5, 0, 1000), "field 0 of batch 5 should be"),
        ("seed", "nothing", edited(1, 0, 0), "batch 1 does not begin and end"),
    ],
)
def test_a_peer_that_delivers_anything_else_fails(monkeypatch, kind, touch, change, said):
    monkeypatch.setitem(peers.NAMES, "made up", deliver(change))
    workload = Workload(name=kind, batches=9, workers=1, epochs=1, touch=touch, tiny=True)
    if said is None:
        assert measure.measure("made up", workload)["batches"] == 9
    else:
        with pytest.raises(ValueError, match=said):
            measure.measure("made up", workload)


@pytest.mark.parametrize("kind", KINDS)
def test_two_datasets_of_a_workload_are_the_same(kind):
    workload = Workload(name=kind, batches=2, tiny=True)
    first, second = workload.dataset(), workload.dataset()
    batch = first.collate(first.batch(1))
    consumer.compare(1, batch, second)
    assert sum(field.nbytes for field in batch) <= workload.batch_bytes


@pytest.mark.parametrize("name", messages.NAMES)
def test_small_messages_arrive(name):
    run = turns.in_fresh_process(messages.command(name, 2_000, 100))
    if "skipped" in run:
        pytest.skip(run["skipped"])
    assert run["1p1c"] > 0
    assert 0 < run["p50_s"] <= run["p99_s"]


@pytest.mark.parametrize(
    "change",
    [
        lambda got: got[1:],
        lambda got: [got[0], *got[:-1]],
        lambda got: [got[1], got[0], *got[2:]],
        lambda got: [*got[:-1], got[-1][:-1] + b"x"],
    ],
)
def test_a_message_that_is_lost_doubled_overtaken_or_changed_is_found(change):
    got = messages.numbered(0, 5)
    messages._check(got, 1, 5)
    with pytest.raises(ValueError, match=r"message \d of \d should be|5 messages were due, 4 arrived"):
        messages._check(change(got), 1, 5)


@pytest.mark.parametrize(
    ("code", "part", "whose", "why"),
    [
        ("import json; print(json.dumps({'skipped': 'no such module'}))", "skipped", "ideal", "no such module"),
        ("raise ValueError('batch 3 is wrong')", "failures", "mem/nothing/2, ideal", "exit code 1: ValueError: batch 3 is wrong"),
    ],
)
def test_who_cannot_be_measured_is_named_and_the_others_go_on(monkeypatch, capsys, code, part, whose, why):
    commands = {"ideal": lambda *_, **__: [sys.executable, "-c", code], "mp_queue": loaders.command}
    monkeypatch.setattr(loaders, "command", lambda peer, workload, **compared: commands[peer](peer, workload, **compared))
    cell = plan.Cell(Workload(name="mem", batches=6, workers=2, epochs=2, tiny=True), ("ideal", "mp_queue"))
    result = loaders.take_turns([cell], 2)
    assert result[part] == {whose: why}
    assert list(result["cells"]["mem/nothing/2"]["peers"]) == ["mp_queue"]
    assert len(result["cells"]["mem/nothing/2"]["peers"]["mp_queue"]["runs"]) == 2
    assert why in capsys.readouterr().out


def test_the_memory_of_a_whole_family_is_watched():
    code = (
        "import json, multiprocessing as m, time\n"
        "def eat(): block = bytes(range(256)) * 200_000; time.sleep(0.5)\n"
        "child = m.get_context('fork').Process(target=eat); child.start(); child.join(); print(json.dumps({}))"
    )
    result = turns.in_fresh_process([sys.executable, "-c", code], watch=True)
    assert 51_200_000 < result["peak_bytes"] < 200_000_000


def test_who_is_gone_has_no_memory():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert usage.memory_bytes([done.pid]) == 0


def test_ratios_are_of_runs_from_the_same_round():
    assert paired([10, 20, 90], [5, 40, 30]) == {"median": 2.0, "min": 0.5, "max": 3.0}


@pytest.fixture(scope="module")
def canned():
    return canned_benchmark.result()


@pytest.fixture(scope="module")
def shown(canned, tmp_path_factory):
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("page")
    (folder / "result.json").write_text(json.dumps(canned))
    main = importlib.import_module("benchmarks.py.__main__").main
    assert main(["--report-only", f"{folder}/result.json", "--page", f"{folder}/benchmarks.md"]) == 1  # one had failed
    return folder / "benchmarks.md"


def test_the_page_has_a_line_for_every_peer_of_every_cell(canned, shown):
    text = shown.read_text()
    sections = dict(re.findall(r"^## (\S+)$\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    for cell in canned["loaders"]["cells"].values():
        section = sections[cell["workload"]["name"]]
        for entry in cell["peers"].values():
            assert re.search(rf"^\| \**{re.escape(entry['label'])}\** \|", section, re.MULTILINE)


def test_the_page_shows_pictures_that_are_there(shown):
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", shown.read_text())
    assert len(pictures) == len(set(pictures)) == len(plan.QUICK) + 3  # and the aims, messages and scaling
    for name in pictures:
        assert (shown.parent / name).read_bytes().startswith(b"\x89PNG")


def test_the_page_says_who_was_skipped_who_failed_and_what_it_ran_on(shown):
    text = shown.read_text()
    assert "grain was skipped: No module named 'grain'" in text
    assert "img/nothing/4, pyzmq failed: exit code 1: ValueError" in text
    assert "Example, 2 cores, 16 GiB" in text and "torch 2.13.0" in text


def test_whole_epochs_of_who_did_fewer_batches_are_not_compared(shown):
    small = shown.read_text().partition("\n## small\n")[2].partition("\n## ")[0]
    row = next(line for line in small.splitlines() if line.startswith("| *torch_loader*"))
    assert row.split("|")[5:7] == ["  ", "  "]


def test_every_aim_of_the_quick_set_gets_a_verdict(canned):
    rows = reach.table(canned)
    assert len(rows) == len(reach.AIMS) + len(reach.MESSAGES)
    for row in rows:
        bound = float(row["goal"].split()[1])
        assert row["met"] == (row["median"] >= bound if "≥" in row["goal"] else row["median"] <= bound)
    assert {row["met"] for row in rows} == {True, False}


def test_a_figure_that_is_not_there_gets_no_verdict(canned):
    cells = {"mem/nothing/4": canned["loaders"]["cells"]["mem/nothing/4"]}
    rows = reach.table({"loaders": {"cells": cells}})
    assert {row["what"].partition(",")[0] for row in rows} == {"mem"}


def test_an_attack_is_measured():
    command = [sys.executable, "-m", "benchmarks.py.attack", "--windows", "1", "--seconds", "0.2", "--only", "messages"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^messages  .* here / elsewhere [0-9.]+ ", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.timeout(200)  # nine processes that read the samples, with others beside them
def test_the_server_is_measured_against_the_loader_and_pyzmq(tmp_path):
    ways = ["loader", "local", "broadcast_1", "broadcast_2", "bare", "fuel"]
    command = [sys.executable, "-m", "benchmarks.py.server", "--quick", f"--json={tmp_path}/out.json", "--only", *ways]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "out.json").read_text())
    assert not result["failures"], done.stdout
    assert all(len(runs) == 1 and runs[0]["rate"] > 0 for runs in result["runs"].values())
    assert {(row["ours"], row["theirs"]) for row in result["aims"]} == {("local", "loader"), ("broadcast_2", "broadcast_1")}


def test_a_server_that_fails_is_said_to_have(tmp_path):
    from benchmarks.py import server_cases

    address = "tcp://1.1.1.1:1"  # is not this machine's
    with pytest.raises(RuntimeError, match=r"the server failed: .*address"), server_cases._serving("bare", 1, address, tmp_path):
        pass


@pytest.mark.parametrize("peer", ["ringbuf", "gymnasium"])
def test_environments_step_together(peer):
    command = [sys.executable, "-m", "benchmarks.py.rl", "--run", peer, "CartPole-v1, 2", "--seconds", "0.05"]
    assert turns.in_fresh_process(command)["steps_per_s"] > 0
