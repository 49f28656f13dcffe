"""`ringbuf serve` at work: what it serves, what it says, and how it ends."""

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
import urllib.request

import pytest
from commands import command, ends, names, serving, write_sources
from processes import eventually

import ringbuf
from ringbuf.cli.reporter import status_line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    write_sources(folder)
    return folder


def batches_of(stream):
    return [batch.tolist() for batch in stream]


# ---- what it serves


def test_it_serves_what_it_was_asked_for_and_ends_with_the_last_epoch(folder):
    with serving("sources:batches", "--epochs", "2", cwd=folder) as (process, said):
        with ringbuf.connect(said["name"]) as stream:
            epochs = [batches_of(stream) for _ in range(2)]
        code, out, err = ends(process)
    assert epochs == [[[i, i, i] for i in range(4)]] * 2
    assert (code, err) == (0, "")
    last = json.loads(out.splitlines()[-1])
    assert last["event"] == "finished" and last["text"] == "served 2 epochs, 8 batches; 1 client in all"


def test_the_first_line_says_how_to_connect(folder):
    with serving("sources:batches", "--mode", "broadcast", "--http", "127.0.0.1:0", cwd=folder) as (process, said):
        assert said["event"] == "serving" and said["mode"] == "broadcast" and said["pid"] == process.pid
        (line,) = said["connect"]
        with eval(line, {"ringbuf": ringbuf}) as stream:
            assert stream.mode == "broadcast"
        with urllib.request.urlopen(said["http"] + "/status.json", timeout=20) as answer:
            assert json.load(answer)["name"] == said["name"]


def test_a_loader_gets_its_workers(folder):
    with serving("sources:make_loader", "--workers", "2", "--epochs", "1", cwd=folder) as (process, said):
        with ringbuf.connect(said["name"]) as stream:
            assert sorted(batches_of(stream)) == [[[0, 0], [1, 1], [2, 2], [3, 3]], [[4, 4], [5, 5], [6, 6], [7, 7]]]
        assert ends(process)[0] == 0


def test_it_begins_when_so_many_clients_are_there(folder):
    with serving("sources:batches", "--mode", "broadcast", "--clients", "2", "--epochs", "1", cwd=folder) as (
        process,
        said,
    ):
        with ringbuf.connect(said["name"]) as one, ringbuf.connect(said["name"]) as other:
            first, second = iter(one), iter(other)
            assert [next(first).tolist(), next(second).tolist()] == [[0, 0, 0]] * 2
            assert [len(list(first)), len(list(second))] == [3, 3]
        assert ends(process)[0] == 0


def test_json_objects_come_one_a_line(folder):
    with serving("sources:endless", cwd=folder) as (process, said), ringbuf.connect(said["name"], label="me") as stream:
        next(iter(stream))
        status = json.loads(process.stdout.readline())
        assert status["event"] == "status" and status["bottleneck"]["text"] and "batches_per_s" in status


# ---- how it ends


def test_what_the_source_raises_is_told_and_the_exit_code_is_1(folder):
    with serving("sources:breaks", "--ahead", "1", cwd=folder) as (
        process,
        said,
    ):  # it goes on when a client has the first
        with ringbuf.connect(said["name"]) as stream, pytest.raises(ringbuf.SourceFailed, match="row 17"):
            list(stream)
        code, out, err = ends(process)
    first, blank, *trace = err.splitlines()
    assert code == 1 and blank == ""
    assert first == "ringbuf serve: the source raised LookupError: row 17 is broken, it is"
    assert trace[0].startswith("Traceback") and any("sources.py" in line for line in trace)
    event = json.loads(out.splitlines()[-1])
    assert (event["event"], event["kind"], event["text"]) == ("failed", "LookupError", "row 17 is broken,\nit is")


