"""Deaths, stops, interrupts and failures of local servers and clients."""

import os
import random
import select
import signal
import socket
import threading

import numpy as np
import pytest
from actors import Told, batches, number, numbers_of, unique_name
from processes import eventually
from test_local import one_client, together

import ringbuf
from ringbuf.net import local
from ringbuf.net.protocol import Kind, Message, encode

# ---- clients


def test_a_killed_clients_batches_go_to_others(serve, connect, actor):
    """Whatever it had in hand or under way; none is lost, and none comes again that it was done with."""
    for taken in range(5):
        server = serve(lambda: batches(12), epochs=1)
        victim = actor()
        victim.run(f"stream = ringbuf.connect({server.name!r}, ahead=4); loop = iter(stream)")
        got = victim(f"[number(next(loop)) for _ in range({taken})]")
        assert got == list(range(taken))
        victim.kill()
        assert numbers_of(connect(server)) == list(range(max(0, taken - 1), 12))


def test_clients_killed_at_any_moment_lose_nothing(serve, connect, actor, thorough):
    count = 20_000 if thorough else 5000
    server = serve(lambda: batches(count), epochs=1)
    crowd = actor()
    crowd.run(f"""if True:
        def victim():
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    os.close(reading)
                    for batch in ringbuf.connect({server.name!r}):
                        os.write(writing, b"%d\\n" % number(batch))
                finally:
                    os._exit(1)
            os.close(writing)
            return pid, os.fdopen(reading)
        def fate(seconds):
            pid, answers = victim()
            time.sleep(seconds)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            with answers:
                return [int(line) for line in answers if line.endswith("\\n")]
    """)
    chance = random.Random(5)
    acknowledged, in_hand = [], []
    for _ in range(60 if thorough else 15):
        got = crowd(f"fate({chance.uniform(0.0, 0.03)})")
        acknowledged += got[:-1]
        in_hand += got[-1:]
    rest = numbers_of(connect(server))
    assert len(acknowledged) == len(set(acknowledged)), "given twice, after somebody was done with it"
    assert not set(rest) & set(acknowledged), "given twice, after somebody was done with it"
    assert set(rest) | set(acknowledged) | set(in_hand) == set(range(count)), "lost"
    assert len(rest) == len(set(rest))


def test_what_a_client_was_done_with_counts_although_it_died_at_once(serve, connect):
    """NEXT and the end of the connection arrive together; a batch for it could not be sent any more."""
    server = serve(lambda: batches(6), epochs=1)
    sock = local.connect(server.name)
    say(sock, Kind.HELLO, body={"version": "1"})
    say(sock, Kind.BEGIN, extra=3)
    heard = 0
    while heard < 3:
        message, _, descriptors = hear(sock)
        close_all(descriptors)
        heard += message.kind == Kind.BATCH
    paused, go_on = threading.Event(), threading.Event()
    (session,) = server._hub.sessions
    server._hub.call(lambda: (paused.set(), go_on.wait(30), server._hub.close_session(session)))
    assert paused.wait(30)
    say(sock, Kind.NEXT, seq=2, extra=6)
    sock.close()
    go_on.set()
    assert numbers_of(connect(server)) == [2, 3, 4, 5]


def test_a_client_that_goes_as_it_comes_is_not_waited_for(serve, connect):
    server = serve(lambda: batches(30), mode="broadcast", epochs=1, ahead=2)
    paused, go_on = threading.Event(), threading.Event()
    server._hub.call(lambda: (paused.set(), go_on.wait(30)))
    assert paused.wait(30)
    for _ in range(20):
        with local.connect(server.name) as sock:
            say(sock, Kind.HELLO, body={"version": "1"})
    go_on.set()
    assert numbers_of(connect(server)) == list(range(30))


