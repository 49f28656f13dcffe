"""What a server tells about itself: plain numbers and text, for people, `ringbuf top`, metrics and the status page."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ringbuf.net.protocol import BODY_BYTES
from ringbuf.net.session import Session

__all__ = ["describe", "page"]


def describe(server: Any, hub: Any) -> dict[str, Any]:
    """A picture of a server and its clients.

    index: in "split", all batches of the epoch before it are done; in "broadcast", all were sent to everybody.
    doing: what the source's thread is at: "source", "room" (it waits for some) or "" (neither), and for how long by now.
    """
    account = server.account
    dispatcher = None if hub is None else hub.dispatcher
    clients = [] if hub is None else [describe_client(session, dispatcher) for session in list(hub.sessions)]
    epoch, index = (0, 0) if dispatcher is None else _position(server.mode, dispatcher, clients)
    source_s, room_s = account.source.running_s, account.room.running_s
    return {
        "name": server.name,
        "address": server.address,
        "pid": os.getpid(),
        "mode": server.mode,
        "epochs": server.epochs,
        "epoch": epoch,
        "index": index,
        "length": server.length,
        "running_s": time.monotonic() - account.began,
        "produced": account.produced,
        "produced_bytes": account.bytes,
        "copies": account.copies,
        "source_s": account.source.seconds,
        "room_s": account.room.seconds,
        "doing": "source" if source_s is not None else "room" if room_s is not None else "",
        "doing_s": source_s or room_s or 0.0,
        "ready": 0 if dispatcher is None else dispatcher.stored,
        "ahead": server.ahead,
        "refused": 0 if hub is None else hub.refused,
        "dropped": 0 if hub is None else hub.dropped,
        "served": 0 if hub is None else hub.served,
        "connected": len(clients),
        "clients": clients,
    }


def _position(mode: str, dispatcher: Any, clients: list[dict[str, Any]]) -> tuple[int, int]:
    if mode == "split":
        return dispatcher.epoch, dispatcher.first_open
    places = [(client["epoch"] or 0, client["index"]) for client in clients if client["in_loop"]]
    return min(places, default=(dispatcher.epoch, 0))


def describe_client(session: Session, dispatcher: Any) -> dict[str, Any]:
    return {
        "client": session.number,
        "label": session.label,
        "local": session.wire.local,
        "pid": getattr(session.wire, "pid", None),
        "epoch": session.epoch,
        "index": session.index,
        "in_loop": session.inside,
        "sent": session.sent,
        "acknowledged": session.done,
        "lag": dispatcher.lag(session),
        "held": len(session.held),
        "bytes": session.sent_bytes,
        "waits": session.waits,
        "waited_s": session.waiting_s,
        "connected_s": time.monotonic() - session.since,
    }


def page(picture: dict[str, Any], after: int) -> dict[str, Any]:
    """As much of a picture as a message holds: its clients with numbers above `after`, and whether there are `more`."""
    clients = sorted((c for c in picture["clients"] if c["client"] > after), key=lambda client: client["client"])
    room = BODY_BYTES - len(_json({**picture, "clients": [], "more": False}))
    shown = []
    for client in clients:
        room -= len(_json(client)) + 1  # and a comma
        if room < 0:
            break
        shown.append(client)
    return {**picture, "clients": shown, "more": len(shown) < len(clients)}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
