"""survey() and unlink() of the extension: a ring from outside, and its name's end."""

import errno
import os
import signal

import pytest
from processes import forked

import ringbuf
from ringbuf import memory
from ringbuf._core import Ring, survey, unlink

NAME = f"survey-{os.getpid()}"


@pytest.fixture
def ring():
    ring = Ring.create(slots=4, slot_bytes=4096, name=NAME)
    yield ring
    ring.close()


@pytest.fixture
def dead():
    """A ring whose only process was killed with a message in hand."""

    def die():
        ring = Ring.create(slots=3, slot_bytes=64, name=NAME)
        with ring.claim(tag=5) as claim:
            claim.commit(10)
        claim = ring.claim(tag=6)
        os.kill(os.getpid(), signal.SIGKILL)

    assert forked(die) == -signal.SIGKILL
    yield NAME
    remove_by_hand()


def remove_by_hand():
    if os.path.exists(memory.path_of(NAME)):
        os.unlink(memory.path_of(NAME))


def test_a_living_ring(ring):
    with ring.claim(tag=9) as claim:
        claim.commit(7)
    seen = survey(NAME)
    assert (seen["problem"], seen["alive"], seen["readable"], seen["uid"]) == (0, True, True, os.geteuid())
    assert (seen["mode"], seen["full"], seen["slots"], seen["slot_bytes"]) == ("queue", "block", 4, 4096)
    assert seen["stats"] == ring.stats() and seen["message_bytes"] == 7
    assert seen["file_bytes"] == seen["total_bytes"] == os.path.getsize(memory.path_of(NAME))
    (peer,) = seen["peers"]
    assert (peer.pid, peer.alive, peer.published) == (os.getpid(), True, 1)
    assert seen["views"] == ring.look() and seen["views"][0].tag == 9


def test_looking_joins_nothing(ring):
    for _ in range(3):
        assert survey(NAME)["stats"]["participants"] == 1
    assert ring.stats()["participants"] == 1


def test_a_dead_ring_shows_what_its_process_had(dead):
    seen = survey(dead)
    (peer,) = seen["peers"]
    assert (seen["alive"], peer.alive, peer.writing) == (False, False, 1)
    assert {(view.state, view.tag, view.pid) for view in seen["views"]} == {("ready", 5, 0), ("writing", 6, peer.pid)}
    assert seen["message_bytes"] == 10


def test_two_rings_of_one_name_differ(dead):
    before = survey(dead)["id"]
    with ringbuf.RingBuffer(4, 4096, name=NAME):
        assert survey(NAME)["id"] != before


def test_unlink_takes_the_dead_and_leaves_the_living(dead):
    unlink(dead)
    assert not os.path.exists(memory.path_of(dead))
    with ringbuf.RingBuffer(4, 4096, name=NAME) as ring:
        with pytest.raises(BlockingIOError, match="stays"):
            unlink(NAME)
        ring.put(1)
        assert ring.get() == 1


def test_what_is_not_there_is_not_found():
    for function in (survey, unlink):
        with pytest.raises(FileNotFoundError, match="no ring has this name"):
            function(NAME)
        with pytest.raises(ValueError, match="name must be"):
            function("a/b")


def test_what_is_no_ring_is_described(ring):
    with open(memory.path_of(NAME), "r+b") as file:
        header = file.read(336)
        file.seek(0)
        file.write(b"something else entirely")
        file.flush()
        seen = survey(NAME)
        file.seek(0)
        file.write(header)
    assert (seen["problem"], seen["readable"], seen["alive"], seen["version"]) == (errno.EBADMSG, False, True, 0)
    assert "slots" not in seen
    assert survey(NAME)["readable"]
