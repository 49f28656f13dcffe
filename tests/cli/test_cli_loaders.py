"""`ringbuf ls`, `stat`, `top` and `rm` on loaders: at work, hanging, stopped, killed, several of one name, and what is none."""

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from processes import eventually

import ringbuf
from ringbuf import telemetry
from ringbuf.cli import bottleneck, main
from ringbuf.cli.kinds import loader as loaders
from ringbuf.cli.kinds import ring as rings
from ringbuf.cli.page import ASCII, UNICODE, lines_of, plain
from ringbuf.cli.processes import is_stopped
from ringbuf.net import local
from ringbuf.telemetry import _meter

sys.path.insert(0, str(Path(__file__).parents[1] / "telemetry"))
from trainers import Dying, Gate, Rows, names, run, trainer

OWN = f"seen-{os.getpid()}-"


@pytest.fixture(autouse=True)
def own_loaders_alone(monkeypatch):
    """Whatever else runs on this machine is not this test's to list."""
    there = loaders.there
    monkeypatch.setattr(loaders, "there", lambda: [one for one in there() if one.name.startswith(OWN)])
    monkeypatch.setattr(rings, "names", list)
    monkeypatch.setattr(local, "running", list)


@pytest.fixture
def said(capsys):
    """said(*arguments, code=0) runs a command, here, and returns what it says: (stdout, stderr)."""

    def run(*arguments, code=0):
        assert main(arguments) == code
        return tuple(capsys.readouterr())

    return run


@pytest.fixture
def seen(said):
    """seen(name) is the one object that `stat --json` has of it."""

    def run(name):
        (one,) = json.loads(said("stat", name, "--json")[0])
        return one

    return run


@pytest.fixture
def at_once(monkeypatch):
    """Whoever is at something for longer than usual is said to hang."""
    monkeypatch.setattr(bottleneck, "LONG_S", 0.0)


def named(*arguments, **options):
    return ringbuf.RingLoader(*arguments, name=next(names), **options)


def watched(loader):
    return loaders.watch(f"{os.getpid()}/{loader.name}")


def shown(watch, columns=80, glyphs=UNICODE):
    return [plain(line) for line in lines_of(watch.page(), columns, glyphs)]


# ---- at work


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_at_work_is_listed_shown_and_watched(method, said, seen, tmp_path):
    name = next(names)
    options = {"multiprocessing_context": method, "persistent_workers": True}
    with trainer(2, tmp_path, name=name, **options) as process:
        (thing,) = json.loads(said("ls", "--json")[0])
        assert (thing["kind"], thing["name"], thing["pid"], thing["alive"]) == ("loader", name, process.pid, True)
        assert sum(thing["slots"].values()) == seen(name)["slots"] > 0 and thing["nbytes"] > 0 and thing["age_s"] >= 0
        assert "waits for 2 workers" in thing["note"]
        table = said("ls")[0].splitlines()
        assert table[0].split()[:3] == ["kind", "name", "owner"] and f"{process.pid}  alive" in table[1]

        out, err = said("stat", name)
        assert out.startswith(f"loader {name} of process {process.pid}, trainer_{OWN}") and err == ""
        workers = seen(name)["workers"]
        assert [worker["worker"] for worker in workers] == [0, 1] and workers[0]["pid"] != workers[1]["pid"]
        assert all(worker["batches"] >= 8 and worker["load_s_per_batch"] > 0 for worker in workers)

        lines = said("top", name, "--json", "-n", "2", "--interval", "0.1")[0].splitlines()
        first, second = (json.loads(line)["things"][0] for line in lines)
        assert second["trainer"]["batches"] >= first["trainer"]["batches"]
        shares = ("load_share", "collate_share", "wait_task_share", "wait_slot_share")
        assert all(0 < sum(worker[share] for share in shares) <= 1.001 for worker in second["workers"])
        watch = loaders.watch(f"{process.pid}/{name}")
        assert eventually(lambda: watch.look()["batches_per_s"] > 0)
        before = watch.look()["trainer"]["batches"]
        assert eventually(lambda: watch.look()["trainer"]["batches"] > before)
        blocks = said("top", name, "-n", "2", "--interval", "0.1")[0].split(f"loader {name}")
        assert len(blocks) == 3 and "ready" in blocks[1] and "worker  process" in blocks[2]


