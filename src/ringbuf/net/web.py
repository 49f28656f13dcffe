"""The status page of a server, for browsers and Prometheus on this machine: reads only, and changes nothing.

Any page that a browser shows may have it ask here, so who asks is not trusted: a request has to name this machine, since a
stranger's name could be made to mean it; it has to be short and to come soon; and an answer is for no scripts but our own.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import ipaddress
import json
import re
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ringbuf.net.history import History

__all__ = ["Web", "loopback_address"]

REQUEST_BYTES = 8 << 10
REQUEST_S = 5.0  # for a request to come whole
ANSWER_S = 10.0  # between two bits of an answer that are taken
MOST_CONNECTIONS = 32
JOIN_S = 2.0


def loopback_address(text: str) -> tuple[str, int]:
    """The host and port in "127.0.0.1:8265", "localhost:8265" or "[::1]:8265". Raises ValueError for others than this machine."""
    found = re.fullmatch(r"(?:\[([^\]]*)\]|([^:\[\]]+)):(\d{1,5})", text) if isinstance(text, str) else None
    if found is None or int(found[3]) > 65535:
        raise ValueError(f"http should be HOST:PORT, such as '127.0.0.1:8265'; got {text!r}")
    host = found[1] or found[2]
    if not _is_loopback(host):
        raise ValueError(
            f"http={text!r} is open to other machines, and the status page asks nobody who he is; use 127.0.0.1:{found[3]}, "
            f"and from elsewhere `ssh -L {found[3]}:127.0.0.1:{found[3]} HOST`"
        )
    return ("127.0.0.1" if host == "localhost" else host), int(found[3])


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Web:
    """Answers requests, in threads of its own, from the last sample of a history.

    port: 0 for any that is free.
    url: where it is.
    Raises OSError where the address cannot be had.
    """

    def __init__(self, host: str, port: int, history: History):
        self._server = _Server(host, port, history)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="ringbuf-web", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Idempotent."""
        self._server.shutdown()
        self._thread.join(JOIN_S)
        self._server.server_close()
        self._server.hang_up()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, history: History):
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.site = _Site(history)
        self._open: dict[socket.socket, threading.Thread | None] = {}  # oldest first
        self._lock = threading.Lock()
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise OSError(error.errno, f"the status page cannot be at {host}:{port}: {error.strerror}") from None

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            while len(self._open) >= MOST_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                _shut(oldest)  # which ends its thread
            self._open[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be had
            with self._lock:
                self._open.pop(request, None)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if request in self._open:
                self._open[request] = threading.current_thread()
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # who went away in the midst of it is nobody's concern

    def hang_up(self) -> None:
        """End all connections that are still open."""
        with self._lock:
            left = dict(self._open)
            for request in left:
                _shut(request)
        until = time.monotonic() + JOIN_S
        for thread in left.values():
            if thread is not None:
                thread.join(max(0.0, until - time.monotonic()))


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is closed already


class _Handler(http.server.BaseHTTPRequestHandler):
    """One request, one answer, and the connection ends."""

    server: _Server

    def handle(self) -> None:
        head = self._receive()
        if head is None:
            return
        self.rfile.close()
        self.rfile = io.BytesIO(head)
        self.connection.settimeout(ANSWER_S)
        self.handle_one_request()

    def _receive(self) -> bytes | None:
        """A request up to the blank line. None where it does not come, or takes too long or too much room."""
        until = time.monotonic() + REQUEST_S
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            left_s = until - time.monotonic()
            if left_s <= 0 or len(head) > REQUEST_BYTES:
                return None
            self.connection.settimeout(left_s)
            try:
                more = self.connection.recv(4096)
            except OSError:
                return None
            if not more:
                return None
            head += more
        return head

    def do_GET(self) -> None:
        self._answer(*self._find())

    do_HEAD = do_GET

    def _find(self) -> tuple[int, str, bytes]:
        host = self.headers.get_all("Host", [])
        if len(host) != 1 or not _names_us(host[0]):
            names = ", ".join(host)[:80]
            text = f"the status page is asked for by a loopback address, not as {names!r}"
            return 421, TEXT, f"{text}\n".encode()
        try:
            target = urlsplit(self.path)
        except ValueError:
            return 400, TEXT, b"this is no path\n"
        route = self.server.site.routes.get(target.path)
        if route is None:
            return 404, TEXT, b"here are: /  /status.json  /metrics\n"
        return route(parse_qs(target.query), self.headers.get("Accept", ""))

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def end_headers(self) -> None:
        for name, value in self.server.site.headers.items():
            self.send_header(name, value)
        super().end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class finds wrong with a request, without its page of HTML."""
        if code == 501:  # a method that it has no do_... for
            code, message = 405, "only GET and HEAD are answered here"
        self.close_connection = True
        self.request_version = self.request_version or "HTTP/1.0"
        if self.request_version == "HTTP/0.9":  # its answer would have no headers
            return
        body = f"{message or self.responses.get(code, ('?',))[0]}\n".encode("utf-8", "replace")
        self.send_response(code, "Method Not Allowed" if code == 405 else None)
        if code == 405:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Type", TEXT)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "ringbuf"

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


TEXT = "text/plain; charset=utf-8"


def _names_us(host: str) -> bool:
    """Whether a Host header names this machine. The port is not looked at: through a tunnel it may be another one."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]/@]+))(?::\d{1,5})?", host.strip())
    return found is not None and _is_loopback(found[1] or found[2])


class _Site:
    """What there is to see."""

    def __init__(self, history: History):
        self._history = history
        self._page = resources.files("ringbuf.net").joinpath("status.html").read_bytes()
        self.headers = _headers(self._page.decode())
        self.routes: dict[str, Callable[[dict[str, list[str]], str], tuple[int, str, bytes]]] = {
            "/": self._show_page,
            "/status.json": self._show_status,
            "/metrics": self._show_metrics,
        }

    def _show_page(self, query: dict[str, list[str]], accept: str) -> tuple[int, str, bytes]:
        return 200, "text/html; charset=utf-8", self._page

    def _show_status(self, query: dict[str, list[str]], accept: str) -> tuple[int, str, bytes]:
        after = query.get("after", ["0"])[-1]
        if not re.fullmatch(r"\d{1,15}", after, re.ASCII):
            return 400, TEXT, b"after should be the number of a sample\n"
        report = {**self._history.report(), "history": self._history.series(int(after))}
        return 200, "application/json", _dumps(report).encode()

    def _show_metrics(self, query: dict[str, list[str]], accept: str) -> tuple[int, str, bytes]:
        try:
            from ringbuf.net.metrics import render
        except ImportError:
            return 501, TEXT, b"metrics need the package prometheus_client: pip install 'ringloader[metrics]'\n"
        body, content_type = render(self._history.picture, accept)
        return 200, content_type, body


def _dumps(value: Any, depth: int = 3) -> str:
    """As json.dumps(), but in pieces, between which the server's thread can run."""
    if depth and isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_dumps(child, depth - 1)}" for key, child in value.items()) + "}"
    return json.dumps(value, separators=(",", ":"))


def _headers(page: str) -> dict[str, str]:
    """Of every answer. The page's own script and style may run, known by their hashes; nothing else, and from nowhere else."""

    def hashes(tag: str) -> str:
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts)

    policy = (
        f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "Connection": "close",
    }
