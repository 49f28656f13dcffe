"""Clients on the server's machine, in processes of their own: what they get, where it lies, and how long that lasts."""

import collections
import contextlib
import gc
import os
import signal
import sys
import threading

import numpy as np
import pytest
from actors import Told, batches, number, numbers_of, unique_name
from processes import eventually, forked

import ringbuf

Point = collections.namedtuple("Point", "x y")


def one_client(server):
    (client,) = server.stats()["clients"]
    return client


# ---- what clients get


@pytest.mark.parametrize("mode", ["split", "broadcast"])
def test_each_loop_is_one_epoch(serve, connect, mode):
    server = serve(lambda epoch: batches(5, epoch), mode=mode, epochs=3)
    stream = connect(server)
    for epoch in range(3):
        assert stream.epoch == epoch
        assert numbers_of(stream) == [1000 * epoch + index for index in range(5)]
    with pytest.raises(ringbuf.Closed, match="3 epochs are over"):
        numbers_of(stream)
    assert server.wait(30)


def test_a_client_elsewhere_gets_the_same(serve, actor):
    server = serve(lambda epoch: batches(5, epoch), epochs=2)
    client = actor()
    client.run(f"stream = ringbuf.connect({server.name!r})")
    assert client("[stream.mode, stream.local, stream.epochs, stream.name]") == ["split", True, 2, server.name]
    assert client("[numbers_of(stream), numbers_of(stream)]") == [[0, 1, 2, 3, 4], [1000, 1001, 1002, 1003, 1004]]
    with pytest.raises(Told, match="Closed"):
        client("numbers_of(stream)")


def test_fields_and_length_are_known_before_the_first_batch(serve, connect):
    server = serve([{"x": np.zeros((2, 3), np.float32), "p": Point(1, np.ones(4, "i1")), "s": "text", "n": None}] * 7)
    stream = connect(server)
    assert len(stream) == 7
    assert stream.fields == {
        "x": ringbuf.Field(np.dtype(np.float32), (2, 3)),
        "p": (ringbuf.Field(int, ()), ringbuf.Field(np.dtype("i1"), (4,))),
        "s": ringbuf.Field(str, ()),
        "n": None,
    }
    assert stream.stats().batches == 0


def test_a_generator_is_one_epoch_without_a_length(serve, connect):
    server = serve(batches(4))
    stream = connect(server)
    with pytest.raises(TypeError, match="no length"):
        len(stream)
    assert numbers_of(stream) == [0, 1, 2, 3]
    with pytest.raises(ringbuf.Closed):
        next(iter(stream))
    assert server.wait(30)


@pytest.mark.parametrize("mode", ["split", "broadcast"])
def test_an_epoch_without_batches_ends_at_once(serve, connect, mode):
    server = serve(lambda epoch: batches(2 * (epoch == 1), epoch), epochs=3, mode=mode)
    stream = connect(server)
    assert [numbers_of(stream) for _ in range(3)] == [[], [1000, 1001], []]


def test_where_there_are_no_batches_there_are_no_fields(serve, connect):
    stream = connect(serve([], epochs=1))
    assert len(stream) == 0
    with pytest.raises(ringbuf.RingbufError, match="no batches"):
        stream.fields  # noqa: B018


def test_a_source_that_gives_nothing_does_not_go_on_for_ever(serve, connect):
    begun = threading.Event()

    def source():
        begun.wait()
        return []

    stream = connect(serve(source))
    begun.set()
    with pytest.raises(ringbuf.SourceFailed, match="gave no batch in epoch 0, and without epochs="):
        for _ in range(1000):
            list(stream)


def test_options_that_would_be_ignored_are_refused():
    for options, words in (
        ({"clients": 2}, "clients=2 is for mode='broadcast'"),
        ({"keys": "keys"}, "there is no bind="),
        ({"compress": "lz4"}, "there is no bind="),
    ):
        with pytest.raises(ValueError, match=words):
            ringbuf.Server([], "train", **options)
    with pytest.raises(ValueError, match="did you mean 'tcp://localhost:5557'"):
        ringbuf.connect("localhost:5557")