def test_a_stopped_client_keeps_what_it_has_and_the_others_go_on(serve, connect, actor):
    server = serve(lambda: batches(40), epochs=1)
    sleeper = actor()
    sleeper.run(f"stream = ringbuf.connect({server.name!r}); loop = iter(stream)")
    assert sleeper("number(next(loop))") == 0
    assert eventually(lambda: one_client(server)["sent"] == 2)
    sleeper.signal(signal.SIGSTOP)
    stream = connect(server)
    loop = iter(stream)
    got = [number(next(loop)) for _ in range(38)]
    assert got == [2, *range(3, 40)][:38]
    sleeper.signal(signal.SIGCONT)
    rest = []
    thread = threading.Thread(target=lambda: rest.extend(number(batch) for batch in loop))
    thread.start()
    assert sleeper("[number(batch) for batch in loop]") in ([1], [])
    thread.join(30)
    assert not thread.is_alive()


def test_stopped_clients_do_not_starve_others(serve, connect, actor):
    """However much they have in hands or under way."""
    server = serve(lambda: batches(200), ahead=2, epochs=1)
    sleeper = actor()
    sleeper.run(f"streams = [ringbuf.connect({server.name!r}, ahead=32) for _ in range(2)]")
    sleeper.run("loops = [iter(stream) for stream in streams]; assert [number(next(loop)) for loop in loops]")
    sleeper.signal(signal.SIGSTOP)
    assert eventually(lambda: sum(client["sent"] for client in server.stats()["clients"]) >= 10)
    stream = connect(server)
    loop = iter(stream)
    got = [number(next(loop)) for _ in range(100)]
    assert len(set(got)) == 100
    rings = server._pool._rings
    assert len(rings.all()) > 1, "there were slots enough, and this shows nothing"
    sleeper.kill()
    got += [number(batch) for batch in loop]
    assert sorted(got) == list(range(200))
    assert len(rings.all()) <= 2, "memory that nobody needs any more is kept"


def test_ctrl_c_in_a_client_is_one_interrupt_and_nothing_is_lost(serve, actor):
    release = threading.Event()

    def source():
        yield from batches(3)
        release.wait(30)
        yield from batches(6, start=3)

    server = serve(source, epochs=1)
    client = actor()
    client.run(f"stream = ringbuf.connect({server.name!r}); loop = iter(stream)")
    assert client("[number(next(loop)) for _ in range(3)]") == [0, 1, 2]
    client.begin("number(next(loop))")
    assert eventually(lambda: one_client(server)["acknowledged"] == 3)
    client.ctrl_c()
    with pytest.raises(Told, match="KeyboardInterrupt"):
        client.finish()
    release.set()
    assert client("[number(batch) for batch in loop]") == [3, 4, 5]
    assert client.leave() == (0, "")


# ---- servers

DETERMINISTIC = "lambda epoch, start: batches({length}, epoch, start)"


def server_in(actor, name, length=10, **options):
    server = actor(client=False)
    server.run(f"server = ringbuf.Server({DETERMINISTIC.format(length=length)}, {name!r}, **{options!r}).start()")
    return server


@pytest.mark.parametrize("mode", ["split", "broadcast"])
def test_a_killed_server_is_a_lost_session(actor, connect, mode):
    name = unique_name()
    server = server_in(actor, name, mode=mode)
    stream = connect(name)
    loop = iter(stream)
    kept = next(loop)
    server.kill()
    with pytest.raises(ringbuf.SessionLost, match="went away; batches that were received stay valid"):
        for _ in range(10):
            next(loop)
    assert number(kept) == 0
    for call in (lambda: next(iter(stream)), lambda: iter(stream)):
        with pytest.raises(ringbuf.SessionLost):
            call()


@pytest.mark.parametrize("mode", ["split", "broadcast"])
@pytest.mark.parametrize("taken", [0, 1, 4, 10])
def test_a_client_goes_on_with_the_next_server(actor, connect, mode, taken):
    name = unique_name()
    server = server_in(actor, name, mode=mode, epochs=2)
    stream = connect(name, reconnect=True, timeout=30)
    loop = iter(stream)
    got = [number(next(loop)) for _ in range(taken)]
    server.kill()
    server_in(actor, name, mode=mode, epochs=2)
    got += [number(batch) for batch in loop]
    assert got == list(range(10))
    assert numbers_of(stream) == [1000 + index for index in range(10)]
    assert stream.stats().reconnects == 1


