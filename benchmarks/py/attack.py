"""Whether a client keeps its rate while somebody floods its server.

    python -m benchmarks.py.attack                 # some two minutes on two cores
    python -m benchmarks.py.attack --windows 3

A server, its client and the attacker are processes of their own, on the same cores: an attacker needs processor time itself.
So what is compared is a client whose own server is flooded with one whose neighbour is flooded, with as many bytes: the same
attacker, the same work for another server. Windows take turns. *Quiet* is the rate without any flood, for what all of them
together cost.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import socket
import struct
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from benchmarks.py.figures import spread
from benchmarks.py.turns import at_least

BATCH_BYTES = 1 << 20
SETTLE_S = 0.5
GOAL = 0.8

# What a ZeroMQ peer says first, and then whatever an attacker likes (RFC 23 and 37).
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
READY = b"\x04" + bytes([len(_READY)]) + _READY


def messages(address: tuple[str, int]) -> None:
    """A hundred times a second, ten thousand wrong messages."""
    with socket.create_connection(address, 5) as sock:
        sock.sendall(GREETING + READY)
        sock.recv(1 << 10)
        sock.sendall(b"\x00\x03abc" * 10_000)
    time.sleep(0.01)


def connections(address: tuple[str, int]) -> None:
    """Come and go, a thousand times a second."""
    socket.create_connection(address, 5).close()
    time.sleep(0.001)


def parts(address: tuple[str, int]) -> None:
    """One message without an end."""
    with socket.create_connection(address, 5) as sock:
        sock.sendall(GREETING + READY)
        sock.recv(1 << 10)
        block = b"\x01\x01x" * 100_000
        while True:
            sock.sendall(block)


ATTACKS: dict[str, Callable[[tuple[str, int]], None]] = {each.__name__: each for each in (messages, connections, parts)}


# ---- the processes


def serve(addresses: Any) -> None:
    import ringbuf

    batch = np.zeros(BATCH_BYTES, np.uint8)

    def endless() -> Any:
        while True:
            yield batch

    server = ringbuf.Server(endless, bind="tcp://127.0.0.1:0", ahead=8)
    server.start()
    addresses.put(server.address)
    multiprocessing.parent_process().join()
    server.stop()


def receive(address: str, count: Any) -> None:
    import ringbuf

    with ringbuf.connect(address, ahead=8) as stream:
        for _ in stream:
            count.value += 1


def attack(name: str, target: Any) -> None:
    """target: the port to flood; 0: none."""
    while True:
        if not target.value:
            time.sleep(0.01)
            continue
        with contextlib.suppress(OSError):
            ATTACKS[name](("127.0.0.1", target.value))


# ---- what is measured


def measure(name: str, windows: int, seconds: float) -> dict[str, list[float]]:
    """Batches per second in each window: "quiet", "elsewhere" and "here"."""
    context = multiprocessing.get_context("spawn")
    addresses, count, target = context.Queue(), context.Value("q", lock=False), context.Value("i", lock=False)
    processes = []

    def start(function: Callable[..., None], *args: Any) -> None:
        process = context.Process(target=function, args=args)
        process.start()
        processes.append(process)

    try:
        start(serve, addresses)
        start(serve, addresses)
        ours, theirs = addresses.get(timeout=60), addresses.get(timeout=60)
        ports = {"quiet": 0, "elsewhere": int(theirs.rpartition(":")[2]), "here": int(ours.rpartition(":")[2])}
        start(receive, ours, count)
        start(attack, name, target)
        while count.value < 20:
            time.sleep(0.05)
        rates: dict[str, list[float]] = {where: [] for where in ports}
        for number in range(windows):
            for where, port in ports.items():
                target.value = port
                time.sleep(SETTLE_S)
                before, began = count.value, time.monotonic()
                time.sleep(seconds)
                rates[where].append((count.value - before) / (time.monotonic() - began))
                print(f"{name}, window {number + 1} of {windows}: {where:10} {rates[where][-1]:8.0f} batches/s", flush=True)
        return rates
    finally:
        for process in processes:
            process.kill()
            process.join()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.py.attack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--windows", type=at_least(1), default=5, metavar="N", help="of each kind (5)")
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="that a window lasts (2)")
    parser.add_argument("--only", nargs="+", choices=list(ATTACKS), default=list(ATTACKS), metavar="ATTACK")
    options = parser.parse_args(arguments)
    lines = []
    for name in options.only:
        rates = measure(name, options.windows, options.seconds)
        ratio = spread([here / elsewhere for here, elsewhere in zip(rates["here"], rates["elsewhere"]) if elsewhere])
        shown = ", ".join(f"{where} {median(of) * BATCH_BYTES / 1e6:.0f} MB/s" for where, of in rates.items())
        mark = "met" if ratio["median"] >= GOAL else "not met"
        lines.append(
            f"{name:12} {shown}; here / elsewhere {ratio['median']:.2f} ({ratio['min']:.2f} - {ratio['max']:.2f}), "
            f"goal {GOAL:g}: {mark}"
        )
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
