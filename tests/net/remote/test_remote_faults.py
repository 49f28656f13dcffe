"""What becomes of batches when clients, relays, servers and networks fail. Each over real TCP."""

import os
import random
import resource
import select
import signal
import socket
import sys
import threading

import numpy as np
import pytest
import zmq
from processes import eventually

import ringbuf
from ringbuf.net import dial
from ringbuf.net.protocol import Kind, Message, decode, encode
from ringbuf.net.relay import Relay

SOURCE = "import numpy as np\nsource = lambda: (np.full(50_000, index) for index in range({count}))"

CLIENT = """
import sys, ringbuf
stream = ringbuf.connect(sys.argv[1], reconnect=len(sys.argv) > 2)
print(stream._dial._relay, flush=True)
for batch in stream:
    print(int(batch[0]), flush=True)
    if not sys.stdin.readline():
        break
print("end", flush=True)
"""


def indices(count):
    return lambda: (np.full(50_000, index) for index in range(count))


def numbers(stream):
    """All of an epoch, each batch sound."""
    got = []
    for batch in stream:
        assert (batch == batch[0]).all()
        got.append(int(batch[0]))
    return got


def run_client(program, address, *arguments, batches=3):
    """A client in a process of its own, that has a batch in hand: (program, its relay, what it was done with, in hand)."""
    client = program(CLIENT, address, *arguments)
    relay = int(client.line())
    got = [int(client.line())]
    for _ in range(batches - 1):
        client.say()
        got.append(int(client.line()))
    return client, relay, got[:-1], got[-1]


@pytest.mark.parametrize("victims", ["trainer", "relay", "both"])
def test_batches_of_the_dead_go_to_others_and_what_was_done_does_not(serve, connect, program, victims):
    server = serve(
        indices(40), epochs=1, grace=60.0 if victims == "trainer" else 0.5
    )  # a relay that lives says it at once
    client, relay, done, in_hand = run_client(program, server.address)
    # What the server has not heard of yet when both die may come again.
    assert eventually(lambda: [client["acknowledged"] for client in server.stats()["clients"]] == [len(done)])
    if victims in ("trainer", "both"):
        client.kill()
    if victims in ("relay", "both"):
        os.kill(relay, signal.SIGKILL)
    others = numbers(connect(server.address))
    assert sorted(done + others) == list(range(40))
    assert in_hand in others


def test_a_relay_that_finds_its_trainer_gone_when_a_batch_comes_says_so(serve, request):
    server = serve(indices(40), epochs=1, grace=60.0)
    trainer, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    context = zmq.Context()
    request.addfinalizer(lambda: (context.destroy(linger=0), trainer.close(), end.close()))
    relay = Relay(end, context, server.address, None, 30.0)

    def hear():
        assert eventually(lambda: relay.work() or select.select([trainer], [], [], 0.01)[0])
        return trainer.recv(1 << 16)

    assert hear() == b"{}"  # it is connected
    trainer.send(encode(Message(Kind.HELLO), {"version": "0", "label": "trainer", "join": "now"}))
    assert decode(hear())[0].kind == Kind.WELCOME
    relay._read = lambda: None  # nobody looks at the trainer before a batch is there
    relay._from_trainer(Message(Kind.BEGIN, extra=2), memoryview(b""))
    trainer.close()
    assert eventually(lambda: relay.work() or relay.over)
    assert eventually(lambda: not server.stats()["clients"])


def test_a_trainer_whose_relay_is_killed_is_told(serve, program, connect):
    server = serve(indices(20), epochs=1, grace=0.5)
    client, relay, _, _ = run_client(program, server.address)
    os.kill(relay, signal.SIGKILL)
    client.say("\n" * 20)  # it takes what was on its way before it hears of it
    code, errors = client.end()
    assert code == 1 and "SessionLost: the server 'tcp://127.0.0.1:" in errors and "went away" in errors


def test_a_trainer_whose_relay_is_killed_goes_on_with_another_if_it_wants(serve, program):
    server = serve(indices(20), epochs=1, grace=0.5)
    client, relay, done, in_hand = run_client(program, server.address, "reconnect")
    os.kill(relay, signal.SIGKILL)
    got = [*done, in_hand]
    while True:
        client.say()
        line = client.line()
        if line == "end":
            break
        got.append(int(line))
    assert sorted(got) == list(range(20))
    assert client.end()[0] == 0


