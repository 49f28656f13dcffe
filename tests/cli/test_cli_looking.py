"""`ringbuf ls`, `stat` and `rm` on living, dead, foreign and damaged rings, on servers, and on nothing."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess

import numpy as np
import pytest
from commands import command, names
from processes import eventually, process
from things import dead_ring, foreign_ring, is_there, other_version, removed_in_the_end, something_else

import ringbuf
from ringbuf import memory
from ringbuf.cli import main
from ringbuf.cli.kinds import KINDS, kinds
from ringbuf.cli.kinds import loader as loaders
from ringbuf.cli.kinds import ring as rings
from ringbuf.cli.processes import is_stopped
from ringbuf.net import inquiry, local

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture(autouse=True)
def own_things_alone(monkeypatch):
    """Whatever else is dead on this machine is not this test's to remove, and what runs not its to list."""

    def own(find):
        return lambda: [name for name in find() if name.startswith(f"cli-{os.getpid()}-")]

    monkeypatch.setattr(rings, "names", own(rings.names))
    monkeypatch.setattr(local, "running", own(local.running))
    monkeypatch.setattr(loaders, "there", list)


@pytest.fixture
def said(capsys):
    """said(*arguments, code=0) runs a command, here, and returns what it says: (stdout, stderr)."""

    def run(*arguments, code=0):
        assert main(arguments) == code
        return tuple(capsys.readouterr())

    return run


@pytest.fixture
def listed(said):
    """listed(name, *options) is the one object that `ls --json` has of a name, or None."""

    def run(name, *options):
        return next((thing for thing in json.loads(said("ls", "--json", *options)[0]) if thing["name"] == name), None)

    return run


@pytest.fixture
def nothing_there(monkeypatch):
    """As on a machine where nothing runs: others of this user may be at work on this one."""
    monkeypatch.setattr(rings, "names", list)
    monkeypatch.setattr(local, "running", list)


@pytest.fixture
def ring():
    with ringbuf.RingBuffer(4, 4096, name=next(names)) as ring:
        ring.put(np.arange(2))
        yield ring


@pytest.fixture
def dead():
    with dead_ring(next(names)) as name:
        yield name


# ---- ls


def test_nothing_there_is_a_line_and_no_failure(nothing_there, said):
    assert said("ls") == ("no ring, server or loader of yours is there\n", "")
    assert said("ls", "--json") == ("[]\n", "")
    assert said("rm", "--dead") == ("no ring of yours is dead\n", "")
    assert said("rm", "--dead", "--yes") == ("no ring of yours is dead\n", "")
    assert said("stat", "x", code=1) == ("", "ringbuf stat: nothing is named 'x'; no ring, server or loader of yours is there\n")


def test_a_living_ring_is_listed_with_its_slots_and_its_owner(ring, listed):
    thing = listed(ring.name)
    assert (thing["kind"], thing["pid"], thing["alive"], thing["mode"]) == ("ring", os.getpid(), True, "queue")
    assert thing["slots"] == {"ready": 1, "reading": 0, "writing": 0, "free": 3}
    assert thing["nbytes"] == os.path.getsize(memory.path_of(ring.name)) and 0 <= thing["age_s"] < 60


def test_the_table_has_a_line_for_each(ring, dead, said):
    lines = {line.split()[1]: line for line in said("ls")[0].splitlines()[1:]}
    assert f"{os.getpid()}  alive  queue  1 ready, 3 free" in lines[ring.name]
    assert " dead " in lines[dead]


def test_the_owner_is_who_is_attached_longest_and_alive(ring, listed):
    with removed_in_the_end(ring.name), process(attach_and_wait, ring.name) as child:
        assert eventually(lambda: ring.stats().participants == 2)
        assert listed(ring.name)["pid"] == os.getpid()
        ring.close()
        assert listed(ring.name)["pid"] == child.pid


def attach_and_wait(name):
    with ringbuf.attach(name):
        signal.pause()