def test_batches_of_all_kinds_come_through(serve, connect):
    sent = [
        {"a": np.arange(6).reshape(2, 3)[:, ::-1], "e": np.empty((0, 4), np.float16), "p": Point(np.float32(3), [1, 2])},
        (np.array(5), "text", b"bytes", 1 << 80, 2.5, 1j, True, None, [np.datetime64("2024-01-01", "D")]),
        [],
        None,
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    ]
    got = list(connect(serve(sent, epochs=1)))
    np.testing.assert_array_equal(got[0]["a"], sent[0]["a"])
    assert got[0]["e"].shape == (0, 4) and got[0]["e"].dtype == np.float16
    assert type(got[0]["p"]) is Point and got[0]["p"].y == [1, 2]
    assert got[1][1:] == sent[1][1:] and got[1][0] == 5 and got[1][0].shape == ()
    assert got[2:4] == [[], None]
    assert got[4] == sent[4] and got[4].dtype == sent[4].dtype


def test_batches_that_grow_come_in_new_memory_and_the_old_goes(serve, connect):
    server = serve((np.full(1 << shift, shift, np.uint8) for shift in range(10, 24)), ahead=2)
    stream = connect(server)
    kept = []
    for shift, batch in zip(range(10, 24), stream):
        assert batch.size == 1 << shift and (batch == shift).all()
        if shift == 12:
            kept.append(batch)
    assert (kept[0] == 12).all()
    assert len(stream._segments) < max(stream._segments) - 1, "memory that is not used any more stays mapped"


def test_ragged_batches_come_through(serve, connect):
    sizes = [7, 0, 100_000, 3, 1_000_000, 1]
    got = list(connect(serve([np.full(size, size) for size in sizes], epochs=1)))
    assert [batch.size for batch in got] == sizes and all((batch == batch.size).all() for batch in got)


def test_tensors_come_through(serve, connect):
    torch = pytest.importorskip("torch")
    half = torch.ones(2, dtype=torch.bfloat16)
    server = serve([{"t": torch.full((2, 3), float(index)), "h": half} for index in range(4)], epochs=1)
    for index, batch in enumerate(connect(server)):
        assert torch.equal(batch["t"], torch.full((2, 3), float(index))) and batch["h"].dtype == torch.bfloat16


def test_a_callable_is_told_epoch_and_start(serve, connect):
    told = []

    def source(epoch, start):
        told.append((epoch, start))
        return batches(6, epoch, start)

    server = serve(source, mode="broadcast", epochs=3)
    stream = connect(server, state={"epoch": 1, "index": 4, "done": []})
    assert numbers_of(stream) == [1004, 1005]
    assert numbers_of(stream) == [2000 + index for index in range(6)]
    assert told[-2:] == [(1, 4), (2, 0)]


# ---- split and broadcast


def test_split_divides_each_epoch(serve, connect):
    server = serve(lambda epoch: batches(20, epoch), epochs=3)
    streams = [connect(server) for _ in range(4)]
    got = together(streams, lambda stream: [numbers_of(stream) for _ in range(3)])
    for epoch in range(3):
        everything = sorted(value for client in got for value in client[epoch])
        assert everything == [1000 * epoch + index for index in range(20)]


def test_broadcast_gives_all_to_each_in_order(serve, connect):
    server = serve(lambda epoch: batches(20, epoch), epochs=3, mode="broadcast", clients=4)
    streams = [connect(server) for _ in range(4)]
    for client in together(streams, lambda stream: [numbers_of(stream) for _ in range(3)]):
        assert client == [[1000 * epoch + index for index in range(20)] for epoch in range(3)]


@pytest.mark.parametrize("mode", ["split", "broadcast"])
def test_fifty_clients(serve, actor, mode):
    server = serve(lambda epoch: batches(100, epoch), epochs=2, mode=mode, clients=1 if mode == "split" else 50)
    crowd = actor()
    crowd.run(f"""if True:
        def one(answers, ready, go):
            stream = ringbuf.connect({server.name!r})
            os.close(ready)
            os.read(go, 1)
            os.write(answers, json.dumps([numbers_of(stream), numbers_of(stream)]).encode())
            stream.close()
        children = []
        ready, is_ready = os.pipe()
        go, may_go = os.pipe()
        for _ in range(50):
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    os.close(may_go)
                    one(writing, is_ready, go)
                    code = 0
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                finally:
                    os._exit(code)
            os.close(writing)
            children.append((pid, os.fdopen(reading)))
        os.close(is_ready)
        os.read(ready, 1)  # the end of it: each has connected
        os.close(may_go)
        got = [json.loads(answers.read()) for _, answers in children]
        codes = [os.waitpid(pid, 0)[1] for pid, _ in children]
        for _, answers in children:
            answers.close()
    """)
    assert crowd("codes") == [0] * 50
    got = crowd("got")
    for epoch in range(2):
        whole = [1000 * epoch + index for index in range(100)]
        if mode == "split":
            assert sorted(value for client in got for value in client[epoch]) == whole
        else:
            assert all(client[epoch] == whole for client in got)
    assert server.wait(30) and server.stats()["served"] == 50


