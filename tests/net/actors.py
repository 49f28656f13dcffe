"""Processes of their own that do what a test tells them, line by line, so that a test decides what happens when.

    client = Actor(directory)
    client.run("stream = ringbuf.connect('name')")      raises Told where that raises there
    client("[number(batch) for batch in stream]")       the value, which JSON can say
    client.begin("next(loop)"); ...; client.finish()    the same in two steps
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time

import numpy as np

DEADLINE_S = 40.0
_names = itertools.count()

STAGE = r"""
import faulthandler, json, os, pickle, signal, sys, threading, time, gc
import numpy as np
import ringbuf
sys.path.insert(0, {tests!r})
from actors import Squares, batches, number, numbers_of

def refuse(*args, **kwargs):
    os.write(2, b"a pickle was read\n")
    os._exit(99)

if {client}:
    pickle.loads = pickle.load = pickle.Unpickler = refuse

stage = globals()
lines, words = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
print(json.dumps(["ready", None]), file=words, flush=True)
while True:
    try:
        line = lines.readline()
        if not line:
            break
        how, text = json.loads(line)
        answer = ["value", eval(compile(text, "<told>", how), stage)]
    except BaseException as error:
        answer = ["error", [type(error).__name__, str(error)]]
    print(json.dumps(answer), file=words, flush=True)
lines.close()
words.close()
"""


def unique_name():
    return f"test-{os.getpid()}-{next(_names)}"


class Told(Exception):
    """What an actor's line raised: kind, text."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class Actor:
    """client: whether it fails when a pickle is read; a loader's own process reads those of its workers."""

    def __init__(self, directory, *, client=True):
        code = STAGE.format(tests=os.path.dirname(__file__), client=client)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=directory,
            start_new_session=True,  # so that a Ctrl-C can be sent to all of it
        )
        self._buffer = b""
        self._started = False

    @property
    def pid(self):
        return self.process.pid

    def begin(self, text, how="eval"):
        if not self._started:
            self._hear()
            self._started = True
        self.process.stdin.write(json.dumps([how, text]).encode() + b"\n")
        self.process.stdin.flush()

    def finish(self):
        word, value = self._hear()
        if word == "error":
            raise Told(*value)
        return value

    def __call__(self, text):
        self.begin(text)
        return self.finish()

    def run(self, text):
        self.begin(text, "exec")
        return self.finish()

    def _hear(self):
        until = time.monotonic() + DEADLINE_S
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise AssertionError(f"process {self.pid} has said nothing for {DEADLINE_S} s")
            said = os.read(self.process.stdout.fileno(), 1 << 16)
            if not said:
                raise AssertionError(f"process {self.pid} ended: {self.process.stderr.read().decode()}")
            self._buffer += said
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def kill(self):
        """As by SIGKILL; returns when it is gone."""
        self.process.kill()
        self.process.wait()

    def signal(self, number):
        self.process.send_signal(number)

    def ctrl_c(self):
        """As from a terminal: to the process and all that it started."""
        os.killpg(self.pid, signal.SIGINT)

    def leave(self):
        """Let it end in its own way. Returns (exit code, what it wrote to stderr)."""
        self.process.stdin.close()
        code = self.process.wait(DEADLINE_S)
        return code, self.process.stderr.read().decode()

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


# ---- batches that say which they are


def batches(count, epoch=0, start=0, size=64):
    """Batches `start` to `count` of an epoch."""
    return ({"x": np.full(size, 1000 * epoch + index), "n": index % 1000} for index in range(start, count))


def number(batch):
    """Which one it is, having looked at all of it."""
    first = int(batch["x"][0])
    assert (batch["x"] == first).all(), "torn"
    assert batch["n"] == first % 1000
    return first


def numbers_of(stream):
    return [number(batch) for batch in stream]


class Squares:
    """A dataset whose samples say which they are, who made them, and what memory of rings their maker has mapped."""

    def __init__(self, length=40, size=1000):
        self.length, self.size = length, size

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        with open("/proc/self/maps", encoding="utf-8") as lines:
            inodes = sorted({int(line.split()[4]) for line in lines if "memfd" in line})
        return {"x": np.full(self.size, index), "pid": os.getpid(), "inodes": np.resize(np.array(inodes), 16)}