def test_a_session_outlives_its_connection(serve, connect, proxy):
    """Cut again and again in the midst of batches: none is lost, none comes twice, and nobody notices."""
    server = serve(lambda: (np.full(400_000, index) for index in range(120)), epochs=1)
    between = proxy(server.address)
    stream = connect(between.address)
    got = []
    for batch in stream:
        assert (batch == batch[0]).all()
        got.append(int(batch[0]))
        if len(got) % 20 == 0:
            between.drop()
    assert got == list(range(120))
    assert between.connections > 3 and server.stats()["served"] == 1 and stream.stats().reconnects == 0


@pytest.mark.parametrize("mode", ["split", "broadcast"])
def test_a_connection_that_is_cut_for_a_while_goes_on(serve, connect, proxy, mode):
    server = serve(indices(60), epochs=1, mode=mode, grace=60.0)
    between = proxy(server.address)
    loop = iter(connect(between.address))
    got = [int(next(loop)[0]) for _ in range(10)]
    between.cut()
    session = server._hub.sessions[0]
    assert eventually(lambda: session.wire.connection is None)
    threading.Timer(0.5, between.restore).start()
    got += [int(batch[0]) for batch in loop]
    assert got == list(range(60)) and server.stats()["served"] == 1


def test_a_way_that_takes_long_and_now_and_then_much_longer(serve, connect, proxy):
    """As 200 ms of delay and losses look from above TCP."""
    server = serve(indices(40), epochs=1)
    between = proxy(server.address)
    chance = random.Random(3)
    between.delay_s = lambda: 0.1 + (0.6 if chance.random() < 0.05 else 0.0)
    stream = connect(between.address, timeout=30, ahead=8)
    assert numbers(stream) == list(range(40))
    assert server.stats()["served"] == 1 and stream.stats().reconnects == 0


def test_after_the_grace_time_batches_go_to_others(serve, connect, proxy):
    server = serve(indices(30), epochs=1, grace=0.3)
    between = proxy(server.address)
    lost = connect(between.address)
    loop = iter(lost)
    done = [int(next(loop)[0]) for _ in range(4)][:-1]  # the fourth is in hand
    assert eventually(lambda: server.stats()["clients"][0]["acknowledged"] == 3)
    between.cut()
    assert sorted(done + numbers(connect(server.address))) == list(range(30))
    with pytest.raises(ringbuf.SessionLost, match=r"could not be reached for 0\.3 s"):
        list(loop)


def test_a_session_that_was_given_up_is_not_taken_up_again(serve, connect, proxy):
    server = serve(indices(30), epochs=1, grace=0.2)
    between = proxy(server.address)
    loop = iter(connect(between.address))
    next(loop)
    between.cut()
    assert eventually(lambda: not server.stats()["clients"])
    between.restore()
    with pytest.raises(ringbuf.SessionLost):
        list(loop)


def test_a_server_that_was_killed_and_started_anew_does_not_know_the_client(server_program, connect):
    text = SOURCE.format(count=30)
    server, address = server_program(text)
    stream = connect(address)
    loop = iter(stream)
    next(loop)
    server.kill()
    server.end()
    server_program(text, bind=address)
    with pytest.raises(ringbuf.SessionLost, match="does not know this session"):
        list(loop)


def test_with_reconnect_a_client_goes_on_where_it_was(server_program, connect):
    text = SOURCE.format(count=30)
    server, address = server_program(text, epochs=2)
    stream = connect(address, reconnect=True)
    loop = iter(stream)
    got = [int(next(loop)[0]) for _ in range(7)]
    server.kill()
    server.end()
    server_program(text, bind=address, epochs=2)
    got += [int(batch[0]) for batch in loop]
    assert got == list(range(30)) and stream.stats().reconnects == 1
    assert numbers(stream) == list(range(30))


def test_every_client_is_told_what_the_source_raised(serve, connect):
    there = threading.Event()

    def source():
        yield np.zeros(3)
        there.wait(30)
        raise LookupError("no such image: 7.png")

    server = serve(source, mode="broadcast", clients=2)
    streams = [connect(server.address) for _ in range(2)]
    there.set()
    for stream in streams:
        with pytest.raises(ringbuf.SourceFailed, match=r"7\.png") as failure:
            list(stream)
        assert failure.value.kind == "LookupError" and "in source" in failure.value.traceback
    with pytest.raises(LookupError):
        server.wait(30)


