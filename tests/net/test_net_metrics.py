"""What Prometheus reads is what `Server.stats()` says."""

import os
import urllib.request

import pytest
from processes import eventually

import ringbuf

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")
openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")

NAME = f"metrics-{os.getpid()}"
LABELS = ["a", 'quo"te', "back\\slash", "new\nline", "é", "<b>"]

SERVER = {
    "source_batches_total": "produced",
    "source_bytes_total": "produced_bytes",
    "source_copies_total": "copies",
    "clients_served_total": "served",
    "clients_dropped_total": "dropped",
    "connections_refused_total": "refused",
    "epoch": "epoch",
    "position": "index",
    "ready_batches": "ready",
    "ahead_batches": "ahead",
    "clients": "connected",
}
CLIENT = {
    "batches_total": "sent",
    "acknowledged_batches_total": "acknowledged",
    "bytes_total": "bytes",
    "waits_total": "waits",
    "lag_batches": "lag",
    "held_batches": "held",
}
TIMES = {
    "source_seconds_total": "source_s",
    "room_seconds_total": "room_s",
    "uptime_seconds": "running_s",
}


def scrape(server, accept="text/plain"):
    request = urllib.request.Request(server.http_address + "/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=20) as answer:
        text = answer.read().decode()
        families = openmetrics if "openmetrics" in answer.headers["Content-Type"] else parser
    return list(families.text_string_to_metric_families(text))


@pytest.fixture
def server():
    """Its clients have had an epoch, and wait; the last sample shows that."""
    with ringbuf.Server([b"x" * 1000] * 7, NAME, mode="broadcast", http="127.0.0.1:0", clients=len(LABELS)) as server:
        streams = [ringbuf.connect(NAME, label=label) for label in LABELS]
        loops = [iter(stream) for stream in streams]
        for _ in range(7):
            for loop in loops:
                next(loop)
        for loop in loops:
            assert next(loop, None) is None
        del loop, loops
        assert eventually(lambda: server.stats()["ready"] == server.ahead)  # of the next epochs: it is at rest

        def counts(picture):
            return [
                [picture[key] for key in SERVER.values()],
                [[client[key] for key in CLIENT.values()] for client in picture["clients"]],
            ]

        assert eventually(lambda: counts(server.history.picture) == counts(server.stats()))
        yield server
        for stream in streams:
            stream.close()


def by_name(families):
    return {
        sample.name.removeprefix("ringbuf_server_"): sample.value
        for f in families
        for sample in f.samples
        if "client" not in sample.labels
    }


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_the_numbers_are_those_of_stats(server, accept):
    families = scrape(server, accept)
    stats = server.stats()
    told = by_name(families)
    assert {name: told[name] for name in SERVER} == {name: stats[key] for name, key in SERVER.items()}
    assert all(0 <= told[name] <= stats[key] for name, key in TIMES.items())
    clients = {str(client["client"]): client for client in stats["clients"]}
    samples = [sample for family in families for sample in family.samples if "client" in sample.labels]
    for sample in samples:
        client = clients[sample.labels["client"]]
        assert sample.labels["label"] == client["label"]
        name = sample.name.removeprefix("ringbuf_server_")
        if name in CLIENT:
            assert sample.value == client[CLIENT[name]], name
        else:
            assert name in ("wait_seconds_total", "connected_seconds") and sample.value >= 0
    assert len(samples) == len(LABELS) * (len(CLIENT) + 2)
    assert stats["clients"][0]["sent"] == 7


def test_names_are_as_prometheus_wants_them(server):
    for family in scrape(server):
        assert family.name.startswith("ringbuf_server_") and family.documentation.endswith(".")
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