def test_a_server_is_listed_and_a_second_thing_of_its_name_too(ring, said):
    with ringbuf.Server(iter(range(10**9)), ring.name) as server:
        with ringbuf.connect(server.name) as stream:
            next(iter(stream))
            found = [thing for thing in json.loads(said("ls", "--json")[0]) if thing["name"] == ring.name]
            assert [thing["kind"] for thing in found] == ["ring", "server"]
            assert (found[1]["pid"], found[1]["alive"], found[1]["mode"]) == (os.getpid(), True, "split")
            assert found[1]["note"] == "1 client"
            kinds_of = [snapshot["kind"] for snapshot in json.loads(said("stat", ring.name, "--json")[0])]
            assert kinds_of == ["ring", "server"]


@root
def test_other_users_rings_are_listed_on_demand(listed, said):
    with foreign_ring(next(names)) as name:
        assert listed(name) is None
        thing = listed(name, "--all")
        assert (thing["alive"], thing["pid"], thing["slots"]) == (None, None, None) and thing["note"] == "of user nobody"
        out, err = said("rm", name, code=1)
        assert out == "" and "it is of user nobody, and theirs to remove" in err and is_there(name)
        said("rm", "--dead", "--yes")
        assert is_there(name)
        for arguments in (["stat", name], ["top", name, "-n", "1", "--interval", "0.1"]):
            assert f"ring {name}: of user nobody" in said(*arguments)[0]


@pytest.mark.parametrize(
    "make, note", [(something_else, "no ring, or damaged"), (other_version, "layout version 99, or another build")]
)
def test_what_cannot_be_read_is_listed_with_the_reason(make, note, listed, said):
    with make(next(names)) as name:
        thing = listed(name)
        assert (thing["note"], thing["alive"], thing["slots"]) == (note, False, None)
        assert note in said("stat", name)[0]
        assert name not in said("rm", "--dead")[0]
        said("rm", "--dead", "--yes")
        assert is_there(name)
        assert said("rm", name) == (f"removed {name}\n", "") and not is_there(name)


def test_a_damaged_ring_that_is_in_use_stays(ring, said):
    with open(memory.path_of(ring.name), "r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(b"?")
        file.flush()
        _, err = said("rm", ring.name, code=1)
        assert "a living process uses it" in err and is_there(ring.name)
        file.seek(0)
        file.write(first)


# ---- rm


def test_rm_removes_the_dead_and_leaves_the_living(ring, dead, said):
    out, err = said("rm", dead, ring.name, code=1)
    assert out == f"removed {dead}\n" and not is_there(dead)
    assert err == f"ringbuf rm: {ring.name!r} stays: process {os.getpid()} uses it; end it first\n"
    assert ring.get().tolist() == [0, 1] and is_there(ring.name)


def test_rm_dead_says_what_would_go_and_does_it_when_told(ring, dead, said):
    out, _ = said("rm", "--dead")
    assert f"would remove {dead}: " in out and "ringbuf rm --dead --yes" in out and ring.name not in out
    assert is_there(dead)
    assert dead in json.loads(said("rm", "--dead", "--json")[0])["would_remove"] and is_there(dead)
    told = json.loads(said("rm", "--dead", "--yes", "--json")[0])
    assert dead in told["removed"] and not is_there(dead) and is_there(ring.name)


def test_what_comes_to_life_between_the_look_and_the_removal_stays(dead, said, monkeypatch):
    look = rings.look
    alive = contextlib.ExitStack()

    def look_and_revive(name):
        seen = look(name)
        if name == dead and not seen["alive"]:
            alive.enter_context(ringbuf.RingBuffer(3, 4096, name=name))
        return seen

    monkeypatch.setattr(rings, "look", look_and_revive)
    with alive:
        out, err = said("rm", dead, code=1)
        assert out == "" and "a living process is attached" in err and is_there(dead)


def test_rm_says_what_else_has_the_name(said):
    name = next(names)
    assert f"{name!r} stays: no ring has this name" in said("rm", name, code=1)[1]
    with ringbuf.Server([1], name):
        assert f"it is a server, which goes when process {os.getpid()} ends" in said("rm", name, code=1)[1]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["rm"], "give names, or --dead"),
        (["rm", "x", "--dead"], "either names or --dead"),
        (["rm", "x", "--yes"], "--yes goes with --dead"),
        (["rm", "a/b"], "name must be"),
        (["top", "--interval", "0"], "'0' is not a number of seconds"),
        (["top", "-n", "0"], "'0' is not a whole number from 1 on"),
        (["stat"], "NAME"),
    ],
)
def test_wrong_usage_is_one_line(arguments, words, said):
    out, err = said(*arguments, code=2)
    assert out == "" and err.count("\n") == 1 and words in err


