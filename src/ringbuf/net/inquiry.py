"""How a server of this machine is doing, asked from outside: without being one of its clients."""

from __future__ import annotations

import os
import select
import socket
from typing import Any

from ringbuf.net import local
from ringbuf.net.protocol import Kind, Message, ProtocolError, encode, parse

__all__ = ["process_of", "status"]

MOST_PAGES = 64  # of about 100 clients each


def status(name: str, timeout: float = 5.0) -> dict[str, Any]:
    """What `Server.stats()` gives there.

    timeout: seconds for each part of the answer; a server with many clients sends several.
    Raises FileNotFoundError, naming the servers that run; PermissionError; ConnectionError when no answer comes.
    """
    name = local.server_name(name)
    answer = _ask(name, 0, timeout)
    clients = answer["clients"]
    for _ in range(MOST_PAGES):
        if not answer.pop("more", False):
            break
        after = max((client["client"] for client in answer["clients"]), default=0)
        answer = _ask(name, after, timeout)
        clients += answer["clients"]
    return {**answer, "clients": clients}


def process_of(name: str) -> int | None:
    """The process of the server with this name, also of one that does not answer; None where that cannot be asked.

    Raises FileNotFoundError, PermissionError.
    """
    try:
        with local.connect(local.server_name(name), timeout=1.0) as sock:
            return local.peer_of(sock)[0] or None
    except ConnectionError:
        return None


def _ask(name: str, after: int, timeout: float) -> dict[str, Any]:
    """One part: the clients with numbers above `after`."""
    with local.connect(name, timeout=timeout) as sock:
        sock.sendmsg([encode(Message(Kind.STATUS, seq=after))], [], socket.MSG_NOSIGNAL)
        answered = select.poll()
        answered.register(sock, select.POLLIN)
        if not answered.poll(timeout * 1000):
            raise ConnectionError(f"the server {name!r} did not say within {timeout} s how it is doing")
        message, body, descriptors = local.receive(sock)
        for descriptor in descriptors:
            os.close(descriptor)
        if message.kind != Kind.STATUS:
            raise ConnectionError(f"the server {name!r} did not say how it is doing, but sent {message.kind}")
        try:
            picture = parse(body, **ANSWER)
        except ProtocolError as error:
            raise ConnectionError(f"what the server {name!r} said about itself was not understood: {error}") from None
    if not all(isinstance(client, dict) and isinstance(client.get("client"), int) for client in picture["clients"]):
        raise ConnectionError(f"what the server {name!r} said about its clients was not understood")
    return picture


_NONE = type(None)
_NUMBER = (int, float)
ANSWER: dict[str, Any] = {
    "name": (str, _NONE),
    "address": (str, _NONE),
    "pid": int,
    "mode": str,
    "epochs": (int, _NONE),
    "epoch": int,
    "index": int,
    "length": (int, _NONE),
    "running_s": _NUMBER,
    "produced": int,
    "produced_bytes": int,
    "copies": int,
    "source_s": _NUMBER,
    "room_s": _NUMBER,
    "doing": str,
    "doing_s": _NUMBER,
    "ready": int,
    "ahead": int,
    "refused": int,
    "dropped": int,
    "served": int,
    "connected": int,
    "clients": list,
    "more": bool,
}
"""What an answer holds, and of which kinds."""
