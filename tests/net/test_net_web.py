"""What a server answers over HTTP, to those who ask rightly and to the others."""

import itertools
import json
import os
import socket
import sys
import threading

import pytest
from processes import eventually

import ringbuf
from ringbuf.net import web

names = (f"web-{os.getpid()}-{number}" for number in itertools.count())


@pytest.fixture
def server():
    with ringbuf.Server([1.0] * 5, next(names), http="127.0.0.1:0") as server:
        yield server


def port_of(server):
    return int(server.http_address.rpartition(":")[2])


def dial(server):
    return socket.create_connection(("127.0.0.1", port_of(server)), timeout=20)


def everything(sock):
    """All that comes until the connection ends, however it ends."""
    answer = b""
    try:
        while more := sock.recv(65536):
            answer += more
    except ConnectionResetError:
        pass
    return answer


def exchange(server, data):
    with dial(server) as sock:
        sock.sendall(data)
        return everything(sock)


def ask(server, path="/", method="GET", headers=(("Host", "127.0.0.1"),)):
    """(status, headers, body) of one request."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    head, _, body = exchange(server, "\r\n".join([*lines, "", ""]).encode()).partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in rest), body


# ---- what there is


def test_the_page_is_there(server):
    status, headers, body = ask(server)
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert body.startswith(b"<!doctype html>") and int(headers["Content-Length"]) == len(body)


def test_the_page_names_no_other_host(server):
    assert b"http://www.w3.org/2000/svg" in ask(server)[2]  # a name, which nobody asks
    assert ask(server)[2].replace(b"http://www.w3.org/2000/svg", b"").count(b"//www") == 0
    assert b"https:" not in ask(server)[2] and b"@import" not in ask(server)[2]


def test_the_status_is_that_of_stats(server):
    with ringbuf.connect(server.name, label="me") as stream:
        next(iter(stream))
        assert eventually(lambda: server.history.picture["connected"] == 1)
        status, headers, body = ask(server, "/status.json")
    told = json.loads(body)
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert {key: told[key] for key in ("name", "mode", "pid", "epochs", "length")} == {
        "name": server.name,
        "mode": "split",
        "pid": os.getpid(),
        "epochs": None,
        "length": 5,
    }
    assert [client["label"] for client in told["clients"]] == ["me"]
    assert told["bottleneck"]["text"] and told["history"].keys() >= {"numbers", "room", "waiting", "bytes_per_s"}
    assert set(server.stats()) <= set(told)


def test_a_head_request_gets_the_headers_alone(server):
    status, headers, body = ask(server, method="HEAD")
    assert status == 200 and body == b"" and int(headers["Content-Length"]) > 1000


def test_only_what_is_new_is_sent_to_who_has_the_rest(server):
    assert eventually(lambda: server.history.series()["numbers"])
    newest = json.loads(ask(server, "/status.json")[2])["history"]["numbers"][-1]
    later = json.loads(ask(server, f"/status.json?after={newest}")[2])["history"]["numbers"]
    assert all(number > newest for number in later)


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 40, "%00"])
def test_a_sample_that_is_no_number_is_refused(server, after):
    assert ask(server, f"/status.json?after={after}")[0] == 400


def test_metrics_without_the_package_are_refused_in_words(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "ringbuf.net.metrics", raising=False)
    status, _, body = ask(server, "/metrics")
    assert status == 501 and b"pip install 'ringloader[metrics]'" in body


@pytest.mark.parametrize(
    "path", ["/x", "/status.json/", "/..", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/status.html", "/\\", "*"]
)
def test_nothing_else_is_there(server, path):
    status, headers, body = ask(server, path)
    assert status == 404 and b"root:" not in body and headers["Content-Type"].startswith("text/plain")


# ---- who may ask


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9999", "127.0.0.1:1", "127.8.8.8", "[::1]", "[::1]:8265", "LOCALHOST"]
)
def test_this_machine_may_be_named_in_any_way(server, host):
    assert ask(server, headers=[("Host", host)])[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.0.1", "0.0.0.0", "user@127.0.0.1",
     "127.0.0.1:x", "", "[::2]", "[::1", "2130706433", "127.1"],
)  # fmt: skip
def test_a_name_that_could_be_made_to_mean_this_machine_is_refused(server, host):
    status, _, body = ask(server, "/status.json", headers=[("Host", host)])
    assert status == 421 and b"clients" not in body


def test_a_request_names_one_host(server):
    assert ask(server, headers=[])[0] == 421
    assert ask(server, headers=[("Host", "127.0.0.1"), ("Host", "127.0.0.1")])[0] == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "X" * 50])
def test_other_methods_are_refused(server, method):
    status, headers, _ = ask(server, method=method)
    assert status == 405 and headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/", "/status.json", "/metrics", "/nothing"])
def test_every_answer_keeps_others_from_using_it(server, path):
    headers = ask(server, path)[1]
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "DENY"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin" and headers["Cache-Control"] == "no-store"
    assert not any(name.startswith("Access-Control") for name in headers)
    policy = dict(part.split(maxsplit=1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    assert policy["script-src"].startswith("'sha256-") and "unsafe" not in headers["Content-Security-Policy"]


def test_refusals_have_those_headers_too(server):
    assert "Content-Security-Policy" in ask(server, method="POST")[1]
    assert "Content-Security-Policy" in ask(server, headers=[("Host", "evil.example")])[1]


# ---- hostile requests


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1 more\r\nHost: localhost\r\n\r\n",
        b"GET // HTTP/x\r\n\r\n",
        b"GET /[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://[/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : localhost\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        bytes(range(256)) * 8 + b"\n\n",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_no_request_does_no_harm(server, data, capfd):
    answer = exchange(server, data)
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert ask(server)[0] == 200
    assert capfd.readouterr().err == ""


def test_a_request_that_does_not_end_is_dropped(server, monkeypatch):
    monkeypatch.setattr(web, "REQUEST_S", 300)  # it is for its length
    with dial(server) as sock:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(4096):  # 16 MB, more than buffers hold
                sock.sendall(b"GET / HTTP/1.1\r\nHost: " + b"x" * 4096)
        assert everything(sock) == b""
    assert ask(server)[0] == 200


def test_a_request_that_comes_too_slowly_is_dropped(server, monkeypatch):
    monkeypatch.setattr(web, "REQUEST_S", 0.1)
    with dial(server) as sock:
        sock.sendall(b"GET / HT")
        assert everything(sock) == b""  # ends by itself


def test_connections_that_say_nothing_keep_nobody_out(server):
    silent = [dial(server) for _ in range(3 * web.MOST_CONNECTIONS)]
    try:
        for sock in silent:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert [ask(server)[0] for _ in range(10)] == [200] * 10
        threads = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
        assert len(threads) <= web.MOST_CONNECTIONS + 10
        assert everything(silent[0]) == b""  # the oldest had to go
    finally:
        for sock in silent:
            sock.close()


def test_who_goes_away_in_the_midst_leaves_no_trace(server, capfd):
    for _ in range(20):
        with dial(server) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # an end by a reset
            sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert ask(server)[0] == 200 and capfd.readouterr().err == ""


def test_a_page_that_waits_holds_up_no_client(server, monkeypatch):
    waits, go_on = threading.Event(), threading.Event()

    def report():
        waits.set()
        assert go_on.wait(30)
        return {}

    monkeypatch.setattr(server.history, "report", report)
    asking = threading.Thread(target=ask, args=(server, "/status.json"))
    asking.start()
    try:
        assert waits.wait(30)
        with ringbuf.connect(server.name) as stream:
            assert [sum(1 for _ in stream) for _ in range(3)] == [5, 5, 5]
    finally:
        go_on.set()
        asking.join()


# ---- where it is


@pytest.mark.parametrize("address", ["0.0.0.0:8265", "192.168.1.2:80", "example.org:80", "[::]:80", "8.8.8.8:1"])
def test_an_address_that_is_open_to_others_is_refused(address):
    with pytest.raises(ValueError, match=r"open to other machines.*ssh -L"):
        ringbuf.Server([1], "x", http=address)


@pytest.mark.parametrize(
    "address", ["", "8265", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:65536", "::1:80", "http://127.0.0.1:80", 80]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValueError, match="HOST:PORT"):
        ringbuf.Server([1], "x", http=address)


def test_a_port_that_is_taken_is_told_and_nothing_stays_open(server):
    other = ringbuf.Server([1], next(names), http=f"127.0.0.1:{port_of(server)}")
    with pytest.raises(OSError, match=f"the status page cannot be at 127.0.0.1:{port_of(server)}"):
        other.start()
    with ringbuf.Server([1], other.name):  # its name is free
        pass


def test_the_page_ends_with_its_server(monkeypatch):
    monkeypatch.setattr(web, "REQUEST_S", 300)
    with ringbuf.Server([1], next(names), http="localhost:0") as server:
        port = port_of(server)
        idle = dial(server)
        assert ask(server)[0] == 200  # by now the other one is let in, too
    with idle:
        assert everything(idle) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=20)
    assert not any("ringbuf-web" in thread.name for thread in threading.enumerate())


def test_without_http_nothing_listens():
    with ringbuf.Server([1], next(names)) as server:
        assert server.http_address is None
