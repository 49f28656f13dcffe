"""A client elsewhere gets what a client of the server's machine gets, in the same loop."""

import collections
import threading

import numpy as np
import pytest
from processes import eventually

import ringbuf

Point = collections.namedtuple("Point", "x y")


def every_kind():
    """A batch of all that can be in one."""
    structured = np.zeros(3, np.dtype([("a", "u1"), ("b", ">f8")], align=True))
    structured["b"] = [1.5, np.nan, -0.0]
    return {
        "image": np.random.default_rng(1).integers(0, 255, (7, 31, 33, 3), np.uint8),
        "big": np.arange(1_200_000, dtype=np.float32).reshape(300, 4000),  # several pieces
        "half": np.float16([1, np.inf, np.nan]),
        "when": np.array(["2024-02-29", "NaT"], "M8[D]"),
        "names": np.array(["ä", "", "abc"]),
        "raw": np.array([b"\x00\xff", b"x"]),
        "complex": np.array([1 + 2j]),
        "empty": np.empty((0, 5), np.int64),
        "scalar": np.array(7, ">i4"),
        "structured": structured,
        "nested": [Point(np.bool_(True), 1 << 70), (None, "text ", b"bytes", -1.5, 2j, [])],
    }


def same(one, other):
    """Bit for bit, and of the same types."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    elif isinstance(one, dict):
        assert list(one) == list(other)
        [same(one[key], other[key]) for key in one]
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        [same(a, b) for a, b in zip(one, other)]
    else:
        assert repr(one) == repr(other)
    return True


@pytest.mark.parametrize("compress", [None, "lz4", "zstd"])
def test_batches_are_those_of_a_local_client(serve, connect, compress):
    given = [every_kind(), {"x": np.zeros(3 << 20, np.uint8)}, [], None, "text", every_kind()]
    server = serve(given, name="exact", mode="broadcast", clients=2, epochs=1, compress=compress)
    near, far = connect("exact"), connect(server.address)
    assert (near.local, far.local) == (True, False)
    assert (far.mode, far.epochs, far.name) == ("broadcast", 1, "exact")
    count = 0
    for a, b, wanted in zip(near, far, given):
        count += same(a, b) and same(b, wanted)
    assert count == len(given)


def test_tensors_stay_tensors(serve, connect):
    torch = pytest.importorskip("torch")
    given = {"a": torch.arange(6).reshape(2, 3).t(), "b": torch.ones(3, dtype=torch.bfloat16)}
    (got,) = connect(serve([given], epochs=1).address)
    assert all(got[key].dtype == given[key].dtype and torch.equal(got[key], given[key]) for key in given)


def test_arrays_are_aligned_and_writable_in_split(serve, connect):
    stream = connect(serve([{"a": np.arange(5, dtype=np.uint8), "b": np.ones((3, 3))}], epochs=1).address)
    for batch in stream:
        for array in batch.values():
            assert array.__array_interface__["data"][0] % 64 == 0
            array[:] = 3  # this client's alone


def test_arrays_are_read_only_in_broadcast(serve, connect):
    stream = connect(serve([np.arange(5)], mode="broadcast", epochs=1).address)
    for batch in stream:
        with pytest.raises(ValueError, match="read-only"):
            batch[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            batch.flags.writeable = True


def test_split_gives_each_batch_to_one_client_and_each_loop_ends_once_an_epoch(serve, connect):
    server = serve([np.array([index]) for index in range(50)], epochs=3)
    streams = [connect(server.address) for _ in range(3)]
    got = [[] for _ in streams]

    def consume(stream, epochs):
        for _ in range(3):
            epochs.append([int(batch[0]) for batch in stream])

    threads = [threading.Thread(target=consume, args=pair) for pair in zip(streams, got)]
    [thread.start() for thread in threads]
    [thread.join(30) for thread in threads]
    for epoch in range(3):
        assert sorted(index for epochs in got for index in epochs[epoch]) == list(range(50))
    for stream in streams:
        with pytest.raises(ringbuf.Closed):
            list(stream)


def test_batches_that_are_kept_stay_as_they_are(serve, connect):
    stream = connect(serve([np.full(5000, index) for index in range(60)], epochs=1).address)
    kept = list(stream)
    assert [int(batch[0]) for batch in kept] == list(range(60))
    assert all((batch == batch[0]).all() for batch in kept)
    assert 0 < stream.stats().copies < 60


def test_views_outlive_stream_and_server(serve):
    server = serve([np.arange(100_000)], epochs=1)
    stream = ringbuf.connect(server.address)
    (batch,) = stream
    stream.close()
    server.stop()
    assert (batch == np.arange(100_000)).all()


def test_batches_may_grow_and_shrink(serve, connect):
    sizes = [10, 100_000, 3_000_000, 5, 4_000_000]
    stream = connect(serve([np.full(size, size) for size in sizes], epochs=2).address)
    for _ in range(2):
        assert [(len(batch), int(batch[-1])) for batch in stream] == [(size, size) for size in sizes]


def test_length_and_fields_are_known_before_the_first_batch(serve, connect):
    stream = connect(serve([{"x": np.zeros((2, 3), np.float32)}] * 7).address)
    assert len(stream) == 7
    assert stream.fields == {"x": ringbuf.Field(np.dtype(np.float32), (2, 3))}


def test_a_loop_that_is_left_leaves_the_rest_to_others(serve, connect):
    server = serve([np.full(200_000, index) for index in range(12)], epochs=2)
    first, second = connect(server.address), connect(server.address)
    loop = iter(first)
    left = [int(next(loop)[0]) for _ in range(2)]
    loop.close()
    rest = [int(batch[0]) for batch in second]
    assert sorted(left + rest) == list(range(12))
    both = [[], []]
    threads = [
        threading.Thread(target=lambda s=s, got=got: got.extend(int(b[0]) for b in s))
        for s, got in zip((first, second), both)
    ]
    [thread.start() for thread in threads]
    [thread.join(30) for thread in threads]
    assert sorted(both[0] + both[1]) == list(range(12))


def test_leaving_again_and_again_loses_no_slot(serve, connect):
    """More loops than the relay has slots; each is left with batches under way."""
    server = serve([np.full(50_000, index) for index in range(6)])
    stream = connect(server.address)

    def all_here():
        """Whether the relay has what the server was asked for."""
        (client,) = server.stats()["clients"]
        return client["lag"] >= 2 and client["held"] == 0

    for _ in range(20):
        loop = iter(stream)
        batch = next(loop)
        assert (batch == batch[0]).all() and eventually(all_here)
        loop.close()


def test_the_state_of_a_client_goes_on_elsewhere(serve):
    source = [np.array([index]) for index in range(10)]
    address = serve(source, epochs=2).address
    with ringbuf.connect(address) as stream:
        loop = iter(stream)
        first = [int(next(loop)[0]) for _ in range(4)]
        state = stream.state_dict()
    with ringbuf.connect(serve(source, epochs=2).address, state=state) as stream:
        rest = [int(batch[0]) for batch in stream]
        assert first + rest == list(range(10)) and stream.epoch == 1


@pytest.mark.parametrize("compress", ["lz4", "zstd"])
def test_a_batch_is_made_smaller_once_for_all_clients(serve, connect, compress, monkeypatch):
    from ringbuf.net import remote

    packed = []
    pack = remote._pack
    monkeypatch.setattr(remote, "_pack", lambda *args: packed.append(1) or pack(*args))
    server = serve([np.zeros(300_000)] * 5, mode="broadcast", clients=3, epochs=1, compress=compress)
    streams = [connect(server.address) for _ in range(3)]
    for batches in zip(*streams):
        assert all(not batch.any() for batch in batches)
    assert len(packed) == 5


def test_what_a_client_has_received_is_not_kept_by_the_server(serve, connect):
    server = serve([np.full(10_000, index) for index in range(30)])
    stream = connect(server.address)
    loop = iter(stream)
    kept = [next(loop) for _ in range(8)]
    assert eventually(lambda: server.stats()["clients"][0]["held"] <= 3)
    assert [int(batch[0]) for batch in kept] == list(range(8))