def test_who_has_read_enough_is_no_error(tmp_path):
    name = next(names)
    with trainer(1, tmp_path, name=name):
        for arguments in (["stat", name], ["top", name, "--interval", "0.1"]):
            line = [sys.executable, "-m", "ringbuf", *arguments]
            with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                process.stdout.readline()
                process.stdout.close()
                assert (process.wait(50), process.stderr.read()) == (0, "")


def test_without_workers_the_trainer_is_the_one_that_makes_batches(said, seen):
    with named(Rows(), 8) as loader:
        run(loader)
        one = seen(loader.name)
        (worker,) = one["workers"]
        assert (one["num_workers"], one["states"], one["bytes"], worker["pid"]) == (0, None, None, os.getpid())
        out, _ = said("stat", loader.name)
        assert "no workers" in out and "\ntrainer " in out and "collates  now" in out
        assert "makes batches itself" in said("ls")[0]


def test_passes_go_on_in_one_watch_and_a_second_one_at_the_same_time_is_a_loader_of_its_own(said):
    with named(Rows(), 8, num_workers=1) as loader:
        run(loader)
        watch = watched(loader)
        assert watch.look()["passes"] == 1 and watch.look()["bottleneck"]["kind"] == "idle"
        assert sum(1 for _ in zip(loader, loader)) == 8
        frame = watch.look()
        assert (frame["passes"], frame["trainer"]["batches"]) == (2, 16) and frame["batches_per_s"] > 0
        assert [thing["name"] for thing in json.loads(said("ls", "--json")[0])] == [loader.name, f"{loader.name}-2"]


def test_batches_that_are_kept_are_seen(seen):
    with named(Rows(), 8, num_workers=1, slots=3) as loader:
        batches = iter(loader)
        kept = [next(batches)]
        watch = watched(loader)
        watch.look(), watch.look()
        with pytest.warns(UserWarning, match="private copy"):
            kept += batches
        frame = watch.look()
        assert frame["trainer"]["copies"] > 0 and len(kept) == 8
        assert any("batches were copied: the trainer looks at" in line for line in shown(watch, None))


def test_slots_that_stay_in_the_trainers_hands_are_told_before_batches_are_copied():
    with named(Rows(), 2, num_workers=1, slots=8) as loader:
        batches = iter(loader)
        kept = [next(batches) for _ in range(5)]
        watch = watched(loader)

        def gauged():
            time.sleep(0.002)  # no gauge is younger than a millisecond
            return next(batches) is not None and watch.look()["trainer"]["held"] >= 5

        assert eventually(gauged)
        watch.look(), watch.look()
        assert any(line.startswith("the trainer keeps batches: at the last ") for line in shown(watch, None))
        assert watch.look()["trainer"]["copies"] == 0 and len(kept) == 5


# ---- what goes wrong


def test_a_worker_at_one_batch_for_long_stands_out(at_once, said, seen):
    gate = Gate(32, closed=13)
    with named(gate, 4, num_workers=2) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        watch = watched(loader)
        waiting = threading.Thread(target=next, args=(batches,))
        waiting.start()
        assert eventually(lambda: watch.look()["bottleneck"]["kind"] == "stuck")
        frame = watch.look()
        (stuck,) = frame["stuck"]
        hanging = frame["workers"][1]
        assert (stuck["worker"], stuck["pid"], stuck["state"], stuck["batch"]) == (1, hanging["pid"], "loading", 3)
        assert frame["bottleneck"]["text"].startswith(f"worker 1, process {hanging['pid']}: loading batch 3 for ")
        assert hanging["load_share"] > 0
        assert "worker 1 at one batch for" in said("ls")[0]
        assert f"worker 1, process {hanging['pid']}: loading batch 3" in said("stat", loader.name)[0]
        assert all(len(line) <= 40 for line in shown(watch, 40))
        gate.open()
        waiting.join(50)
        assert run(batches) == 4
    gate.close()