def test_clients_of_a_split_go_on_with_the_next_server(actor, connect):
    name = unique_name()
    server = server_in(actor, name, epochs=1, length=30)
    streams = [connect(name, reconnect=True, timeout=30) for _ in range(3)]
    loops = [iter(stream) for stream in streams]
    got = [number(next(loop)) for _ in range(3) for loop in loops]
    server.kill()
    server_in(actor, name, epochs=1, length=30)
    parts = together(loops, lambda loop: [number(batch) for batch in loop])
    everything = got + [value for part in parts for value in part]
    assert sorted(set(everything)) == list(range(30))
    # What the server alone knew is gone with it: of each other client's last word, what that one had not heard of yet.
    assert len(everything) <= 30 + 9


def test_clients_of_a_broadcast_go_on_with_the_next_server(actor, connect):
    """They are not at the same place; the source begins where the one that is behind needs it."""
    name = unique_name()
    server = server_in(actor, name, epochs=1, mode="broadcast", clients=2)
    streams = [connect(name, reconnect=True, timeout=30) for _ in range(2)]
    loops = [iter(stream) for stream in streams]
    fast = [number(next(loops[0])) for _ in range(5)]
    slow = [number(next(loops[1])) for _ in range(2)]
    server.kill()
    server_in(actor, name, epochs=1, mode="broadcast", clients=2)
    fast_rest, slow_rest = together(loops, lambda loop: [number(batch) for batch in loop])
    assert fast + fast_rest == slow + slow_rest == list(range(10))


def test_a_stopped_server_says_so(serve, connect):
    server = serve(lambda: batches(30))
    stream = connect(server)
    loop = iter(stream)
    kept = next(loop)
    server.stop()
    with pytest.raises(ringbuf.SessionLost, match="the server was stopped"):
        list(loop)
    assert number(kept) == 0
    with pytest.raises(FileNotFoundError):
        connect(server, timeout=0)


def test_the_name_of_a_killed_server_is_free_though_its_workers_live(actor, connect):
    """Workers are forked from it: they must not keep its name, or its connections, open."""
    name = unique_name()
    server = actor(client=False)
    server.run("""if True:
        class Slow(Squares):
            def __getitem__(self, index):
                if index >= 8:
                    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
                    time.sleep(20)
                return super().__getitem__(index)
        import ctypes
        loader = ringbuf.RingLoader(Slow(), 4, num_workers=2, worker_init_fn=lambda _: ctypes.CDLL(None).prctl(1, 0))
    """)
    server.run(f"server = ringbuf.Server(loader, {name!r}).start()")
    stream = connect(name)
    loop = iter(stream)
    next(loop)
    server.kill()
    with pytest.raises(ringbuf.SessionLost):
        list(loop)
    with ringbuf.Server(batches(3), name):
        assert numbers_of(connect(name)) == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_in_a_server_is_one_interrupt_without_noise(actor, connect, workers):
    name = unique_name()
    server = actor(client=False)
    source = f"ringbuf.RingLoader(Squares(1000), 4, num_workers={workers})" if workers else "lambda: batches(900)"
    server.run(f"server = ringbuf.Server({source}, {name!r})")
    server.begin("server.run()")
    stream = connect(name)
    loop = iter(stream)
    for _ in range(3):
        next(loop)
    server.ctrl_c()
    with pytest.raises(Told, match="KeyboardInterrupt"):
        server.finish()
    with pytest.raises(ringbuf.SessionLost, match="was stopped"):
        list(loop)
    code, said = server.leave()
    assert (code, said) == (0, ""), said


# ---- sources


class Odd(Exception):
    pass


def failing(after):
    yield from batches(after)
    raise Odd("no \x1b[31m more")


