"""One run of one way to get batches from another process: who serves, who receives, what it took.

    python -m benchmarks.py.server_cases receive local 64       # prints JSON; starts the process that serves itself
    python -m benchmarks.py.server_cases serve tcp 64 ADDRESS   # what it starts

Batches are those of the workload img: 256 uint8 images of 224 x 224 x 3 and their int64 labels, 38 MB.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.py.workloads import Workload
from ringbuf import RingLoader, Server, connect

WORKERS = 2
MADE = 4  # batches that lie ready where making them is not the point
AHEAD = 4
START_S = 60.0

LABELS = {
    "loader": "RingLoader, in the trainer's own process",
    "local": "ringbuf server, client on this machine",
    "broadcast_1": "ringbuf server, broadcast to 1 client",
    "broadcast_2": "ringbuf server, broadcast to 2 clients",
    "tcp": "ringbuf server, client over TCP",
    "tcp_lz4": "ringbuf server over TCP, lz4",
    "tcp_zstd": "ringbuf server over TCP, zstd",
    "fuel": "Fuel's pattern: PUSH/PULL, JSON header, a frame for each array",
    "bare": "pyzmq alone: one frame into memory that is there",
}


def workload(batches: int) -> Workload:
    return Workload(name="img", batches=batches, workers=WORKERS)


class Made:
    """Batches that lie in memory, given out again and again."""

    def __init__(self, batches: int):
        self._batches = batches
        dataset = workload(MADE).dataset()
        self._made = [dataset.collate(dataset.batch(number)) for number in range(MADE)]

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[Any]:
        for number in range(self._batches):
            yield self._made[number % MADE]


def loader(batches: int) -> RingLoader:
    of = workload(batches)
    return RingLoader(of.dataset(), batch_size=of.batch_size, num_workers=WORKERS, multiprocessing_context="fork")


# ---- who serves


def serve(case: str, batches: int, address: str) -> dict[str, float]:
    """Serve an epoch; returns the processor time that it took, workers included, once the samples lie in memory."""
    if case in ("fuel", "bare"):
        made = Made(batches)
        with _measured() as used:
            _push(case, made, address)
    elif case.startswith("tcp"):
        server = Server(Made(batches), bind=address, epochs=1, ahead=AHEAD, compress=case.partition("_")[2] or None)
        with _measured() as used:
            server.run()
    else:
        clients = 2 if case == "broadcast_2" else 1
        mode = "broadcast" if case.startswith("broadcast") else "split"
        with loader(batches) as source, _measured() as used:
            Server(source, name=address, mode=mode, epochs=1, clients=clients).run()
    return used


@contextlib.contextmanager
def _measured() -> Iterator[dict[str, float]]:
    """Yields a dict that has, afterwards, the processor time of this process and of its children that are over."""
    used: dict[str, float] = {}
    before = os.times()
    yield used
    used["cpu_s"] = sum(os.times()[:4]) - sum(before[:4])


def _push(case: str, batches: Made, address: str) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.setsockopt(zmq.SNDHWM, 10)
        socket.setsockopt(zmq.LINGER, -1)
        socket.bind(address)
        for images, labels in batches:
            if case == "bare":
                socket.send(images, copy=False)
                continue
            head = [{"descr": a.dtype.str, "fortran_order": False, "shape": a.shape} for a in (images, labels)]
            socket.send_json(head, zmq.SNDMORE)
            socket.send(images, zmq.SNDMORE)
            socket.send(labels)
        if case == "fuel":
            socket.send_json({"stop": True})


# ---- who receives


def receive(case: str, batches: int) -> dict[str, Any]:
    """Seconds to the first batch and from there to the last, and the processor time of who served."""
    if case == "loader":
        with loader(batches) as source, _measured() as used:
            result = _timed(source, batches, batches)
        return result | {"server_cpu_s": used["cpu_s"]}
    with tempfile.TemporaryDirectory(prefix="benchmark-server-") as folder:
        remote = case.startswith("tcp") or case in ("fuel", "bare")
        address = f"tcp://127.0.0.1:{_free_port()}" if remote else f"benchmark-{os.getpid()}"
        with _serving(case, batches, address, Path(folder)) as used:
            if case in ("fuel", "bare"):
                with _pulled(case, address) as pulled:
                    result = _timed(islice(pulled, batches), batches, MADE)
            else:
                other = _start("receive_other", case, batches, address) if case == "broadcast_2" else None
                with connect(address, timeout=START_S, ahead=AHEAD if remote else 2) as stream:
                    result = _timed(stream, batches, MADE if remote else batches)
                if other is not None and other.wait(START_S):
                    raise RuntimeError("the other client failed")
        return result | {"server_cpu_s": used["cpu_s"]}


def receive_other(address: str) -> None:
    with connect(address, timeout=START_S) as stream:
        for _ in stream:
            pass


def _timed(source: Iterable[Any], batches: int, different: int) -> dict[str, Any]:
    """Take all batches of an epoch and look at some bytes of each.

    different: after so many they come again.
    """
    dataset = workload(different).dataset()
    count = 0
    began = first = last = time.perf_counter()
    for batch in source:
        last = time.perf_counter()
        first = first if count else last
        _check(dataset, batch, count % different)
        count += 1
        del batch
    if count != batches:
        raise RuntimeError(f"{batches} batches were due, {count} arrived")
    return {"first_s": first - began, "seconds": last - first, "batches": batches - 1}


def _check(dataset: Any, batch: Any, number: int) -> None:
    images = np.asarray(batch[0] if isinstance(batch, (tuple, list)) else batch)
    head, tail = dataset.ends(number)
    if images[0, 0, 0, 0] != head[0, 0, 0] or images[-1, -1, -1, -1] != tail[-1, -1, -1]:
        raise RuntimeError(f"batch {number} is not what was sent")


@contextlib.contextmanager
def _pulled(case: str, address: str) -> Iterator[Iterator[Any]]:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.setsockopt(zmq.RCVHWM, 10)
        socket.connect(address)
        yield (_bare if case == "bare" else _fuel)(socket)


def _bare(socket: Any) -> Iterator[Any]:
    dataset = workload(MADE).dataset()
    memory = np.empty(dataset.batch_shape(0), np.uint8)
    while True:
        socket.recv_into(memory)
        yield memory


def _fuel(socket: Any) -> Iterator[Any]:
    while True:
        head = socket.recv_json()
        if "stop" in head:
            return
        yield [
            np.frombuffer(socket.recv(copy=False).buffer, np.dtype(each["descr"])).reshape(each["shape"]) for each in head
        ]


@contextlib.contextmanager
def _serving(case: str, batches: int, address: str, folder: Path) -> Iterator[dict[str, float]]:
    """Have another process serve. What it used stands in the dict afterwards."""
    used: dict[str, float] = {}
    with open(folder / "errors", "w+") as errors:
        process = _start("serve", case, batches, address, stdout=subprocess.PIPE, stderr=errors)
        try:
            yield used
            output, _ = process.communicate(timeout=START_S)
            if process.returncode:
                errors.seek(0)
                raise RuntimeError(f"the server failed: {errors.read().strip().rpartition(chr(10))[2]}")
            used |= json.loads(output)
        finally:
            process.kill()
            process.wait()


def _start(task: str, case: str, batches: int, address: str, **options: Any) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "benchmarks.py.server_cases", task, case, str(batches), address], **options)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


TASKS: dict[str, Callable[..., Any]] = {
    "serve": lambda case, batches, address: serve(case, int(batches), address),
    "receive": lambda case, batches: receive(case, int(batches)),
    "receive_other": lambda case, batches, address: receive_other(address),
}

if __name__ == "__main__":
    result = TASKS[sys.argv[1]](*sys.argv[2:])
    if result is not None:
        print(json.dumps(result))