@pytest.mark.parametrize("target", ["sources:endless", "sources:make_loader", "sources:never"])
@pytest.mark.parametrize(
    "sent, code, event", [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")], ids=["int", "term"]
)
def test_a_signal_ends_it_with_one_line(target, sent, code, event, folder):
    workers = ["--workers", "2"] if target == "sources:make_loader" else []
    with serving(target, *workers, cwd=folder) as (process, said), ringbuf.connect(said["name"]) as stream:
        if target == "sources:never":
            assert eventually(lambda: ringbuf_status(said["name"])["doing"] == "source")
        else:
            next(iter(stream))
        os.killpg(process.pid, sent) if sent == signal.SIGINT else process.send_signal(sent)
        found, out, err = ends(process)
        assert (found, err) == (code, "")
        assert json.loads(out.splitlines()[-1])["event"] == event
        with pytest.raises(ringbuf.SessionLost):
            list(stream)


def ringbuf_status(name):
    from ringbuf.net.inquiry import status

    return status(name)


def test_a_signal_while_the_source_is_imported_ends_it_too(folder):
    fifo = folder / "started"
    os.mkfifo(fifo)
    (folder / "slow_import.py").write_text(f"import time\nopen({str(fifo)!r}, 'w').close()\ntime.sleep(3600)\n")
    line = [sys.executable, "-m", "ringbuf", "serve", "slow_import:x", "--name", next(names)]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        fifo.read_text()
        process.send_signal(signal.SIGINT)
        assert ends(process) == (130, "", "ringbuf: stopped by Ctrl-C\n")


def test_who_reads_may_go_away_and_serving_goes_on(folder):
    with serving("sources:breaks", "--ahead", "1", cwd=folder) as (process, said):
        process.stdout.close()
        process.stderr.close()
        with ringbuf.connect(said["name"]) as stream, pytest.raises(ringbuf.SourceFailed):
            list(stream)
        assert process.wait(50) == 1


# ---- what people read


def test_without_a_terminal_there_are_plain_lines(folder):
    name = next(names)
    line = [sys.executable, "-m", "ringbuf", "serve", "sources:batches", "--name", name, "--epochs", "1"]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with ringbuf.connect(name) as stream:
            assert len(list(stream)) == 4
        code, out, err = ends(process)
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        f"ringbuf serve: sources:batches, split, 1 epoch, process {process.pid}",
        f'  connect: ringbuf.connect("{name}")',
        "ringbuf serve: served 1 epoch, 4 batches; 1 client in all",
    ]


@contextlib.contextmanager
def on_a_terminal(folder, target, columns):
    """A server on a terminal: (name, read), where read(pattern) waits for what it says."""
    name, (own, its) = next(names), pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    line = [sys.executable, "-m", "ringbuf", "serve", target, "--name", name]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        line, cwd=folder, stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True
    ) as process:
        os.close(its)
        said = ""

        def read(pattern):
            nonlocal said
            while not (found := re.search(pattern, said)):
                said += os.read(own, 4096).decode()
            return found

        try:
            yield process, name, read
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # it ends
                while os.read(own, 4096):
                    pass
            os.close(own)
            process.wait(50)


def test_on_a_terminal_one_line_is_written_again_and_again(folder):
    with on_a_terminal(folder, "sources:endless", 100) as (_, name, read), ringbuf.connect(name, label="me") as stream:
        loop = iter(stream)
        next(loop)
        line = read(r"\n(epoch 0, batch \d+ \|[^\r\n]*)\r\x1b\[K(epoch 0, batch \d+ [^\r\n]*)")
        assert all(len(text) < 100 and "client me" in text for text in line.groups())


def test_the_first_batch_is_waited_for_in_words(folder):
    with on_a_terminal(folder, "sources:never", 40) as (_, _, read):
        line = read(r"\n(the source makes its first[^\r\n]*)\r")[1]
        assert len(line) < 40 and line.endswith("...")


REPORT = {
    "length": 500,
    "epochs": 10,
    "epoch": 3,
    "index": 120,
    "batches_per_s": 41.23,
    "bytes_per_s": 1.6e9,
    "connected": 3,
    "bottleneck": {"kind": "source", "text": "the source: clients waited 63 % of the last minute"},
}


def test_a_status_line_says_place_rate_clients_and_who_waits():
    assert status_line(REPORT) == (
        "epoch 3 of 10, batch 120/500 | 41.2 batches/s, 1.60 GB/s | 3 clients | "
        "the source: clients waited 63 % of the last minute"
    )


def test_a_status_line_is_never_wider_than_the_terminal():
    assert all(len(status_line(REPORT, columns)) < max(columns, 4) for columns in range(1, 140))


def test_keys_that_are_not_there_are_a_failure_in_one_line(folder):
    pytest.importorskip("zmq", reason="pyzmq is not installed")
    done = command("serve", "sources:batches", "--bind", "tcp://127.0.0.1:0", "--keys", "no-keys", cwd=folder)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "no-keys" in done.stderr