def together(streams, function):
    """function(stream) for each, in threads; what they return, in order."""
    results = [None] * len(streams)

    def work(number):
        results[number] = function(streams[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(streams))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
        assert not thread.is_alive()
    return results


def test_who_joins_late_begins_now_or_with_a_whole_epoch(serve, connect):
    server = serve(lambda epoch: batches(6, epoch), mode="broadcast", epochs=2, ahead=2)
    first = connect(server)
    loop = iter(first)
    assert [number(next(loop)) for _ in range(4)] == [0, 1, 2, 3]
    now, following = connect(server), connect(server, join="next")
    results = together(
        [loop, now, following],
        lambda who: (
            [[number(batch) for batch in who], numbers_of(first)]
            if who is loop
            else [numbers_of(who) for _ in range(1 + (who is now))]
        ),
    )
    assert results[0][0] == [4, 5]
    assert results[1][0] in ([3, 4, 5], [4, 5], [5]), "it begins with what not all have passed"
    assert results[0][1] == results[1][1] == results[2][0] == [1000 + index for index in range(6)]


def test_the_next_epoch_is_prepared_while_this_one_is_worked_on(serve, connect):
    begun = [threading.Event() for _ in range(3)]

    def source(epoch):
        begun[epoch].set()
        return batches(3, epoch)

    stream = connect(serve(source, epochs=3))
    assert number(next(iter_ := iter(stream))) == 0
    assert begun[1].wait(30), "the source waits for the end of an epoch"
    assert [number(batch) for batch in iter_] == [1, 2]


@pytest.mark.parametrize("mode", ["split", "broadcast"])
def test_a_loop_that_is_left_ends_and_the_next_one_is_the_next_epoch(serve, connect, mode):
    server = serve(lambda epoch: batches(10, epoch), mode=mode, epochs=4)
    stream = connect(server)
    for batch in stream:
        if number(batch) == 2:
            break
    assert eventually(lambda: not one_client(server)["in_loop"]), "the server was not told"
    assert numbers_of(stream) == [1000 + index for index in range(10)]
    loop = iter(stream)
    next(loop)
    loop.close()
    with pytest.raises(StopIteration):
        next(loop)
    assert number(next(iter(stream))) == 3000


def test_an_epoch_without_an_end_can_be_left(serve, connect):
    def endless(epoch):
        index = 0
        while True:
            yield np.array([epoch, index])
            index += 1

    for mode in ("split", "broadcast"):
        stream = connect(serve(endless, mode=mode))
        for epoch in range(3):
            for batch in stream:
                assert batch[0] == epoch
                if batch[1] == 5:
                    break
            del batch


def test_what_a_leaver_was_sent_and_did_not_look_at_is_freed(serve, connect):
    server = serve(lambda epoch: batches(3, epoch), mode="broadcast", ahead=4)
    stream = connect(server, ahead=8)
    for _ in range(59):
        next(iter(stream))
    next(iter(stream))
    assert eventually(lambda: one_client(server)["held"] <= 3)


# ---- where batches lie


def memory_of(array):
    """The inode of the memory that an array lies in, and its permissions, as the kernel says."""
    address = array.__array_interface__["data"][0]
    with open("/proc/self/maps", encoding="utf-8") as lines:
        for line in lines:
            span, permissions, _, _, inode, *_ = line.split()
            low, high = (int(end, 16) for end in span.split("-"))
            if low <= address < high:
                return int(inode), permissions
    raise AssertionError("not mapped")


def test_nothing_is_copied_between_worker_and_trainer(actor, connect):
    """What the client looks at is the very memory that a worker wrote: the server is in neither's way."""
    server = actor(client=False)
    name = unique_name()
    server.run(f"server = ringbuf.Server(ringbuf.RingLoader(Squares(), 4, num_workers=2), {name!r}, epochs=2).start()")
    stream = connect(name)
    seen = 0
    for batch in stream:
        inode, permissions = memory_of(batch["x"])
        assert permissions == "rw-s"
        assert inode in server("[os.stat(f'/proc/self/fd/{r._fd}').st_ino for _, r in server._memory._by_ring.values()]")
        (worker,) = set(batch["pid"].tolist())
        assert worker not in (os.getpid(), server.pid)
        assert batch["inodes"].shape[0] == 4 and inode in batch["inodes"]
        seen += 1
    assert seen == 10
    assert server("server.stats()['copies']") == 0 and stream.stats().copies == 0
    assert server("server.stats()['produced']") >= 10
    server.run("server.stop()")


def test_broadcast_views_cannot_be_written_to_by_any_means(serve, actor):
    server = serve(lambda: batches(3), mode="broadcast")
    client = actor()
    client.run(f"stream = ringbuf.connect({server.name!r}); batch = next(iter(stream))['x']")
    assert client("batch.flags.writeable") is False
    with pytest.raises(Told, match="ValueError"):
        client.run("batch.flags.writeable = True")
    client.run("""if True:
        import ctypes
        page = batch.__array_interface__["data"][0] // 4096 * 4096
        libc = ctypes.CDLL(None, use_errno=True)
        refused = libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(4096), 3), ctypes.get_errno()
    """)
    assert client("refused") == [-1, 13]  # EACCES: what the mapping came from cannot be written through


def test_split_batches_are_the_clients_own(serve, connect):
    stream = connect(serve(batches(3)))
    for batch in stream:
        batch["x"] += 1
        assert batch["x"].flags.writeable


def test_a_client_keeps_no_descriptor_of_the_memory(serve, actor):
    client = actor()
    client.run(f"stream = ringbuf.connect({serve(batches(3)).name!r}); before = os.listdir('/proc/self/fd')")
    client.run("loop = iter(stream); batch = next(loop)")
    assert client("os.listdir('/proc/self/fd') == before")


# ---- how long they last


def test_views_outlive_stream_and_server(actor):
    server, client = actor(), actor()
    name = unique_name()
    server.run(f"server = ringbuf.Server(batches(10), {name!r}).start()")
    client.run(f"stream = ringbuf.connect({name!r}); loop = iter(stream); kept = [next(loop), next(loop)]")
    client.run("stream.close(); del stream, loop; gc.collect()")
    assert client("[number(batch) for batch in kept]") == [0, 1]
    server.kill()
    assert client("[number(batch) for batch in kept]") == [0, 1]


@pytest.mark.parametrize("mode", ["split", "broadcast"])
def test_what_is_held_after_close_is_not_written_over(serve, connect, mode):
    server = serve(lambda epoch: batches(200, epoch), mode=mode, ahead=2)
    stream = connect(server)
    loop = iter(stream)
    kept = [next(loop)["x"], next(loop)["x"]]
    del loop
    stream.close()
    connect_again = connect(server)
    for _ in range(2):
        numbers_of(connect_again)
    assert [set(array.tolist()) for array in kept] == [{0}, {1}]
    neighbours = server._neighbours
    kept.clear()
    assert eventually(lambda: not neighbours.parted)


@pytest.mark.parametrize("persistent", [False, True])
def test_what_is_held_after_the_servers_end_is_not_written_over(actor, connect, persistent):
    """The loader is its owner's again, who goes on with it."""
    owner = actor(client=False)
    name = unique_name()
    owner.run(f"loader = ringbuf.RingLoader(Squares(), 4, num_workers=2, persistent_workers={persistent})")
    owner.run(f"server = ringbuf.Server(loader, {name!r}, epochs=1).start()")
    stream = connect(name)
    kept = [batch["x"] for batch in stream]
    values = [array.copy() for array in kept]
    owner.run("server.wait(30); server.stop()")
    for _ in range(3):
        owner.run("for batch in loader: batch['x'][:] = 99")
    owner.run("loader.close()")
    assert all((array == value).all() for array, value in zip(kept, values))


def test_a_stream_that_is_dropped_lets_go(serve, connect):
    server = serve(lambda epoch: batches(5, epoch))
    stream = ringbuf.connect(server.name)
    batch = next(iter(stream))
    assert eventually(lambda: one_client(server)["held"] >= 1)
    del stream
    gc.collect()
    assert eventually(lambda: not server.stats()["clients"])
    assert number(batch) == 0
    assert server._neighbours.parted == 1
    del batch
    assert eventually(lambda: not server._neighbours.parted)


def test_all_of_an_epoch_can_be_kept(serve, connect):
    server = serve(lambda epoch: batches(100, epoch), ahead=3, epochs=2)
    stream = connect(server)
    kept = list(stream)
    assert [number(batch) for batch in kept] == list(range(100))
    assert stream.stats().copies > 0, "views cannot all have been in the slots"
    assert stream.stats().held < 15
    assert numbers_of(stream) == [1000 + index for index in range(100)]
    assert [number(batch) for batch in kept] == list(range(100))


def test_views_in_cycles_and_in_other_threads_give_slots_back(serve, connect):
    server = serve(lambda: batches(100), ahead=2)
    stream = connect(server)
    for batch in stream:
        cycle = [batch]
        cycle.append(cycle)
        del batch
        thread = threading.Thread(target=cycle.clear)
        thread.start()
        thread.join()
        del cycle
    gc.collect()
    assert stream.stats().held == 0
    assert eventually(lambda: one_client(server)["held"] == 0)


def test_threads_may_share_a_stream(serve, connect):
    stream = connect(serve(lambda: batches(200), epochs=1))
    loop = iter(stream)
    got = together([loop] * 4, lambda loop: [number(batch) for batch in loop])
    assert sorted(value for part in got for value in part) == list(range(200))


def test_another_thread_may_close_a_stream_that_waits(serve, connect):
    release = threading.Event()

    def source():
        yield from batches(1)
        release.wait(30)

    stream = connect(serve(source))
    loop = iter(stream)
    next(loop)
    failures = []
    waiting = threading.Event()

    def wait():
        waiting.set()
        try:
            next(loop)
        except BaseException as error:
            failures.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(30)
    stream.close()
    thread.join(30)
    release.set()
    assert failures == [ringbuf.Closed]


def test_a_forked_child_leaves_the_stream_to_its_parent(serve, connect):
    server = serve(lambda: batches(20), epochs=1)
    stream = connect(server)
    loop = iter(stream)
    batch = next(loop)

    def child():
        nonlocal batch
        assert number(batch) == 0
        for call in (lambda: next(loop), lambda: iter(stream), lambda: len(stream), stream.state_dict):
            with pytest.raises(RuntimeError, match="belongs to process"):
                call()
        del batch
        gc.collect()
        stream.close()

    assert forked(child) == 0
    assert one_client(server)["held"] >= 1
    assert number(batch) == 0
    assert [number(other) for other in loop] == list(range(1, 20))


# ---- bounded


@pytest.mark.timeout(300)
def test_memory_and_descriptors_do_not_grow(serve, connect, thorough):
    count = 100_000 if thorough else 10_000
    psutil = pytest.importorskip("psutil")
    server = serve(({"x": np.arange(10), "n": 1} for _ in range(count)), mode="broadcast")
    stream = connect(server)
    process = psutil.Process()
    sizes = []
    for index, _ in enumerate(stream):
        if index in (count // 4, count - 10):
            gc.collect()
            sizes.append((process.memory_info().rss, process.num_fds()))
    assert index == count - 1
    assert sizes[1][0] - sizes[0][0] < 1 << 20
    assert sizes[1][1] == sizes[0][1]


# ---- bad input


def test_an_unknown_name_is_told_with_those_that_run(serve):
    server = serve(batches(3))
    with pytest.raises(FileNotFoundError, match=server.name) as caught:
        ringbuf.connect("nobody-has-this-name", timeout=0)
    assert "nobody-has-this-name" in str(caught.value)


def test_a_name_that_is_in_use_is_refused(serve):
    server = serve(batches(3))
    with pytest.raises(FileExistsError, match="stop it or choose another name"):
        ringbuf.Server(batches(3), server.name).start()


@pytest.mark.parametrize(
    ("source", "options", "error", "text"),
    [
        (5, {}, TypeError, "RingLoader, an iterable of batches, or a callable .* got int: 5"),
        ([], {"mode": "some"}, ValueError, "mode"),
        ([], {"epochs": 0}, ValueError, "epochs"),
        ([], {"ahead": 0}, ValueError, "ahead"),
        ([], {"lag": "drop"}, ValueError, "lag should be 'block' or drop_client"),
        ([], {"lag": ringbuf.drop_client(after=2.0)}, ValueError, "mode='broadcast'"),
        ([], {"lag": ringbuf.drop_client(after=9), "mode": "broadcast"}, ValueError, "raise `ahead`"),
        (iter([]), {"epochs": 2}, ValueError, "ends once"),
        ([], {"name": None}, ValueError, "needs a name"),
        ([], {"name": "a/b"}, ValueError, "a/b"),
    ],
)
def test_a_server_refuses_bad_arguments(source, options, error, text):
    with pytest.raises(error, match=text):
        ringbuf.Server(source, **{"name": "x", **options})


@pytest.mark.parametrize("after", [0, -1, True, "2", None, float("nan")])
def test_drop_client_refuses_bad_limits(after):
    with pytest.raises(ValueError, match=r"seconds .a float. or batches"):
        ringbuf.drop_client(after=after)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": -1}, ValueError),
        ({"ahead": 0}, ValueError),
        ({"ahead": 33}, ValueError),
        ({"join": "then"}, ValueError),
        ({"keys": "x"}, ValueError),
        ({"share": "x"}, ValueError),
        ({"state": 3}, TypeError),
        ({"state": {"epoch": 0, "index": 0, "done": ["a"]}}, TypeError),
    ],
)
def test_connect_refuses_bad_arguments(serve, options, error):
    with pytest.raises(error):
        ringbuf.connect(serve(batches(3)).name, **options)