def test_a_source_that_raises_is_told_to_each_client(serve, connect):
    fail = threading.Event()

    def source():
        yield from batches(4)
        fail.wait(30)
        yield from failing(0)

    server = serve(source, mode="broadcast", clients=3)
    streams = [connect(server) for _ in range(3)]
    loops = [iter(stream) for stream in streams]
    assert together(loops, lambda loop: [number(next(loop)) for _ in range(4)]) == [[0, 1, 2, 3]] * 3
    fail.set()
    for stream, loop in zip(streams, loops):
        with pytest.raises(ringbuf.SourceFailed) as caught:
            next(loop)
        assert caught.value.kind == "test_local_faults.Odd"
        assert caught.value.text == "no \\x1b[31m more"
        assert "in failing" in caught.value.traceback and "\x1b" not in str(caught.value)
        with pytest.raises(ringbuf.SourceFailed):
            iter(stream)
    with pytest.raises(Odd):
        server.wait(30)


def test_run_raises_what_the_source_raised():
    with pytest.raises(Odd):
        ringbuf.Server(failing(0), unique_name()).run()  # and nobody is there


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_source_that_wants_to_exit_fails_too(serve, connect, error):
    reached = threading.Event()

    def source():
        yield from batches(1)
        reached.wait(30)
        raise error

    server = serve(source)
    loop = iter(connect(server))
    next(loop)
    reached.set()
    with pytest.raises(ringbuf.SourceFailed, match=type(error).__name__):
        next(loop)
    with pytest.raises(type(error)):
        server.wait(30)


def test_a_dead_worker_is_told_to_clients(actor, connect, tmp_path):
    name = unique_name()
    server = actor(client=False)
    server.run(f"""if True:
        class Deadly(Squares):
            def __getitem__(self, index):
                if index == 21:
                    while not os.path.exists({str(tmp_path / "somebody is there")!r}):
                        time.sleep(0.01)
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().__getitem__(index)
    """)
    server.run(f"server = ringbuf.Server(ringbuf.RingLoader(Deadly(), 4, num_workers=2), {name!r}).start()")
    stream = connect(name)
    (tmp_path / "somebody is there").touch()
    with pytest.raises(ringbuf.SourceFailed, match=r"WorkerDied.*SIGKILL") as caught:
        list(stream)
    assert caught.value.kind == "ringbuf.WorkerDied"
    with pytest.raises(Told, match="WorkerDied"):
        server("server.wait(30)")


def test_a_worker_that_is_restarted_is_not_noticed(actor, connect, tmp_path):
    name = unique_name()
    server = actor(client=False)
    server.run(f"""if True:
        class DeadlyOnce(Squares):
            def __getitem__(self, index):
                if index == 21:
                    try:
                        os.close(os.open({str(tmp_path / "died")!r}, os.O_CREAT | os.O_EXCL))
                        os.kill(os.getpid(), signal.SIGKILL)
                    except FileExistsError:
                        pass
                return super().__getitem__(index)
        loader = ringbuf.RingLoader(DeadlyOnce(), 4, num_workers=2, on_worker_death="restart")
    """)
    server.run(f"server = ringbuf.Server(loader, {name!r}, epochs=1).start()")
    got = [batch["x"][:, 0].tolist() for batch in connect(name)]
    assert got == [list(range(first, first + 4)) for first in range(0, 40, 4)]
    assert (tmp_path / "died").exists()


