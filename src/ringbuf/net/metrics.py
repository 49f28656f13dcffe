"""A server's numbers as Prometheus reads them.

Counters of a client end with its session; what the source gave counts on. Needs prometheus_client (extra `metrics`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

__all__ = ["render"]

PREFIX = "ringbuf_server_"

SERVER_COUNTERS = {
    "produced": ("source_batches", "Batches that the source gave."),
    "produced_bytes": ("source_bytes", "Their size, as frames."),
    "copies": ("source_copies", "Batches that the server copied into shared memory itself."),
    "source_s": ("source_seconds", "Time in which the source was waited for."),
    "room_s": ("room_seconds", "Time in which the source waited for room, because clients were slower."),
    "served": ("clients_served", "Clients that there were."),
    "dropped": ("clients_dropped", "Clients that were given up because they were too slow."),
    "refused": ("connections_refused", "Connections that spoke wrongly, or were not allowed."),
}
SERVER_GAUGES = {
    "running_s": ("uptime_seconds", "Time since the server was made."),
    "epoch": ("epoch", "The epoch that is served, from 0."),
    "index": ("position", "Batches of that epoch that are done or sent to everybody."),
    "ready": ("ready_batches", "Batches that wait to be sent, also of the next epoch."),
    "ahead": ("ahead_batches", "How many may wait to be sent at most."),
    "connected": ("clients", "Clients that are connected."),
}
CLIENT_COUNTERS = {
    "sent": ("batches", "Batches sent to a client."),
    "acknowledged": ("acknowledged_batches", "Batches that a client is done with."),
    "bytes": ("bytes", "Size of the batches sent to a client, as frames."),
    "waits": ("waits", "How often a client had to wait for a batch."),
    "waited_s": ("wait_seconds", "Time that a client waited for batches."),
}
CLIENT_GAUGES = {
    "lag": ("lag_batches", "Batches that a client is behind others, or is not done with."),
    "held": ("held_batches", "Batches whose memory a client may still look at."),
    "connected_s": ("connected_seconds", "Time since a client connected."),
}


class _Collector:
    """One picture of a server."""

    def __init__(self, picture: dict[str, Any]):
        self._picture = picture

    def collect(self) -> Iterator[Metric]:
        picture = self._picture
        about = {key: str(picture[key] or "") for key in ("name", "mode", "address")}
        yield InfoMetricFamily(PREFIX + "about", "What is served, and where.", value=about)
        for key, (name, text) in SERVER_COUNTERS.items():
            yield CounterMetricFamily(PREFIX + name, text, value=picture[key])
        for key, (name, text) in SERVER_GAUGES.items():
            yield GaugeMetricFamily(PREFIX + name, text, value=picture[key])
        for family, metrics in ((CounterMetricFamily, CLIENT_COUNTERS), (GaugeMetricFamily, CLIENT_GAUGES)):
            for key, (name, text) in metrics.items():
                metric = family(PREFIX + name, text, labels=["client", "label"])
                for client in picture["clients"]:
                    metric.add_metric([str(client["client"]), client["label"]], client[key])
                yield metric


def render(picture: dict[str, Any], accept: str = "") -> tuple[bytes, str]:
    """A picture, as `Server.stats()` gives it, in the format that this Accept header asks for; and its content type."""
    registry = CollectorRegistry()
    registry.register(_Collector(picture))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type
