"""The gatekeeper lets newcomers in, slowly while many of them turn out to be no clients, and nobody without a right key."""

import contextlib

import pytest

pytest.importorskip("zmq")

import zmq

from ringbuf.net.zap import ENDPOINT, FORGOTTEN_PER_S, MOST_WAITING, SLOWLY_S, TOLERATED, Gatekeeper

KEY, OTHER = b"k" * 32, b"o" * 32


class Asking:
    """The side of ZeroMQ: asks about newcomers by number, and keeps what was answered about each."""

    def __init__(self, context):
        self._socket = context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(ENDPOINT)
        self.answers = {}

    def ask(self, *numbers, mechanism=b"NULL", credentials=()):
        for number in numbers:
            body = [b"1.0", b"%d" % number, b"ringbuf", b"127.0.0.1", b"", mechanism, *credentials]
            self._socket.send_multipart([b"", *body])

    def close(self):
        self._socket.close()

    def hear(self):
        while self._socket.poll(0):
            _, version, number, status, _, user, metadata = self._socket.recv_multipart()
            assert (version, user, metadata) == (b"1.0", b"", b"")
            assert int(number) not in self.answers
            self.answers[int(number)] = status
        return self.answers


@pytest.fixture
def gate():
    """gate(keys) -> (gatekeeper, asking)"""
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(zmq.Context())

        def make(allowed=None):
            keeper = stack.enter_context(contextlib.closing(Gatekeeper(context, allowed)))
            return keeper, stack.enter_context(contextlib.closing(Asking(context)))

        yield make


def test_everybody_is_let_in_at_once_where_nobody_misbehaved(gate):
    keeper, asking = gate()
    asking.ask(*range(MOST_WAITING))
    keeper.answer(0.0)
    assert asking.hear() == dict.fromkeys(range(MOST_WAITING), b"200")


def test_a_few_offences_have_no_consequences(gate):
    keeper, asking = gate()
    for _ in range(TOLERATED - 1):
        keeper.offence(0.0)
    asking.ask(1, 2, 3)
    keeper.answer(0.0)
    assert asking.hear() == {1: b"200", 2: b"200", 3: b"200"}


def test_newcomers_are_let_in_one_after_another_while_many_misbehave(gate):
    keeper, asking = gate()
    now = 100.0
    asking.ask(*range(5))
    for step in range(5):
        for _ in range(2 * TOLERATED):
            keeper.offence(now)
        keeper.answer(now)
        keeper.answer(now + SLOWLY_S / 2)
        assert asking.hear() == dict.fromkeys(range(step + 1), b"200")  # in the order in which they came
        now += 1.5 * SLOWLY_S


def test_offences_are_forgotten(gate):
    """However many there were."""
    keeper, asking = gate()
    for _ in range(10_000):
        keeper.offence(50.0)
    asking.ask(1, 2, 3)
    keeper.answer(50.0)
    assert len(asking.hear()) == 1
    keeper.answer(50.0 + (TOLERATED + 1) / FORGOTTEN_PER_S)
    assert asking.hear() == {1: b"200", 2: b"200", 3: b"200"}


def test_of_too_many_the_first_are_sent_away_for_now(gate):
    keeper, asking = gate()
    for _ in range(2 * TOLERATED):
        keeper.offence(1.0)
    asking.ask(*range(MOST_WAITING + 10))
    keeper.answer(1.0)
    answers = asking.hear()
    assert [number for number, status in answers.items() if status == b"300"] == list(range(10))
    assert [number for number, status in answers.items() if status == b"200"] == [10]


def test_wrong_keys_are_refused_at_once_and_right_ones_wait_their_turn(gate):
    keeper, asking = gate(frozenset([KEY]))
    for _ in range(2 * TOLERATED):
        keeper.offence(1.0)
    asking.ask(1, 2, mechanism=b"CURVE", credentials=[KEY])
    asking.ask(3, mechanism=b"CURVE", credentials=[OTHER])
    asking.ask(4)
    asking.ask(5, mechanism=b"PLAIN", credentials=[KEY])
    asking.ask(6, mechanism=b"PLAIN", credentials=[b"user", KEY])
    keeper.answer(1.0)
    assert asking.hear() == {1: b"200", 3: b"400", 4: b"400", 5: b"400", 6: b"400"}
    keeper.answer(1.0 + SLOWLY_S)
    assert asking.answers == {**asking.hear(), 2: b"200"}