@pytest.mark.parametrize(
    "source",
    [
        "ringbuf.RingLoader(Squares(), 4)",
        "ringbuf.RingLoader(Squares(), 4, num_workers=2, slots=4)",
        "ringbuf.RingLoader(Squares(), 4, num_workers=2, persistent_workers=True)",
        "lambda: ringbuf.RingLoader(Squares(), 4, num_workers=2)",
        "ringbuf.RingLoader(Stream(), 4, num_workers=1)",
        "ringbuf.RingLoader(Spotty(), 4, num_workers=2, on_error='skip')",
        "__import__('ringbuf.torch').torch.RingLoader(Squares(), 4, num_workers=2)",
    ],
)
def test_loaders_of_all_kinds_can_be_served(actor, connect, source):
    if "torch" in source:
        pytest.importorskip("torch")
    name = unique_name()
    server = actor(client=False)
    server.run("""if True:
        import warnings
        warnings.filterwarnings("ignore", "RingLoader: 3 of 4 slots")  # slots=4 are few, and it says so
        class Stream:
            def __iter__(self):
                return (Squares()[index] for index in range(40))
        class Spotty(Squares):
            def __getitem__(self, index):
                if index == 999:
                    raise ValueError("rotten")
                return super().__getitem__(index)
    """)
    server.run(f"server = ringbuf.Server({source}, {name!r}, epochs=2).start()")
    stream = connect(name)
    for _ in range(2):
        assert [int(row[0]) for batch in stream for row in batch["x"]] == list(range(40))
    assert server("server.wait(30)")


# ---- slow clients


def slow_and_fast(serve, connect, **options):
    server = serve(lambda: batches(60), mode="broadcast", epochs=1, clients=2, ahead=4, **options)
    fast, slow = connect(server), connect(server, label="slow")
    return server, fast, slow, iter(fast), iter(slow)


def test_a_slow_client_is_waited_for_and_its_lag_is_seen(serve, connect):
    server, _, _, fast, slow = slow_and_fast(serve, connect)
    kept = next(slow)
    got = []
    thread = threading.Thread(target=lambda: got.extend(number(batch) for batch in fast))
    thread.start()
    lag = lambda: {client["label"]: client["lag"] for client in server.stats()["clients"]}  # noqa: E731
    assert eventually(lambda: lag()["slow"] >= 4 and max(lag(), key=lag().get) == "slow")
    assert server.stats()["ready"] <= 4 and len(got) < 10
    assert [number(batch) for batch in slow] == list(range(1, 60))
    thread.join(30)
    assert got == list(range(60)) and number(kept) == 0


@pytest.mark.parametrize("after", [2, 0.5])
def test_a_slow_client_is_given_up_and_keeps_what_it_has(serve, connect, after):
    server, _, stream, fast, slow = slow_and_fast(serve, connect, lag=ringbuf.drop_client(after=after))
    kept = [next(slow)]
    assert [number(batch) for batch in fast] == list(range(60))
    with pytest.raises(ringbuf.ClientDropped, match="batches behind"):
        while True:
            kept.append(next(slow))
    assert 1 <= len(kept) <= 4
    assert [number(batch) for batch in kept] == list(range(len(kept)))
    assert server.stats()["dropped"] == 1
    with pytest.raises(ringbuf.ClientDropped):
        iter(stream)


@pytest.mark.parametrize("clients", [1, 2])
def test_nobody_is_given_up_while_nobody_waits_for_it(serve, connect, clients):
    """They may all rest."""
    server = serve(lambda: batches(60), mode="broadcast", clients=clients, ahead=4, lag=ringbuf.drop_client(after=0.05))
    loops = [iter(connect(server)) for _ in range(clients)]
    together(loops, lambda loop: next(loop))
    assert eventually(lambda: server.stats()["ready"] == 4)
    rounds = server._hub.dispatcher.is_late
    asked = []
    server._hub.dispatcher.is_late = lambda session, now, **limits: asked.append(now) or rounds(session, now, **limits)
    assert eventually(lambda: asked and asked[-1] - asked[0] > 0.3)
    assert server.stats()["dropped"] == 0
    together(loops, lambda loop: next(loop))


def test_who_was_given_up_is_told(serve, connect):
    server = serve(lambda epoch: batches(50, epoch), mode="broadcast", clients=2, lag=ringbuf.drop_client(after=3), epochs=1)
    slow, fast = connect(server, label="sluggish"), connect(server, label="fast")
    loop = iter(slow)
    next(loop)
    assert len(numbers_of(fast)) == 50
    assert server.dropped == ("sluggish",)