def test_what_has_no_legal_name_is_not_there(said):
    for arguments in (["stat", "a/b"], ["top", "a/b"]):
        assert "nothing is named 'a/b'" in said(*arguments, code=1)[1]


# ---- stat


def test_stat_shows_who_holds_what(ring, said):
    batch = ring.get()
    out, _ = said("stat", ring.name)
    assert f"ring {ring.name}: alive, process {os.getpid()}" in out
    assert "1 reading" in out and re.search(rf"\n +0  reading +{os.getpid()} ", out)
    (snapshot,) = json.loads(said("stat", ring.name, "--json")[0])
    assert snapshot["participants"][0]["reading"] == 1 and snapshot["in_use"][0]["pid"] == os.getpid()
    del batch


def test_stat_of_a_dead_ring_says_how_it_goes(dead, said):
    out, _ = said("stat", dead)
    assert f"ring {dead}: dead, of process" in out and f"`ringbuf rm {dead}` removes it" in out


def test_a_name_that_is_not_there_is_a_failure_that_lists_what_is(ring, said):
    out, err = said("stat", "nowhere", code=1)
    assert out == "" and err.startswith("ringbuf stat: nothing is named 'nowhere'") and f"{ring.name} (ring)" in err


# ---- servers that do not answer


def test_a_server_that_is_stopped_is_listed_as_such(listed, said):
    name = next(names)
    with process(serve, name) as child:
        assert eventually(lambda: name in local.running())
        os.kill(child.pid, signal.SIGSTOP)
        assert eventually(lambda: is_stopped(child.pid))
        try:
            thing = listed(name)
            assert (thing["pid"], thing["alive"]) == (child.pid, True)
            assert thing["note"] == "does not answer: its process is stopped"
            assert "does not answer" in said("stat", name)[0]
        finally:
            os.kill(child.pid, signal.SIGCONT)


def serve(name):
    ringbuf.Server(iter(range(10**9)), name).run()


def test_a_server_that_takes_no_connections_does_not_hold_us_up():
    name = next(names)
    with local.listen(name), contextlib.ExitStack() as waiting:
        for _ in range(local.BACKLOG + 1):
            waiting.enter_context(local.connect(name, timeout=10))
        for ask in (inquiry.status, inquiry.process_of):
            with pytest.raises(ConnectionError, match="wait for it") if ask is inquiry.status else contextlib.nullcontext():
                assert ask(name) is None


def test_what_is_said_by_a_stranger_is_no_server(said):
    name = next(names)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:  # as a name another program may take
        other.bind(f"\0ringbuf/{os.geteuid()}/{name}")
        assert name not in said("ls")[0]


# ---- whoever reads


def test_every_kind_has_what_a_kind_has():
    for name, kind in zip(KINDS, kinds()):
        assert kind.KIND == name and all(callable(getattr(kind, part)) for part in ("find", "keys", "look", "page", "watch"))


@pytest.mark.parametrize(
    "arguments", [["ls"], ["stat", "NAME", "--json"], ["top", "NAME"], ["top", "NAME", "--json"]], ids=" ".join
)
def test_who_has_read_enough_is_no_error(arguments, ring, tmp_path):
    arguments = [ring.name if argument == "NAME" else argument for argument in arguments]
    read, write = os.pipe()
    os.close(read)
    done = command(*arguments, cwd=tmp_path, capture_output=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_in_the_c_locale_all_is_ascii(ring, tmp_path):
    environment = {**os.environ, "LC_ALL": "C"}
    out = command("stat", ring.name, cwd=tmp_path, env=environment, text=False).stdout
    assert b"#..." in out and out.isascii()
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    assert "█░░░" in command("stat", ring.name, cwd=tmp_path, env=environment, text=False).stdout.decode()


def test_an_output_that_takes_ascii_alone_gets_no_more(ring, tmp_path):
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = command("stat", ring.name, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "") and "#..." in done.stdout