def test_a_source_that_gives_no_iterable_fails_with_its_kind(serve, connect):
    server = serve(lambda: 5)
    with pytest.raises(TypeError, match="returned no iterable of batches, but int: 5"):
        server.wait(30)


def test_a_server_runs_once(serve):
    server = serve(batches(3))
    with pytest.raises(ringbuf.RingbufError, match="runs once"):
        server.run()
    server.stop()
    server.stop()


def test_a_stream_may_stay_open_at_exit(serve, actor):
    server = serve(lambda: batches(5))
    client = actor()
    client.run(f"stream = ringbuf.connect({server.name!r}); loop = iter(stream); batch = next(loop)")
    assert client.leave() == (0, "")
    assert eventually(lambda: not server.stats()["clients"])


class Interrupt(BaseException):
    pass


@contextlib.contextmanager
def interrupted(within):
    """Interrupts all the time, within these methods of a stream. Elsewhere a test would lose batches by itself, and Python what
    is raised while it lets go of an object."""

    def interrupt(_, frame):
        names = set()
        while frame is not None:
            names.add((frame.f_code.co_name, frame.f_code.co_filename.endswith("net/client.py")))
            frame = frame.f_back
        if any((name, True) in names for name in within) and ("__del__", True) not in names:
            raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.00037)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("mode", ["split", "broadcast"])
