"""`ringbuf`, run as users do: a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys

DEADLINE_S = 50

names = (f"cli-{os.getpid()}-{number}" for number in itertools.count())

SOURCES = """
import itertools, os, sys, time
import numpy as np
import ringbuf

batches = [np.full(3, i) for i in range(4)]

class Numbers(ringbuf.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return np.full(2, i)

loader = ringbuf.RingLoader(Numbers(), batch_size=2)

def make_loader(): return ringbuf.RingLoader(Numbers(), batch_size=4)
def make_wrongly(): return ringbuf.RingLoader(Numbers(), batch_size=-1)
def with_workers(workers=0): return [np.full(1, workers)]
def generate():
    yield np.zeros(1)
    yield np.ones(1)
def of_epoch(epoch): return [np.full(1, epoch)]
def endless():
    for i in itertools.count(): yield np.full(1, i)

class Made:
    calls = 0
def iterator():
    Made.calls += 1
    return iter([np.full(1, Made.calls)])

def never():
    time.sleep(3600)
    yield 1
def breaks():
    yield np.zeros(1)
    raise LookupError("row 17 is broken,\\nit is")

number, text, nothing = 3, "abc", None
def returns_nothing(): return None
def returns_text(): return "abc"
def needs(argument): return []
def raises(): raise RuntimeError("no such disk\\nat all")
def leaves(): sys.exit(7)
"""


def write_sources(folder):
    (folder / "sources.py").write_text(SOURCES)
    (folder / "raising.py").write_text("x = 1\nraise KeyError('the\\nkey')\n")
    (folder / "leaving.py").write_text("import sys\nsys.exit(0)\n")
    (folder / "wrong.py").write_text("def f(:\n")
    (folder / "lacking.py").write_text("import not_installed_anywhere\n")
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "data.py").write_text("class Box:\n    batches = [1.5]\n")


def command(*arguments, cwd, **options):
    """Run it to its end: the completed process, its output as text."""
    options = {"capture_output": True, "text": True, "timeout": DEADLINE_S, **options}
    return subprocess.run([sys.executable, "-m", "ringbuf", *arguments], cwd=cwd, **options)


@contextlib.contextmanager
def serving(target, *arguments, cwd, name=None):
    """A server in a process group of its own, that runs: (process, what it said first). Its stdout is JSON lines."""
    name = name or next(names)
    line = [sys.executable, "-m", "ringbuf", "serve", target, "--name", name, "--json", *arguments]
    with subprocess.Popen(
        line, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            first = process.stdout.readline()
            assert first, process.stderr.read()
            yield process, json.loads(first)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def ends(process):
    """(exit code, rest of its stdout, stderr)."""
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err
