"""`ringbuf top`: what it makes of two looks, and how it behaves on a terminal and without one."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading

import numpy as np
import pytest
from commands import command, names
from processes import eventually, process
from things import dead_ring, removed_in_the_end

import ringbuf
from ringbuf.cli.kinds import ring as rings
from ringbuf.cli.kinds import server as servers
from ringbuf.cli.processes import is_stopped
from ringbuf.cli.terminal import Keys
from ringbuf.net import local


@pytest.fixture
def ring():
    with ringbuf.RingBuffer(4, 4096, name=next(names)) as ring:
        yield ring


@pytest.fixture
def clock(monkeypatch):
    """clock.now is the time, for rates."""

    class Clock:
        now = 1000.0

    monkeypatch.setattr(rings.time, "monotonic", lambda: Clock.now)
    return Clock


# ---- a ring


def test_rates_are_those_of_the_time_between_two_looks(ring, clock):
    watch = rings.watch(ring.name)
    assert watch.look()["messages_per_s"] is None
    for _ in range(3):
        ring.put(np.zeros(100))
        ring.get()
    clock.now += 2
    frame = watch.look()
    assert (frame["messages_per_s"], frame["taken_per_s"], frame["interval_s"]) == (1.5, 1.5, 2.0)
    assert 800 * 1.5 < frame["bytes_per_s"] < 1000 * 1.5
    (who,) = frame["participants"]
    assert (who["pid"], who["published_per_s"], who["waiting_share"]) == (os.getpid(), 1.5, 0.0)


def test_a_slot_in_one_hand_for_long_is_named_with_who_has_it(ring, clock):
    ring.put(np.zeros(3), tag=7)
    ring.put(np.zeros(3), tag=8)
    held = ring.get(tag=7)
    watch = rings.watch(ring.name)
    assert watch.look()["stuck"] == []
    clock.now += rings.STUCK_S
    (stuck,) = watch.look()["stuck"]  # what is ready only waits its turn
    assert (stuck["state"], stuck["pid"], stuck["tag"], stuck["held_s"]) == ("reading", os.getpid(), 7, rings.STUCK_S)
    assert any("held for long" in line for line in shown(watch))
    del held
    clock.now += 1
    assert watch.look()["stuck"] == []


def test_a_slot_that_was_handed_back_and_taken_again_is_not_held_for_long(ring, clock):
    watch = rings.watch(ring.name)
    for _ in range(3):
        ring.put(np.zeros(3))
        held = ring.get()
        assert watch.look()["stuck"] == []
        del held
        clock.now += rings.STUCK_S


def test_another_ring_of_that_name_begins_anew(clock):
    name = next(names)
    watch = rings.watch(name)
    with ringbuf.RingBuffer(4, 4096, name=name) as ring:
        ring.put(1)
        watch.look()
    with ringbuf.RingBuffer(2, 4096, name=name):
        clock.now += 1
        frame = watch.look()
        assert frame["messages_per_s"] is None and frame["slots"] == 2


@pytest.mark.parametrize(
    "fill, drain, words",
    [(4, 0, "the consumers: the ring was full at 100 %"), (1, 1, "the producers: nothing was ready at 100 %")],
)
def test_it_says_who_holds_up_whom(fill, drain, words, ring, clock):
    watch = rings.watch(ring.name)
    for _ in range(4):
        while fill and ring.stats().ready:
            ring.get()
        for _ in range(fill):
            ring.put(1)
        for _ in range(drain):
            ring.get()
        clock.now += 1
        frame = watch.look()
    assert frame["bottleneck"].startswith(words)


def test_a_ring_in_which_nothing_moves_is_said_to(ring, clock):
    watch = rings.watch(ring.name)
    for _ in range(4):
        clock.now += 1
        frame = watch.look()
    assert frame["bottleneck"] == "nothing moves: no message was published lately"


def test_a_dead_ring_can_be_watched():
    with dead_ring(next(names)) as name:
        watch = rings.watch(name)
        assert watch.look()["alive"] is False
        assert "dead, of process" in shown(watch)[0] and watch.row().note == "dead"


def shown(watch):
    from ringbuf.cli.page import UNICODE, lines_of, plain

    return [plain(line) for line in lines_of(watch.page(), 80, UNICODE)]


# ---- a server


def test_a_server_is_seen_with_its_clients_and_their_rates():
    with ringbuf.Server(iter(range(10**9)), next(names)) as server, ringbuf.connect(server.name, label="me") as stream:
        loop = iter(stream)
        next(loop)
        watch = servers.watch(server.name)
        frame = watch.look()
        assert frame["batches_per_s"] is None and frame["clients"][0]["acknowledged_per_s"] is None
        for _ in range(20):
            next(loop)
        frame = watch.look()
        (client,) = frame["clients"]
        assert client["label"] == "me" and client["acknowledged_per_s"] > 0 and frame["batches_per_s"] > 0
        assert frame["bottleneck"]["text"] in shown(watch)[1]
    with pytest.raises(FileNotFoundError):
        watch.look()


def test_a_server_that_stops_answering_is_still_shown():
    name = next(names)
    with process(serve, name) as child:
        assert eventually(lambda: name in local.running())
        watch = servers.watch(name)
        assert watch.look()["answers"]
        os.kill(child.pid, signal.SIGSTOP)
        assert eventually(lambda: is_stopped(child.pid))
        frame = watch.look()
        assert (frame["answers"], frame["pid"]) == (False, child.pid)
        assert "stopped" in shown(watch)[1] and "stopped" in watch.row().note
        os.kill(child.pid, signal.SIGCONT)
        assert eventually(lambda: watch.look()["answers"])


def serve(name):
    ringbuf.Server(iter(range(10**9)), name).run()


# ---- without a terminal


def test_json_is_a_line_for_each_interval(ring, tmp_path):
    done = command("top", ring.name, "--json", "-n", "2", "--interval", "0.1", cwd=tmp_path)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr, len(lines)) == (0, "", 2)
    assert all(line["things"][0]["messages_per_s"] == 0 for line in lines) and lines[0]["at"] < lines[1]["at"]


def test_without_a_terminal_blocks_follow_one_another(ring, tmp_path):
    done = command("top", ring.name, "-n", "2", "--interval", "0.1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and "\x1b" not in done.stdout
    assert done.stdout.count(f"ring {ring.name}: alive") == 2


def test_nothing_of_that_name_is_a_failure(tmp_path):
    done = command("top", "nowhere", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("ringbuf top: nothing is named 'nowhere'")


def test_it_ends_when_what_it_watches_is_gone(tmp_path):
    ring = ringbuf.RingBuffer(4, 4096, name=next(names))
    line = [sys.executable, "-m", "ringbuf", "top", ring.name, "--interval", "0.1"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        ring.close()
        out, _ = process.communicate(timeout=50)
    assert process.returncode == 0 and out.endswith(f"{ring.name} is gone\n")


@pytest.mark.parametrize("sent, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["term", "int"])
def test_a_signal_ends_it(sent, code, ring, tmp_path):
    line = [sys.executable, "-m", "ringbuf", "top", ring.name, "--json", "--interval", "0.1"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.send_signal(sent)
        assert process.wait(50) == code


# ---- on a terminal


class Terminal:
    """What a command on a terminal says, read all the time."""

    def __init__(self, arguments, folder, columns, lines, environment):
        self.own, its = pty.openpty()
        self.size(columns, lines)
        self.before = termios.tcgetattr(self.own)
        self.said = ""
        self._changed = threading.Condition()
        line = [sys.executable, "-m", "ringbuf", *arguments]
        environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment}
        self.process = subprocess.Popen(
            line, cwd=folder, stdin=its, stdout=its, stderr=its, env=environment, preexec_fn=lambda: take_terminal(its)
        )
        os.close(its)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        with contextlib.suppress(OSError):  # it ends
            while data := os.read(self.own, 65536):
                with self._changed:
                    self.said += data.decode()
                    self._changed.notify_all()

    def size(self, columns, lines):
        fcntl.ioctl(self.own, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def shows(self, pattern, after=0):
        with self._changed:
            found = self._changed.wait_for(lambda: re.search(pattern, self.said[after:]), 50)
        assert found, self.said[-2000:]
        return found

    def press(self, key):
        os.write(self.own, key)

    def ends(self):
        code = self.process.wait(50)
        self._thread.join(50)
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(50)
        self._thread.join(50)
        os.close(self.own)


def take_terminal(descriptor):
    os.setsid()
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


@pytest.fixture
def on_terminal(tmp_path):
    """on_terminal(*arguments, columns=80, lines=24, rich=True) starts a command on one."""
    with contextlib.ExitStack() as open_ones:

        def start(*arguments, columns=80, lines=24, rich=True, **environment):
            if not rich:
                (tmp_path / "rich.py").write_text("raise ImportError('not installed')\n")
                environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
            terminal = Terminal(arguments, tmp_path, columns, lines, environment)
            open_ones.callback(terminal.close)
            return terminal

        yield start


ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
OTHER_SCREEN, FIRST_SCREEN = r"\x1b\[\?1049h", r"\x1b\[\?1049l"


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "plain"])
def test_a_screen_is_drawn_again_and_again_until_q(rich, ring, on_terminal):
    if rich:
        pytest.importorskip("rich", reason="rich is not installed")
    terminal = on_terminal("top", ring.name, "--interval", "0.1", rich=rich)
    terminal.shows(OTHER_SCREEN)
    terminal.shows(r"(?s)q ends.*q ends.*q ends")
    assert ("\x1b[1m" in terminal.said) == rich
    before = len(terminal.said)
    terminal.size(40, 20)
    terminal.shows("q ends", before)
    drawn = len(terminal.said)
    terminal.shows(r"(?s)q ends.*q ends", drawn)
    lines = ESCAPES.sub("", terminal.said[drawn:].replace("\x1b[H", "\n")).replace("\r", "\n").split("\n")
    assert max(map(len, lines)) <= 40
    terminal.press(b"q")
    terminal.shows(FIRST_SCREEN)
    terminal.shows(r"\x1b\[\?25h")  # the cursor is seen again
    assert terminal.ends() == 0


@pytest.mark.parametrize("how, code", [(b"\x03", 130), (signal.SIGTERM, 143), (b"Q", 0)], ids=["ctrl-c", "sigterm", "Q"])
def test_the_terminal_is_left_as_it_was(how, code, ring, on_terminal):
    terminal = on_terminal("top", ring.name, rich=code != 0)
    terminal.shows("q ends")
    assert not termios.tcgetattr(terminal.own)[3] & termios.ICANON
    terminal.press(how) if isinstance(how, bytes) else terminal.process.send_signal(how)
    terminal.shows(FIRST_SCREEN)
    assert terminal.ends() == code
    assert termios.tcgetattr(terminal.own) == terminal.before


def test_a_resize_is_seen_at_once(ring, on_terminal):
    terminal = on_terminal("top", ring.name, "--interval", "3600", rich=False)
    terminal.shows("q ends")
    terminal.press(b"x\x1a")  # no key of ours, and Ctrl-Z
    before = len(terminal.said)
    terminal.size(30, 10)  # which the kernel tells the process
    terminal.shows("q ends", before)
    terminal.press(b"q")
    assert terminal.ends() == 0


def test_q_ends_it_also_when_other_keys_were_pressed_before_it_looked():
    reading, writing = os.pipe()
    woken, wake = os.pipe()
    os.write(writing, b"x\x1aq")
    assert Keys(reading, woken).wait(0) == "quit"
    for descriptor in (reading, writing, woken, wake):
        os.close(descriptor)


def test_no_color_and_dumb_terminals_are_heard(ring, on_terminal):
    pytest.importorskip("rich", reason="rich is not installed")
    terminal = on_terminal("ls", NO_COLOR="1")
    assert terminal.ends() == 0 and ring.name in terminal.said and "\x1b[3" not in terminal.said
    terminal = on_terminal("ls")
    assert terminal.ends() == 0 and "\x1b[32m" in terminal.said
    terminal = on_terminal("top", ring.name, "-n", "1", "--interval", "0.1", TERM="dumb")
    assert terminal.ends() == 0 and "\x1b" not in terminal.said


def test_all_of_this_user_are_a_table(ring, on_terminal):
    with dead_ring(next(names)) as dead:
        terminal = on_terminal("top", "-n", "1", "--interval", "0.1", columns=60, rich=False)
        assert terminal.ends() == 0 and ring.name in terminal.said and re.search(rf"{dead} .* dead", terminal.said)


def test_a_ring_that_is_gone_leaves_the_terminal_in_order(on_terminal):
    name = next(names)
    with removed_in_the_end(name):
        ring = ringbuf.RingBuffer(4, 4096, name=name)
        terminal = on_terminal("top", name, "--interval", "0.1")
        terminal.shows("q ends")
        ring.close()
        assert terminal.ends() == 0
    terminal.shows(rf"{FIRST_SCREEN}(?s:.*){name} is gone")