def test_loops_can_be_left_whatever_interrupts_that(serve, connect, mode, monkeypatch):
    """The session goes on, and each loop is over a whole epoch or what is left of one."""
    # What is raised while Python lets go of an object; a hook in Python would be interrupted itself.
    monkeypatch.setattr(sys, "unraisablehook", [].append)
    stream = connect(serve(lambda epoch: batches(4, epoch), mode=mode))
    interrupts, last = 0, -1
    with interrupted(("__iter__", "close")):
        for _ in range(1000):
            loop = None
            while loop is None:
                try:
                    loop = iter(stream)
                except Interrupt:
                    interrupts += 1
            first = number(next(loop))
            assert first % 1000 == 0 and first > last
            last = first
            try:
                loop.close()
            except Interrupt:
                interrupts += 1
    assert interrupts > 5


@pytest.mark.parametrize("workers", [0, 2])
def test_a_server_may_run_still_at_exit(actor, connect, workers):
    server = actor(client=False)
    name = unique_name()
    server.run(f"server = ringbuf.Server(ringbuf.RingLoader(Squares(), 4, num_workers={workers}), {name!r}).start()")
    stream = connect(name)
    loop = iter(stream)
    batch = next(loop)
    assert server.leave() == (0, "")
    with pytest.raises(ringbuf.SessionLost):
        list(loop)
    assert batch["x"][1, 0] == 1


@pytest.mark.parametrize("mode", ["split", "broadcast"])
def test_an_interrupt_at_any_moment_loses_no_batch(serve, connect, mode, monkeypatch):
    """What a signal handler raises, as Ctrl-C does: each batch is handed out, once, and in order."""
    ignored = []  # what is raised while Python lets go of an object; a hook in Python would be interrupted itself
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    server = serve(lambda epoch: batches(900, epoch), epochs=3, ahead=16, mode=mode)
    stream = connect(server, ahead=8)
    interrupts = 0
    with interrupted(("__iter__", "__next__")):
        for epoch in range(3):
            got, loop = [], None
            while True:
                try:
                    loop = loop or iter(stream)
                    for batch in loop:
                        got.append(batch["n"])
                except Interrupt:
                    interrupts += 1
                    continue
                if len(got) == 900 or loop._token is not stream._loop:
                    break
            assert got == list(range(900)), epoch
    assert interrupts > 20
    assert all(isinstance(each.exc_value, Interrupt) for each in ignored)