def test_a_client_that_is_stopped_holds_up_nobody_in_split(serve, connect, program):
    server = serve(indices(40), epochs=2)
    client, _, done, _ = run_client(program, server.address)
    os.kill(client.pid, signal.SIGSTOP)
    got = []
    loop = iter(connect(server.address))
    while len(got) < 40 - len(done) - 4:  # all but what lies with the other
        got.append(int(next(loop)[0]))
    os.kill(client.pid, signal.SIGKILL)
    got += [int(batch[0]) for batch in loop]
    assert sorted(done + got) == list(range(40))


def test_a_client_of_a_broadcast_that_is_too_slow_is_dropped(serve, connect):
    server = serve(indices(60), mode="broadcast", clients=2, epochs=1, lag=ringbuf.drop_client(after=4), ahead=8)
    slow, quick = connect(server.address), connect(server.address)
    loop = iter(slow)
    first = next(loop)
    assert numbers(quick) == list(range(60))
    with pytest.raises(ringbuf.ClientDropped, match="batches behind"):
        list(loop)
    assert (first == 0).all() and server.stats()["dropped"] == 1


def test_the_servers_memory_is_bounded_by_what_clients_asked_for(serve, connect):
    """Clients that never go on: the source is asked for no more than is kept ready, and what they have room for."""
    given = []

    def source():
        for index in range(10_000):
            given.append(index)
            yield np.full(20_000, index)

    server = serve(source, ahead=4)
    loops = [iter(connect(server.address, ahead=2)) for _ in range(5)]
    [next(loop) for loop in loops]
    assert eventually(lambda: server.stats()["ready"] == 4)
    assert len(given) <= 5 * 3 + 4 + 1
    assert all(client["lag"] <= 3 for client in server.stats()["clients"])


def test_ctrl_c_in_a_trainer_is_one_keyboard_interrupt(serve, program, connect):
    server = serve(indices(30), epochs=1)
    text = """
import sys, ringbuf
stream = ringbuf.connect(sys.argv[1])
try:
    for batch in stream:
        print(int(batch[0]), flush=True)
    for batch in stream:
        pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    hold = connect(server.address)
    held = next(iter(hold))  # so that the epoch does not end
    client = program(text, server.address, start_new_session=True)
    got = [client.line() for _ in range(10)]
    assert got and (held == held[0]).all()
    os.killpg(client.pid, signal.SIGINT)
    code, errors = client.end()
    assert (code, errors) == (0, "")


def test_ctrl_c_in_a_server_ends_it_and_clients_are_told(server_program, connect, program):
    text = """
import sys, numpy as np, ringbuf
server = ringbuf.Server(lambda: (np.zeros(9) for _ in range(100)), bind="tcp://127.0.0.1:0")
server.start()
print(server.address, flush=True)
try:
    server.wait()
except KeyboardInterrupt:
    server.stop()
    print("stopped", flush=True)
"""
    server = program(text, start_new_session=True)
    stream = connect(server.line())
    next(iter(stream))
    os.killpg(server.pid, signal.SIGINT)
    with pytest.raises(ringbuf.SessionLost, match="the server was stopped"):
        while True:
            list(stream)
    assert server.line() == "stopped"
    assert server.end() == (0, "")


def test_a_relay_ends_when_its_trainer_is_killed_even_if_a_child_of_that_lives(serve, program):
    text = """
import os, sys, time, ringbuf
stream = ringbuf.connect(sys.argv[1])
loop = iter(stream)
next(loop)
child = os.fork()
if child == 0:
    sys.stdin.readline()
    os._exit(0)
print(child, flush=True)
time.sleep(60)
"""
    server = serve(indices(10), grace=60.0)
    client = program(text, server.address)
    client.line()
    client.kill()
    assert eventually(lambda: not server.stats()["clients"])


@pytest.mark.timeout(300)  # each has a relay, which is a process that has to start
def test_fifty_clients_at_once(serve):
    count = 50
    server = serve(lambda: (np.array([index]) for index in range(200)), epochs=1)
    got, failures = [], []
    all_there = threading.Barrier(count)

    def one():
        try:
            with ringbuf.connect(server.address, timeout=200) as stream:
                all_there.wait(200)
                got.extend(int(batch[0]) for batch in stream)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    [thread.start() for thread in threads]
    [thread.join(250) for thread in threads]
    assert not failures and sorted(got) == list(range(200))


def test_a_relay_is_waited_for_in_a_process_with_many_descriptors():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 2048:
        pytest.skip("this process may not have so many descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2048, limits[0]), limits[1]))
    descriptors = []
    try:
        while not descriptors or descriptors[-1] < 1024:
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
        child = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
        dial._bury(child)
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
