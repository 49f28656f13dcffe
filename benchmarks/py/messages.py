"""Small messages between processes: 64 bytes, from one or two producers to a consumer, and there and back.

    python -m benchmarks.py --only messages                 # with the other parts of the benchmark
    python -m benchmarks.py.messages ring 100000 2000       # one run of one peer: messages, and round trips

Measured: messages per second, from the moment the producers, already running, are told to go to the arrival of the last
message; and the time of a round trip by two channels, one message under way. Every message is compared with what was
sent, afterwards. Not measured: larger messages, several consumers, a consumer that is slower than its producers.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from statistics import quantiles
from typing import Any

from benchmarks.py.channels import NAMES
from benchmarks.py.turns import in_fresh_process

SIZE = 64
CHUNK = 500
COUNTS = {"quick": (100_000, 3_000), "full": (400_000, 20_000), "tiny": (2_000, 50)}

fork = multiprocessing.get_context("fork")


def numbered(producer: int, count: int) -> list[bytes]:
    """The messages of a producer, each different."""
    return [(producer << 32 | number).to_bytes(8, "little") * (SIZE // 8) for number in range(count)]


def rate(module: Any, producers: int, count: int) -> float:
    """Messages per second. ValueError says which message was lost, doubled, overtaken or changed."""
    channel, ready, go = module.Channel(), fork.Semaphore(0), fork.Semaphore(0)
    with _running([(_produce, (channel, numbered(k, count), ready, go)) for k in range(producers)]):
        receive = channel.receiver()
        for _ in range(producers):
            ready.acquire()
        start = time.perf_counter()
        for _ in range(producers):
            go.release()
        got: list[bytes] = []
        while len(got) < producers * count:
            got += receive(min(CHUNK, producers * count - len(got)))
        elapsed = time.perf_counter() - start
    channel.close()
    _check(got, producers, count)
    return producers * count / elapsed


def _produce(channel: Any, messages: list[bytes], ready: Any, go: Any) -> None:
    send = channel.sender()
    ready.release()
    go.acquire()
    for first in range(0, len(messages), CHUNK):
        send(messages[first : first + CHUNK])
    signal.pause()  # until it is killed: some have threads that still have to send


def _check(got: list[bytes], producers: int, count: int) -> None:
    """Each producer's messages in their order, whatever the order between producers."""
    if len(got) != producers * count:
        raise ValueError(f"{producers * count} messages were due, {len(got)} arrived")
    expected = [iter(numbered(k, count)) for k in range(producers)]
    for place, message in enumerate(got):
        producer = int.from_bytes(message[4:8], "little")
        want = next(expected[producer], None) if producer < producers else None
        if message != want:
            raise ValueError(f"message {place} of {len(got)} should be {want!r}, got {message!r}")


def round_trips(module: Any, count: int) -> list[float]:
    """Seconds of each."""
    there, back = module.Channel(), module.Channel()
    messages = numbered(0, count)
    with _running([(_echo, (there, back))]):
        send, receive = _open_in_turn(there, back)
        times = []
        for message in messages:
            start = time.perf_counter()
            send([message])
            (answer,) = receive(1)
            times.append(time.perf_counter() - start)
            if answer != message:
                raise ValueError(f"sent {message!r}, {answer!r} came back")
    there.close()
    back.close()
    return times[count // 10 :]


def _open_in_turn(there: Any, back: Any) -> tuple[Any, Any]:
    receive = back.receiver()
    return there.sender(), receive


def _echo(there: Any, back: Any) -> None:
    receive = there.receiver()
    send = back.sender()
    while True:
        send(receive(1))


@contextmanager
def _running(tasks: list[tuple[Any, tuple[Any, ...]]]) -> Iterator[None]:
    processes = [fork.Process(target=target, args=args, daemon=True) for target, args in tasks]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def measure(name: str, count: int, trips: int) -> dict[str, Any]:
    """One run of one peer. Rates in messages per second, times of round trips in seconds."""
    try:
        module = import_module(f"benchmarks.py.channels.{NAMES[name]}")
    except ImportError as error:
        return {"skipped": str(error)}
    several = getattr(module, "PRODUCERS", 2) > 1
    times = quantiles(round_trips(module, trips), n=100)
    return {
        "label": module.LABEL,
        "versions": module.versions(),
        "1p1c": rate(module, 1, count),
        "2p1c": rate(module, 2, count // 2) if several else None,
        "p50_s": times[49],
        "p99_s": times[98],
    }


def command(name: str, count: int, trips: int) -> list[str]:
    """The command line that makes a fresh interpreter do it."""
    return [sys.executable, "-m", "benchmarks.py.messages", name, str(count), str(trips)]


def take_turns(rounds: int, size: str, peers: list[str] | None = None) -> dict[str, Any]:
    """Run every peer once in each round; the result has the shape of that of loaders.take_turns, with one cell."""
    result: dict[str, Any] = {"peers": {}, "skipped": {}, "failures": {}, "versions": {}}
    for number in range(rounds):
        for name in peers or NAMES:
            if name in result["skipped"] or name in result["failures"]:
                continue
            try:
                run = in_fresh_process(command(name, *COUNTS[size]))
            except RuntimeError as error:
                result["failures"][name] = str(error)
                result["peers"].pop(name, None)
                print(f"round {number + 1} of {rounds}: messages, {name} failed: {error}", flush=True)
                continue
            if "skipped" in run:
                result["skipped"][name] = run["skipped"]
                print(f"round {number + 1} of {rounds}: messages, {name} is skipped: {run['skipped']}", flush=True)
                continue
            result["versions"] |= run.pop("versions")
            entry = result["peers"].setdefault(name, {"label": run.pop("label"), "runs": []})
            run.pop("label", None)
            entry["runs"].append(run)
            print(
                f"round {number + 1} of {rounds}: messages, {name:18} {run['1p1c'] / 1e3:7.0f} k/s, "
                f"round trip {run['p50_s'] * 1e6:.1f} us",
                flush=True,
            )
    return result


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], *map(int, sys.argv[2:]))))