def test_what_a_dropped_client_holds_is_not_written_over(serve, connect):
    server = serve(lambda epoch: batches(100, epoch), mode="broadcast", clients=2, ahead=4, lag=ringbuf.drop_client(after=2))
    fast, slow = connect(server), connect(server)
    loop, slow_loop = iter(fast), iter(slow)
    kept = [next(slow_loop)]
    for _ in loop:
        pass
    with pytest.raises(ringbuf.ClientDropped):
        while True:
            kept.append(next(slow_loop))
    for _ in range(5):
        numbers_of(fast)
    assert [number(batch) for batch in kept] == list(range(len(kept)))
    assert server._neighbours.parted == 1
    kept.clear()
    assert eventually(lambda: not server._neighbours.parted)


def test_a_stopped_client_is_given_up(serve, connect, actor):
    server = serve(lambda epoch: batches(100, epoch), mode="broadcast", clients=2, lag=ringbuf.drop_client(after=0.5))
    sleeper = actor()
    sleeper.run(f"stream = ringbuf.connect({server.name!r}); loop = iter(stream)")
    stream = connect(server)
    sleeper.run("kept = [next(loop)]")
    sleeper.signal(signal.SIGSTOP)
    loop = iter(stream)
    assert [number(batch) for batch in loop] == list(range(100))
    assert numbers_of(stream) == [1000 + index for index in range(100)]
    sleeper.signal(signal.SIGCONT)
    with pytest.raises(Told, match="ClientDropped"):
        sleeper.run("while True: kept.append(next(loop))")
    assert sleeper("[number(batch) for batch in kept]")[0] == 0
    sleeper.kill()
    assert eventually(lambda: not server._neighbours.parted)


# ---- places


@pytest.mark.parametrize("mode", ["split", "broadcast"])
@pytest.mark.parametrize("taken", [0, 3, 10])
@pytest.mark.parametrize("load", [False, True])
def test_a_client_begins_where_another_one_was(serve, connect, mode, taken, load):
    source = lambda epoch, start: batches(10, epoch, start)  # noqa: E731
    first = connect(serve(source, mode=mode))
    assert len(numbers_of(first)) == 10
    loop = iter(first)
    got = [number(next(loop)) for _ in range(taken)]
    state = first.state_dict()
    assert state == {"epoch": 1, "index": taken, "done": []}
    server = serve(source, mode=mode)
    if load:
        second = connect(server)
        second.load_state_dict(state)
    else:
        second = connect(server, state=state)
    assert got + numbers_of(second) == [1000 + index for index in range(10)]
    assert number(next(iter(second))) == 2000
    with pytest.raises(ringbuf.RingbufError, match="has begun cannot be moved"):
        second.load_state_dict(state)


def shuffled(generator=0, **options):
    return ringbuf.RingLoader(np.arange(24), 2, shuffle=True, generator=generator, **options)


@pytest.mark.parametrize("mode", ["split", "broadcast"])
@pytest.mark.parametrize("source", [shuffled, lambda: shuffled(), lambda epoch: shuffled(epoch)], ids=["loader", "made", "anew"])
@pytest.mark.parametrize(("epoch", "taken"), [(0, 5), (1, 0), (2, 5)])
def test_a_shuffled_loader_goes_on_in_the_order_that_it_had(serve, connect, mode, source, epoch, taken):
    """Though the new server's began with epoch 0 before anybody asked for another place."""

    def serve_it():
        return serve(shuffled() if source is shuffled else source, mode=mode)

    def orders(stream, count):
        return [[batch.tolist() for batch in stream] for _ in range(count)]

    whole = orders(connect(serve_it()), 4)
    assert len({str(order) for order in whole}) == 4
    server = serve_it()
    assert eventually(lambda: server.stats()["produced"] > 0)
    stream = connect(server, state={"epoch": epoch, "index": taken, "done": []})
    assert orders(stream, 2) == [whole[epoch][taken:], whole[epoch + 1]]


