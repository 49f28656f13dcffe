"""A real network between server and client, in namespaces of its own: cut, slow, and lossy."""

import contextlib
import os
import shutil
import subprocess
import time

import pytest

from ringbuf.net import keys

SERVER = """
import sys, numpy as np, ringbuf
count = int(sys.argv[3])
server = ringbuf.Server(lambda: (np.full(100_000, index) for index in range(count)), bind=sys.argv[1], keys=sys.argv[2], epochs=1)
server.start()
print(server.address, flush=True)
sys.stdin.readline()
print(server.stats()["served"], flush=True)
server.stop()
"""

CLIENT = """
import sys, ringbuf
with ringbuf.connect(sys.argv[1], keys=sys.argv[2], timeout=30) as stream:
    for batch in stream:
        assert (batch == batch[0]).all()
        print(int(batch[0]), flush=True)
print("end", flush=True)
"""

OUTER, INNER = "10.213.7.1", "10.213.7.2"


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def network():
    """Two namespaces with a cable between them: (server's, client's), whose ends are called "cable"."""
    if shutil.which("ip") is None:
        pytest.skip("needs the program ip (Debian's iproute2)")
    here, there = f"rb-s-{os.getpid()}", f"rb-c-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        try:
            for name in (here, there):
                ip("netns", "add", name)
                stack.callback(subprocess.run, ["ip", "netns", "del", name], capture_output=True)
            ip("-n", here, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", there)
            for name, address in ((here, OUTER), (there, INNER)):
                ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
                ip("-n", name, "link", "set", "cable", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        yield here, there


@pytest.fixture
def run_in(program, tmp_path):
    keys.generate(tmp_path / "keys")

    def run(namespace, text, address, *arguments):
        return program(text, address, tmp_path / "keys", *arguments, wrapper=["ip", "netns", "exec", namespace])

    return run


def numbers_of(client):
    got = []
    while (line := client.line()) != "end":
        got.append(int(line))
    return got


def finish(server, client):
    server.say()
    served = int(server.line())
    assert client.end() == (0, "") and server.end() == (0, "")
    return served


def test_a_cable_that_is_out_for_five_seconds(network, run_in):
    here, there = network
    server = run_in(here, SERVER, f"tcp://{OUTER}:0", 3000)
    client = run_in(there, CLIENT, server.line())
    got = [int(client.line()) for _ in range(20)]
    ip("-n", there, "link", "set", "cable", "down")
    time.sleep(5)  # the fault itself
    ip("-n", there, "link", "set", "cable", "up")
    got += numbers_of(client)
    assert got == list(range(3000))
    assert finish(server, client) == 1


@pytest.mark.thorough
def test_a_cable_that_is_out_for_longer_than_a_connection_lives(network, run_in):
    here, there = network
    server = run_in(here, SERVER, f"tcp://{OUTER}:0", 3000)
    client = run_in(there, CLIENT, server.line())
    got = [int(client.line()) for _ in range(20)]
    ip("-n", there, "link", "set", "cable", "down")
    time.sleep(22)  # the fault itself
    ip("-n", there, "link", "set", "cable", "up")
    got += numbers_of(client)
    assert got == list(range(3000))
    assert finish(server, client) == 1


def test_a_network_with_200_ms_of_delay_and_5_percent_loss(network, run_in):
    here, there = network
    if shutil.which("tc") is None:
        pytest.skip("needs the program tc (Debian's iproute2)")
    for name, words in ((there, ["delay", "100ms", "loss", "2.5%"]), (here, ["delay", "100ms", "loss", "2.5%"])):
        command = ["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "cable", "root", "netem", *words]
        added = subprocess.run(command, capture_output=True, text=True)
        if added.returncode:
            pytest.skip(f"no netem here: {added.stderr.strip()}")
    server = run_in(here, SERVER, f"tcp://{OUTER}:0", 12)
    client = run_in(there, CLIENT, server.line())
    assert numbers_of(client) == list(range(12))
    assert finish(server, client) == 1


def test_a_scan_of_all_ports_finds_the_bound_one_alone(network, run_in, program):
    """Of the addresses that the namespace has, all ports: none but that one is open."""
    here, there = network
    server = run_in(here, SERVER, f"tcp://{OUTER}:0", 5)
    port = int(server.line().rpartition(":")[2])
    scan = """
import errno, select, socket, sys
host, found = sys.argv[1], []
for first in range(1, 65536, 500):
    socks = {}
    for port in range(first, min(first + 500, 65536)):
        sock = socket.socket()
        sock.setblocking(False)
        if sock.connect_ex((host, port)) == 0:
            found.append(port)
        socks[port] = sock
    waiting = list(socks.values())
    while waiting:
        _, ready, _ = select.select([], waiting, [], 10)
        if not ready:
            break
        waiting = [sock for sock in waiting if sock not in ready]
    for port, sock in socks.items():
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and port not in found:
            try:
                if sock.getpeername() != sock.getsockname():  # its own port, by chance
                    found.append(port)
            except OSError:
                pass
        sock.close()
print(found, flush=True)
"""
    scanner = program(scan, OUTER, wrapper=["ip", "netns", "exec", there])
    assert scanner.line() == f"[{port}]"
    local = program(scan, "127.0.0.1", wrapper=["ip", "netns", "exec", here])
    assert local.line() == "[]"
    client = run_in(there, CLIENT, f"tcp://{OUTER}:{port}")
    assert numbers_of(client) == list(range(5))
    finish(server, client)