def test_a_trainer_that_is_stopped_is_said_to_be(said, seen, tmp_path):
    name = next(names)
    with trainer(1, tmp_path, name=name) as process:
        watch = loaders.watch(f"{process.pid}/{name}")
        watch.look()
        process.send_signal(signal.SIGSTOP)
        assert eventually(lambda: is_stopped(process.pid))
        assert watch.look()["bottleneck"]["text"] == "the trainer: its process is stopped"
        assert "its process is stopped" in shown(watch)[1] and "the trainer is stopped" in said("ls")[0]
        process.send_signal(signal.SIGCONT)
        batches = watch.look()["trainer"]["batches"]
        assert eventually(lambda: watch.look()["trainer"]["batches"] > batches)


def test_a_worker_that_is_stopped_is_said_to_be(at_once, seen):
    with named(Rows(64), 4, num_workers=1) as loader:
        batches = iter(loader)
        next(batches)
        pid = seen(loader.name)["workers"][0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        assert eventually(lambda: is_stopped(pid))
        waiting = threading.Thread(target=run, args=(batches,))
        waiting.start()
        assert eventually(lambda: f"its process {pid} is stopped" in seen(loader.name)["bottleneck"]["text"])
        assert seen(loader.name)["workers"][0]["state"] == "stopped"
        os.kill(pid, signal.SIGCONT)
        waiting.join(50)


def test_top_ends_when_the_trainer_was_killed(tmp_path):
    name = next(names)
    with trainer(1, tmp_path, name=name) as process:
        line = [sys.executable, "-m", "ringbuf", "top", name, "--interval", "0.1"]
        with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as top:
            assert top.stdout.readline().startswith(f"loader {name} of process {process.pid}")
            process.kill()
            out, _ = top.communicate(timeout=50)
        assert top.returncode == 0 and out.endswith(f"{name} is gone\n")


def test_a_loader_that_was_closed_is_gone_and_another_of_its_name_begins_anew():
    loader = named(Rows(), 8, num_workers=1)
    run(loader)
    watch = watched(loader)
    assert watch.look()["trainer"]["batches"] == 8
    loader.close()
    with pytest.raises(FileNotFoundError):
        watch.look()
    with ringbuf.RingLoader(Rows(16), 8, name=loader.name) as other:
        run(other)
        frame = watch.look()
        assert (frame["trainer"]["batches"], frame["num_workers"]) == (2, 0)


def test_a_worker_that_died_and_one_in_its_place_are_seen(said, seen, tmp_path):
    dying = Dying(64, str(tmp_path / "died"))
    with named(dying, 4, num_workers=2, on_worker_death="restart") as loader:
        batches = iter(loader)
        next(batches)
        watch = watched(loader)
        before = watch.look()["workers"]
        assert run(batches) == 15
        after = watch.look()["workers"]
        assert after[0]["pid"] == before[0]["pid"] and after[1]["pid"] != before[1]["pid"]
        assert all(worker["batches_per_s"] >= 0 for worker in after)
        assert "1 of the workers replaced" in said("stat", loader.name)[0]


def test_a_worker_that_died_is_shown_as_dead(seen, tmp_path):
    with named(Dying(64, str(tmp_path / "died")), 4, num_workers=1) as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        assert eventually(lambda: seen(loader.name)["workers"][0]["state"] == "dead")
        watch = watched(loader)
        watch.look()
        assert any(line.startswith("0 ") and " dead " in line for line in shown(watch))
        with pytest.raises(ringbuf.WorkerDied):
            run(batches)


# ---- names


def test_of_several_with_one_name_each_can_be_had_by_its_pid(said, seen, tmp_path):
    with named(Rows(), 8) as loader, trainer(0, tmp_path, name=loader.name) as process:
        run(loader)
        name, ours, theirs = loader.name, f"{os.getpid()}/{loader.name}", f"{process.pid}/{loader.name}"
        assert {one["pid"] for one in json.loads(said("stat", name, "--json")[0])} == {os.getpid(), process.pid}
        assert seen(str(process.pid))["pid"] == seen(theirs)["pid"] == process.pid and seen(ours)["pid"] == os.getpid()
        out, _ = said("top", name, "-n", "1", "--interval", "0.1")
        assert ours in out and theirs in out and "ringbuf top PID, or PID/NAME" in out
        assert f"loader {name} of process {process.pid}" in said("top", theirs, "-n", "1", "--interval", "0.1")[0]
        assert f"{ours} (loader)" in said("stat", "nowhere", code=1)[1]


def test_there_is_nothing_to_remove_of_a_loader(said):
    with named(Rows(), 8) as loader:
        run(loader)
        out, err = said("rm", loader.name, code=1)
        assert out == "" and err.count("\n") == 1
        assert f"nothing to remove: all of it goes when process {os.getpid()} ends" in err
        assert said("rm", "--dead")[0] == "no ring of yours is dead\n"


# ---- what is no page


@pytest.fixture(scope="module")
def good():
    """The bytes of a page of this process that is in order."""
    with named(Rows(), 8, num_workers=2) as loader:
        run(loader)
        (path,) = [there.path for there in telemetry.find() if there.name == loader.name]
        with open(path, "rb") as page:
            return page.read()


@contextlib.contextmanager
def page(data, name):
    descriptor = os.memfd_create(_meter.PREFIX + name, os.MFD_ALLOW_SEALING)
    try:
        os.write(descriptor, data)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        yield descriptor
    finally:
        os.close(descriptor)


def put(data, word, value):
    data[word * 8 : word * 8 + 8] = value.to_bytes(8, "little", signed=True)


def name_in(data):
    return bytes(data[_meter.Header.NAME_AT * 8 :]).partition(b"\0")[0].decode()


@pytest.mark.parametrize(
    ("word", "value", "words"),
    [
        (_meter.Header.VERSION_AT, 9, "it has layout 9, and this ringbuf reads layout 1"),
        (_meter.Header.MAGIC_AT, 7, "no loader's page"),
        (_meter.row_at(-1), 99, "a state in it is 99"),
        (_meter.row_at(1) + _meter.Worker.W_LOAD_NS, -1, "W_LOAD_NS is -1"),
    ],
)
def test_what_cannot_be_read_is_listed_with_the_reason(word, value, words, good, said):
    data = bytearray(good)
    put(data, word, value)
    name = name_in(data)
    with page(data, name):
        (thing,) = json.loads(said("ls", "--json")[0])
        assert (thing["name"], thing["pid"], thing["slots"]) == (name, os.getpid(), None) and words in thing["note"]
        for arguments in (["stat", name], ["top", name, "-n", "1", "--interval", "0.1"], ["top", "-n", "1", "--interval", "0.1"]):
            out, err = said(*arguments)
            assert f"loader {name} of process {os.getpid()}\n" in out and words in out and err == ""
    assert "nothing is named" in said("stat", name, code=1)[1]


def test_names_that_no_loader_can_have_move_no_cursor(said):
    with page(b"x" * 4096, f"{OWN}\x1b[2J/\udc80\n"):
        out, _ = said("ls")
        assert OWN in out and "\x1b" not in out and len(out.splitlines()) == 2
        out, _ = said("stat", str(os.getpid()))
        assert f"loader {OWN}?[2J/?? of process" in out and "no loader's page" in out


def test_whatever_stands_in_a_page_is_shown_or_refused(good):
    """Counts and times that cannot be, on a page whose header is in order, while it is watched."""
    draw = random.Random(11)
    rows = range(_meter.row_at(-1), _meter.row_at(2))
    key = f"{os.getpid()}/{name_in(good)}"
    shown_ones = 0
    for _ in range(60):
        with page(good, name_in(good)) as descriptor:
            watch = loaders.watch(key)
            watch.look()
            for _ in range(3):
                for _ in range(draw.choice([1, 3, 20])):
                    value = draw.choice([0, 1, draw.randrange(9), draw.randrange(1 << 40), (1 << 63) - 1])
                    os.pwrite(descriptor, value.to_bytes(8, "little"), draw.choice(rows) * 8)
                frame = watch.look()
                shown_ones += frame["readable"]
                json.dumps(frame)
                for columns, glyphs in ((80, UNICODE), (40, ASCII), (1, ASCII), (None, UNICODE)):
                    assert all(len(line) <= (columns or 1000) for line in shown(watch, columns, glyphs))
                watch.row()
    assert shown_ones > 20
