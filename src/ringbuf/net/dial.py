"""How a stream gets to a server elsewhere: by a relay, a process of its own that does all that concerns the network.

So a trainer has no thread, needs no GIL for it, and meets the same sockets and shared memory as on the server's machine.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from ringbuf.net import local
from ringbuf.net.address import parse_address

__all__ = ["Remote"]

SHARED = "ringbuf-share"  # the kind of name of a relay that several trainers share
RELAY_FD = 3  # the relay's end of the connection, in the relay
MARGIN_S = 5.0  # after `timeout`, for the relay to say what was in the way
END_S = 5.0  # for the relay to end
ERRORS = {"ConnectionError", "PermissionError", "OSError", "FileNotFoundError", "ValueError"}


class Remote:
    """Raises ValueError, ImportError; and FileNotFoundError, PermissionError, ValueError about the keys."""

    local = False

    def __init__(self, address: str, *, keys: Any = None, share: str | None = None, timeout: float | None = None):
        self.name = parse_address("the address", address).text
        if importlib.util.find_spec("zmq") is None:
            raise ImportError("clients on other machines need pyzmq: pip install 'ringloader[net]'")
        if keys is not None:
            from ringbuf.net.keys import load_client  # needs pyzmq

            load_client(keys)
        self._keys = None if keys is None else os.path.abspath(os.fspath(keys))
        self._share = None if share is None else local.server_name(share)
        self._timeout = timeout
        self._relay: int | None = None

    def __call__(self) -> socket.socket:
        """A connection with a relay that has one with the server. Raises ConnectionError, PermissionError."""
        self.close()
        sock = self._own_relay() if self._share is None else self._shared_relay()
        try:
            self._wait_for_connection(sock)
        except BaseException:
            sock.close()
            self.close()
            raise
        return sock

    def _own_relay(self) -> socket.socket:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._relay = _spawn("relay", its.fileno(), {"fd": RELAY_FD, **self._options})
        return mine

    def _shared_relay(self) -> socket.socket:
        """That of another trainer, or a new one, which goes on for as long as anybody uses it."""
        until = None if self._timeout is None else time.monotonic() + self._timeout + MARGIN_S
        while True:
            with contextlib.suppress(FileNotFoundError):
                return local.connect(self._share, SHARED)
            if until is not None and time.monotonic() > until:
                raise ConnectionError(f"the relay with the shared name {self._share!r} did not come up")
            os.waitpid(_spawn("share", None, {"name": self._share, **self._options}), 0)

    @property
    def _options(self) -> dict:
        return {"address": self.name, "keys": self._keys, "timeout": self._timeout}

    def close(self) -> None:
        """Once its connection is closed, a relay ends; see that it does. Idempotent."""
        pid, self._relay = self._relay, None
        if pid is not None:
            _bury(pid)

    def _wait_for_connection(self, sock: socket.socket) -> None:
        sock.settimeout(None if self._timeout is None else self._timeout + MARGIN_S)
        try:
            said = sock.recv(1 << 16)
        except TimeoutError:
            raise ConnectionError(f"the relay for {self.name} said nothing in {self._timeout:g} s") from None
        sock.settimeout(None)
        if not said:
            raise ConnectionError(f"the relay for {self.name} ended before it was connected; what it wrote says why")
        answer = json.loads(said)
        address = answer.pop("address", self.name)
        if address != self.name:
            raise ValueError(
                f"share={self._share!r} is a download from {address}, not from {self.name}; choose another name"
            )
        if answer:
            kind = getattr(builtins, answer["kind"]) if answer["kind"] in ERRORS else ConnectionError
            raise kind(answer["text"])


def _spawn(module: str, fd: int | None, options: dict) -> int:
    """Its process id."""
    here = str(Path(__file__).parents[2])
    places = [here, *(place for place in sys.path if place and place != here)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONSAFEPATH": "1"}
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    if fd is not None:
        files.append((os.POSIX_SPAWN_DUP2, fd, RELAY_FD))
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", f"ringbuf.net.{module}", json.dumps(options)],
        environment,
        file_actions=files,
        setsid=True,  # Ctrl-C at the terminal is for the trainer
    )


def _ends(pidfd: int, until: float) -> bool:
    poll = select.poll()  # select() takes no descriptor above 1023, and a trainer may have that many
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))


def _bury(pid: int) -> None:
    until = time.monotonic() + END_S
    try:
        end = os.pidfd_open(pid)
    except OSError:
        end = None
    try:
        if end is not None and not _ends(end, until):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    finally:
        if end is not None:
            os.close(end)
