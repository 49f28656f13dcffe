"""What is sent is there once, however often the connection is lost: two links and a network that forgets."""

import random

import pytest

from ringbuf.net.link import ENVELOPE_BYTES, Link, envelope, open_envelope
from ringbuf.net.protocol import ProtocolError


def deliver(sender, receiver, got):
    """One message over a connection that holds."""
    number, entry = sender.next()
    sender.seal(number)
    sender.advance()
    receiver.due(number)
    receiver.arrived()
    got.append(entry)


@pytest.mark.parametrize("seed", range(30))
def test_every_message_arrives_once_and_in_order(seed):
    chance = random.Random(seed)
    one, other = Link(), Link()
    got, put = [], 0
    while len(got) < 200:
        act = chance.random()
        if act < 0.4 and put < 200:
            one.put(put)
            put += 1
        elif act < 0.7 and one.next() is not None:
            deliver(one, other, got)
        elif act < 0.8 and one.next() is not None:
            one.advance()  # sent, and lost with the connection
            one.rewind()
            one.acknowledge(other.received)
        elif act < 0.9:
            one.acknowledge(other.received)
    assert got == list(range(200))
    one.acknowledge(other.received)
    assert one.idle


def test_what_cannot_be_is_refused():
    link = Link()
    with pytest.raises(ProtocolError, match="1 messages have arrived, it is said, of 0"):
        link.acknowledge(1)
    link.put("a")
    assert link.acknowledge(1) == ["a"]
    with pytest.raises(ProtocolError, match="of 1 and after 1"):
        link.acknowledge(0)
    with pytest.raises(ProtocolError, match="message 2 came, and 1 was due"):
        link.due(2)
    for length in range(ENVELOPE_BYTES):
        with pytest.raises(ProtocolError, match=f"here are {length}"):
            open_envelope(memoryview(bytes(length)))
    assert open_envelope(memoryview(envelope(1, 2) + b"x"))[:2] == (1, 2)


def test_a_link_that_is_cleared_goes_on_counting():
    link = Link()
    link.put("a")
    link.clear()
    link.put("b")
    assert link.next() == (2, "b")
