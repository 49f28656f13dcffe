"""What a server tells about itself: plain numbers and text, for people, `ringbuf top`, metrics and the status page."""

from __future__ import annotations

import os
import time
from typing import Any

from ringbuf.net.session import Session

__all__ = ["describe"]


def describe(server: Any, hub: Any) -> dict[str, Any]:
    """A picture of a server and its clients."""
    account = server.account
    dispatcher = None if hub is None else hub.dispatcher
    return {
        "name": server.name,
        "address": server.address,
        "pid": os.getpid(),
        "mode": server.mode,
        "epochs": server.epochs,
        "epoch": 0 if dispatcher is None else dispatcher.epoch,
        "running_s": time.monotonic() - account.began,
        "produced": account.produced,
        "produced_bytes": account.bytes,
        "copies": account.copies,
        "source_s": account.source_s,
        "room_s": account.room_s,
        "ready": 0 if dispatcher is None else dispatcher.stored,
        "ahead": server.ahead,
        "refused": 0 if hub is None else hub.refused,
        "dropped": 0 if hub is None else hub.dropped,
        "served": 0 if hub is None else hub.served,
        "clients": [] if hub is None else [describe_client(session, dispatcher) for session in list(hub.sessions)],
    }


def describe_client(session: Session, dispatcher: Any) -> dict[str, Any]:
    return {
        "client": session.number,
        "label": session.label,
        "local": session.wire.local,
        "pid": getattr(session.wire, "pid", None),
        "epoch": session.epoch,
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
