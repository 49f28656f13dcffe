"""Programs that are started and killed, and a proxy that cuts and listens in."""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque

from processes import DEADLINE_S


class Program:
    """Python code in a process of its own, started by the words of `wrapper`."""

    def __init__(self, text, *arguments, wrapper=(), **options):
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, "-c", text, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(place for place in sys.path if place)},
            **options,
        )
        self.pid = self.process.pid

    def line(self):
        read = self.process.stdout.readline()
        assert read, f"the program ended: {self.process.stderr.read()}"
        return read.strip()

    def say(self, line=""):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def end(self):
        """Its exit code, and what it wrote to stderr."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            self.process.stdin.close()
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        errors = "" if self.process.stderr.closed else self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        return code, errors


class Proxy:
    """Passes on TCP, until it does not.

    address: where it listens. seen: all bytes that passed, both ways. connections: how many there were.
    """

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen = bytearray()
        self.connections = 0
        self.passing = True  # whether bytes are passed on
        self.open = True  # whether new connections are
        self.delay_s = lambda: 0.0  # for how long the bytes that were just read lie here
        self._lying = deque()
        self._pairs = {}
        self._lock = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self):
        """End all connections, and let no new ones through."""
        with self._lock:
            self.open = False
            self._drop_all()

    def drop(self):
        """End all connections; new ones are let through."""
        with self._lock:
            self._drop_all()

    def restore(self):
        with self._lock:
            self.open = self.passing = True

    def close(self):
        self._over = True
        self._wake.send(b"x")
        self._thread.join()
        self._drop_all()
        self._selector.close()
        for sock in (self._listener, self._wake, self._woken):
            sock.close()

    def _drop_all(self):
        for sock in list(self._pairs):
            self._selector.unregister(sock)
            sock.close()
        self._pairs.clear()

    def _run(self):
        while not self._over:
            for key, _ in self._selector.select(0.005 if self._lying else 0.02):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj in self._pairs and self.passing:
                        self._pass(key.fileobj)
            with self._lock:
                self._pass_on_what_is_due()
            if not self.passing:
                time.sleep(0.02)  # what is not passed on stays readable

    def _pass_on_what_is_due(self):
        while self._lying and self._lying[0][0] <= time.monotonic():
            _, sock, data = self._lying.popleft()
            with contextlib.suppress(OSError):
                sock.sendall(data)

    def _accept(self):
        near, _ = self._listener.accept()
        if not self.open:
            near.close()
            return
        self.connections += 1
        try:
            far = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            self._pairs[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass(self, sock):
        other = self._pairs[sock]
        try:
            data = sock.recv(1 << 20)
            if data:
                self.seen += data
                delay_s = self.delay_s()
                if delay_s or self._lying:
                    due = time.monotonic() + delay_s
                    self._lying.append((max(due, self._lying[-1][0]) if self._lying else due, other, data))
                else:
                    other.sendall(data)
                return
        except OSError:
            pass
        for end in (sock, other):
            del self._pairs[end]
            self._selector.unregister(end)
            end.close()
