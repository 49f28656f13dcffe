"""Who may connect to a server: ZeroMQ asks here about each connection, before it reads any message of it.

With keys, only those that are allowed may. And all newcomers are slowed down while many of them turn out to be no clients:
whoever was let in may say thousands of words before it is cut, which cost us time, so that is to happen a few times a second
at most. Who is connected does not notice.
"""

from __future__ import annotations

from collections import deque

from ringbuf.net.zeromq import zmq

__all__ = ["Gatekeeper"]

ENDPOINT = "inproc://zeromq.zap.01"
VERSION = b"1.0"
TOLERATED = 16  # offences at once, without consequences for newcomers
FORGOTTEN_PER_S = 10
SLOWLY_S = 0.05  # between two newcomers, while there are more
MOST_WAITING = 64  # newcomers; as many strangers may be connected, and of some others we have not heard that they left


class Gatekeeper:
    """Answers ZeroMQ's questions (RFC 27, ZAP). To be there before the socket that it guards: ZeroMQ lets in everybody while
    nobody answers.

    allowed: public keys, 32 bytes each; None where there are none, and everybody may connect.
    """

    def __init__(self, context: zmq.Context, allowed: frozenset[bytes] | None):
        self._allowed = allowed
        self._waiting: deque[tuple[list[bytes], bytes]] = deque()  # the way back to each, and the number of its question
        self._offences, self._offences_at = 0.0, 0.0
        self._last_at = 0.0  # when somebody was let in
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(ENDPOINT)

    def offence(self, now: float) -> None:
        """One who was let in spoke wrongly."""
        self._offences = min(self._remembered(now) + 1, 2 * TOLERATED)
        self._offences_at = now

    def answer(self, now: float) -> None:
        """All questions that can be answered now. Never waits."""
        while True:
            try:
                *way, version, number, _domain, _address, _identity, mechanism, credential = self._ask()
            except zmq.Again:
                break
            if self._allowed is None or (version == VERSION and mechanism == b"CURVE" and credential in self._allowed):
                self._waiting.append((way, number))
            else:
                self._reply(way, number, b"400", b"this key is not allowed here")
        while len(self._waiting) > MOST_WAITING:
            self._reply(*self._waiting.popleft(), b"300", b"too many connect at once")
        while self._waiting and (self._remembered(now) < TOLERATED or now - self._last_at >= SLOWLY_S):
            self._last_at = now
            self._reply(*self._waiting.popleft(), b"200", b"OK")

    def _ask(self) -> list[bytes]:
        """The next question. Its credentials are one key, or none."""
        frames = self.socket.recv_multipart(zmq.NOBLOCK)
        body = frames.index(b"") + 1
        return [*frames[: body + 6], frames[body + 6] if len(frames) == body + 7 else b""]

    def _reply(self, way: list[bytes], number: bytes, status: bytes, text: bytes) -> None:
        self.socket.send_multipart([*way, VERSION, number, status, text, b"", b""], zmq.NOBLOCK)

    def _remembered(self, now: float) -> float:
        return max(0.0, self._offences - (now - self._offences_at) * FORGOTTEN_PER_S)

    def close(self) -> None:
        self.socket.close()
