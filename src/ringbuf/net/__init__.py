"""Preprocessing in a process of its own: a server, and clients on this machine or elsewhere."""

from ringbuf.net.client import Stream, StreamStats, connect
from ringbuf.net.fields import Field
from ringbuf.net.server import Server, drop_client

__all__ = ["Field", "Server", "Stream", "StreamStats", "connect", "drop_client"]
