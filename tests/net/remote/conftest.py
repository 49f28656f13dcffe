"""Servers and clients over real TCP, and no pickles anywhere."""

import contextlib
import os
import pickle

import pytest
from far import Program, Proxy

pytest.importorskip("zmq")

import ringbuf


@pytest.fixture(autouse=True)
def no_pickles(monkeypatch):
    """Nobody here has reason to read one."""

    def canary(*args, **kwargs):
        raise AssertionError("a pickle was read")

    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, canary)


CANARY = """
import sys
if any(part in ("ringbuf.net.relay", "ringbuf.net.share") for part in sys.orig_argv):
    import os, pickle
    def canary(*args, **kwargs):
        open({sung!r}, "a").write(" ".join(sys.orig_argv) + "\\n")
        os._exit(97)
    open({hatched!r}, "a").close()
    pickle.loads = pickle.load = pickle.Unpickler = canary
"""


@pytest.fixture(autouse=True)
def no_pickles_in_relays(monkeypatch, tmp_path_factory):
    """Neither has a relay, which is a process of its own. Yields the file that is there once one has started."""
    folder = tmp_path_factory.mktemp("canary")
    sung, hatched = folder / "sung", folder / "hatched"
    (folder / "sitecustomize.py").write_text(CANARY.format(sung=str(sung), hatched=str(hatched)))
    monkeypatch.syspath_prepend(folder)  # which relays get from us
    yield hatched
    assert not sung.exists(), sung.read_text()


@pytest.fixture
def serve():
    """serve(source, ...) starts a server on loopback, in this process."""
    servers = []

    def start(source, **options):
        options.setdefault("bind", "tcp://127.0.0.1:0")
        server = ringbuf.Server(source, **options)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def connect():
    """ringbuf.connect(), and close() at the end."""
    with contextlib.ExitStack() as streams:
        yield lambda *args, **options: streams.enter_context(ringbuf.connect(*args, **options))


@pytest.fixture
def program():
    """program(text, *arguments) runs Python in a process of its own: .line() reads what it prints, .kill() kills it."""
    started = []

    def start(text, *arguments, **options):
        child = Program(text, *arguments, **options)
        started.append(child)
        return child

    yield start
    for child in started:
        child.end()


SERVER = """
import sys, ringbuf
exec(sys.argv[1])
server = ringbuf.Server(source, **eval(sys.argv[2]))
server.start()
print(server.address, flush=True)
sys.stdin.readline()
server.stop()
"""


@pytest.fixture
def server_program(program):
    """server_program(text, ...) serves the `source` that the text defines in a process of its own. Returns it and its address."""

    def start(text, **options):
        options.setdefault("bind", "tcp://127.0.0.1:0")
        child = program(SERVER, text, repr(options))
        return child, child.line()

    return start


@pytest.fixture
def proxy():
    """proxy(address) gives a Proxy before that."""
    proxies = []

    def start(address):
        made = Proxy(int(address.rpartition(":")[2]))
        proxies.append(made)
        return made

    yield start
    for made in proxies:
        made.close()


@pytest.fixture
def children():
    """children(pid) gives the process ids of a process's relays."""

    def relays(pid):
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                stat = open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()
                command = open(f"/proc/{entry}/cmdline").read()
                if int(stat[1]) == pid and "ringbuf.net.relay" in command and stat[0] != "Z":
                    found.append(int(entry))
        return found

    return relays
