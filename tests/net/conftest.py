"""What tests of servers and clients share: nothing in here may read a pickle, and everything ends with its test."""

import pickle

import pytest
from actors import Actor

import ringbuf


@pytest.fixture(autouse=True)
def no_pickle_is_read(monkeypatch):
    """Whoever reads one fails the test: not even by an error that somebody swallows."""
    read = []

    def refuse(*args, **kwargs):
        read.append(args)
        raise AssertionError("a pickle was read")

    for module, name in ((pickle, "loads"), (pickle, "load"), (pickle, "Unpickler")):
        monkeypatch.setattr(module, name, refuse)
    yield
    assert not read, "a pickle was read"


@pytest.fixture
def actor(tmp_path):
    """actor() starts an unrelated process, in another directory, that does what it is told: see actors.Actor."""
    actors = []

    def start(**options):
        actors.append(Actor(tmp_path, **options))
        return actors[-1]

    yield start
    for one in actors:
        one.end()


@pytest.fixture
def serve():
    """serve(source, **options) starts a server in this process, under a name of the test's own, or the given one."""
    servers = []

    def start(source, name=None, **options):
        servers.append(ringbuf.Server(source, name or unique_name(), **options).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def connect():
    """connect(server_or_name, **options) is ringbuf.connect(); what is left open is closed at the end."""
    streams = []

    def start(server, **options):
        streams.append(ringbuf.connect(getattr(server, "name", server), **options))
        return streams[-1]

    yield start
    for stream in streams:
        stream.close()


def unique_name():
    from actors import unique_name

    return unique_name()
