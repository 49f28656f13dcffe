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

from ringbuf.net.address import parse_address

__all__ = ["Remote"]

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
            raise ImportError("clients on other machines need pyzmq: pip install ringloader[net]")
        if keys is not None:
            from ringbuf.net.keys import load_client  # needs pyzmq

            load_client(keys)
        self._keys = None if keys is None else os.path.abspath(os.fspath(keys))
        self._timeout = timeout
        self._relay: int | None = None

    def __call__(self) -> socket.socket:
        """A connection with a relay that has one with the server. Raises ConnectionError, PermissionError."""
        self.close()
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with its:
                self._relay = _spawn(its, {"address": self.name, "keys": self._keys, "timeout": self._timeout})
            self._wait_for_connection(mine)
        except BaseException:
            mine.close()
            self.close()
            raise
        return mine

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
        if answer:
            kind = getattr(builtins, answer["kind"]) if answer["kind"] in ERRORS else ConnectionError
            raise kind(answer["text"])


def _spawn(sock: socket.socket, options: dict) -> int:
    """Its process id."""
    here = str(Path(__file__).parents[2])
    places = [here, *(place for place in sys.path if place and place != here)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONSAFEPATH": "1"}
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "ringbuf.net.relay", json.dumps({"fd": RELAY_FD, **options})],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, sock.fileno(), RELAY_FD),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ],
        setsid=True,  # Ctrl-C at the terminal is for the trainer
    )


def _bury(pid: int) -> None:
    until = time.monotonic() + END_S
    try:
        end = os.pidfd_open(pid)
    except OSError:
        end = None
    try:
        if end is not None and not select.select([end], [], [], max(0.0, until - time.monotonic()))[0]:
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    finally:
        if end is not None:
            os.close(end)
