"""Where a server may listen, and what is no address."""

import contextlib
import os
import socket

import numpy as np
import pytest
from processes import script

import ringbuf

SOURCE = [np.zeros(3)]


EXPOSED = "0.0.0.0 [::] * localhost lo eth0 example.com 192.168.0.1 10.0.0.1 [fe80::1] 2130706433 127.1"
NONSENSE = "127.0.0.1:5557 udp://127.0.0.1:1 tcp://127.0.0.1 tcp://127.0.0.1:65536 tcp://:5 tcp://127.0.0.1:5;127.0.0.1:6 ipc:///x"


@pytest.mark.parametrize("host", EXPOSED.split())
def test_without_keys_only_loopback_is_listened_at(host):
    with pytest.raises(ValueError, match=r"ringbuf keygen.*127\.0\.0\.1:5557"):
        ringbuf.Server(SOURCE, bind=f"tcp://{host}:5557")


@pytest.mark.parametrize("bind", ["", *NONSENSE.split()])
def test_what_is_no_address_is_refused(bind):
    with pytest.raises(ValueError, match=r"bind should be an address such as 'tcp://127\.0\.0\.1:5557', got "):
        ringbuf.Server(SOURCE, bind=bind)


def test_other_arguments_are_checked_before_anything_starts():
    with pytest.raises(TypeError, match="bind should be an address"):
        ringbuf.Server(SOURCE, bind=5557)
    with pytest.raises(ValueError, match="compress must be one of 'lz4', 'zstd', or None; got 'gzip'"):
        ringbuf.Server(SOURCE, bind="tcp://127.0.0.1:0", compress="gzip")
    with pytest.raises(ValueError, match="grace must be a number of seconds"):
        ringbuf.Server(SOURCE, bind="tcp://127.0.0.1:0", grace=None)
    with pytest.raises(FileNotFoundError, match="ringbuf keygen"):
        ringbuf.Server(SOURCE, bind="tcp://127.0.0.1:0", keys="/nonexistent")


def test_only_the_bound_address_listens(serve):
    """Every port that this process listens at anew is that one, and on loopback alone."""
    before = listening()
    server = serve(SOURCE)
    port = int(server.address.rpartition(":")[2])
    assert listening() - before == {("0100007F", port)}


def listening():
    """Of this process: there may be others."""
    ours = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            ours.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    found = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/self/net/{name}") as lines:
            for fields in (line.split() for line in list(lines)[1:]):
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in ours:
                    host, port = fields[1].split(":")
                    found.add((host, int(port, 16)))
    return found


def test_ipv6_loopback(serve, connect):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    server = serve(SOURCE, bind="tcp://[::1]:0", epochs=1)
    assert [len(batch) for batch in connect(server.address)] == [3]


def test_an_address_in_use_is_named(serve):
    address = serve(SOURCE).address
    with pytest.raises(OSError, match=f"cannot listen at {address}"):
        ringbuf.Server(SOURCE, bind=address).start()


def test_an_unreachable_host_is_a_connection_error_within_the_timeout():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionError, match=r"could not be reached: the connection was refused.*does it run"):
            ringbuf.connect(f"tcp://127.0.0.1:{free.getsockname()[1]}", timeout=0.5)
    with pytest.raises(ConnectionError, match="the host is not known"):
        ringbuf.connect("tcp://no-such-host.invalid:5557", timeout=0.5)


def test_who_answers_but_is_no_server_is_named_so():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(ConnectionError, match="could not be reached"):
            ringbuf.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}", timeout=0.5)


def test_keys_are_for_addresses():
    with pytest.raises(ValueError, match="for addresses"):
        ringbuf.connect("train", keys="/tmp")


def test_without_pyzmq_the_extra_is_named():
    code = """
import sys
sys.modules["zmq"] = None
import ringbuf
for what in (lambda: ringbuf.Server([1], bind="tcp://127.0.0.1:0"), lambda: ringbuf.connect("tcp://127.0.0.1:1")):
    try:
        what()
    except ImportError as error:
        print(error)
"""
    done = script(code)
    assert done.stdout.count("pip install 'ringloader[net]'") == 2, done.stderr
