"""Rings in every condition that a command may find, made and removed again."""

from __future__ import annotations

import contextlib
import os
import signal

from processes import forked

import ringbuf
from ringbuf import memory

NOBODY = 65534


@contextlib.contextmanager
def dead_ring(name):
    """A ring whose only process was killed, with one message in it."""

    def die():
        ring = ringbuf.RingBuffer(3, 4096, name=name)
        ring.put([1, 2, 3])
        os.kill(os.getpid(), signal.SIGKILL)

    assert forked(die) == -signal.SIGKILL
    with removed_in_the_end(name):
        yield name


@contextlib.contextmanager
def foreign_ring(name):
    """A dead ring of another user. Only root can make one."""

    def die():
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        ring = ringbuf.RingBuffer(3, 4096, name=name)
        os.kill(os.getpid(), signal.SIGKILL)
        ring.close()

    assert forked(die) == -signal.SIGKILL
    with removed_in_the_end(name):
        yield name


@contextlib.contextmanager
def something_else(name, content=b"no ring at all"):
    with open(memory.path_of(name), "xb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
    with removed_in_the_end(name):
        yield name


@contextlib.contextmanager
def other_version(name):
    """A ring as a later version may make it, of which nobody is left."""
    with dead_ring(name):
        with open(memory.path_of(name), "r+b") as file:
            file.seek(8)
            file.write((99).to_bytes(4, "little"))
        yield name


@contextlib.contextmanager
def removed_in_the_end(name):
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(memory.path_of(name))


def is_there(name):
    return os.path.exists(memory.path_of(name))