def test_a_place_that_the_source_cannot_go_to_is_refused(serve, connect):
    with pytest.raises(ringbuf.SessionLost, match="cannot begin at batch 3 of epoch 0"):
        connect(serve(batches(10)), state={"epoch": 0, "index": 3, "done": []})
    server = serve(lambda epoch: batches(10, epoch), mode="broadcast", ahead=2)
    stream = connect(server)
    numbers_of(stream)
    with pytest.raises(ringbuf.SessionLost, match="batch 3 of epoch 0 was given up already"):
        connect(server, state={"epoch": 0, "index": 3, "done": []})


def test_the_state_of_a_late_client_is_its_own_place(serve, connect):
    server = serve(lambda epoch: batches(10, epoch), mode="broadcast", ahead=2)
    first = connect(server)
    numbers_of(first)
    loop = iter(first)
    for _ in range(5):
        next(loop)
    late = connect(server)
    assert late.epoch == 1 and late.state_dict()["epoch"] == 1
    loop_of_late = iter(late)
    place = number(next(loop_of_late))
    assert late.state_dict() == {"epoch": 1, "index": place % 1000 + 1, "done": []}


# ---- at the same time


def test_stats_can_be_asked_for_at_any_time(serve, connect):
    server = serve(lambda epoch: batches(150, epoch), mode="broadcast", clients=4, epochs=2)
    over = threading.Event()
    failures = []

    def ask():
        try:
            while not over.is_set():
                for client in server.stats()["clients"]:
                    assert client["acknowledged"] <= client["sent"] and client["lag"] >= 0
        except BaseException as error:
            failures.append(error)

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    together([connect(server) for _ in range(4)], lambda stream: [numbers_of(stream) for _ in range(2)])
    assert server.wait(30)
    over.set()
    for asker in askers:
        asker.join(30)
    assert not failures
    assert server.stats()["produced"] == 300


def test_stop_while_run_serves(connect):
    for _ in range(10):
        server = ringbuf.Server(lambda: batches(500), unique_name())
        failures = []

        def run(server=server, failures=failures):
            try:
                server.run()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        stream = connect(server, timeout=30)
        loop = iter(stream)
        next(loop)
        server.stop()
        thread.join(30)
        assert not thread.is_alive() and not failures
        with pytest.raises(ringbuf.SessionLost):
            list(loop)


def say(sock, kind, body=None, **fields):
    sock.sendmsg([encode(Message(kind, **fields), body)], [], socket.MSG_NOSIGNAL)


def hear(sock, within_s=30):
    assert select.select([sock], [], [], within_s)[0], "nothing was said"
    return local.receive(sock)


def close_all(descriptors):
    for descriptor in descriptors:
        os.close(descriptor)


def test_arrays_too_large_for_any_memory_fail_the_source(serve, connect):
    somebody_is_there = threading.Event()

    def source():
        yield np.zeros(10)
        somebody_is_there.wait(30)
        yield np.broadcast_to(np.zeros(1), (1 << 40,))

    stream = connect(serve(source))
    somebody_is_there.set()
    with pytest.raises(ringbuf.SourceFailed, match=r"memory|space|bytes"):
        list(stream)


@pytest.mark.parametrize("character", ["\u00e9", "\U0001f600", '"', "\\"])
def test_a_long_text_of_the_source_reaches_clients_however_it_is_written(serve, connect, character):
    connected = threading.Event()

    def source():
        connected.wait()
        raise RuntimeError(character * 20_000)
        yield

    server = serve(source)
    stream = connect(server)
    connected.set()
    with pytest.raises(ringbuf.SourceFailed, match="RuntimeError"):
        list(stream)


@pytest.mark.parametrize("mode", ["split", "broadcast"])
def test_a_source_that_began_for_nobody_begins_where_the_next_client_was(serve, connect, mode):
    server = serve(lambda epoch: batches(4), mode=mode, epochs=2)
    connect(server, state={"epoch": 1, "index": 2, "done": []}).close()
    stream = connect(server, state={"epoch": 0, "index": 0, "done": []})
    assert [len(list(stream)) for _ in range(2)] == [4, 4]
