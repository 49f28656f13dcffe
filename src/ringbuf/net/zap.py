"""Who may connect to a server with keys: ZeroMQ asks here about each client's public key."""

from __future__ import annotations

from ringbuf.net.zeromq import zmq

__all__ = ["Gatekeeper"]

ENDPOINT = "inproc://zeromq.zap.01"
VERSION = b"1.0"


class Gatekeeper:
    """Answers ZeroMQ's questions (RFC 27, ZAP). To be there before the socket that it guards: ZeroMQ lets in everybody while
    nobody answers.

    allowed: public keys, 32 bytes each.
    """

    def __init__(self, context: zmq.Context, allowed: frozenset[bytes]):
        self._allowed = allowed
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(ENDPOINT)

    def answer(self) -> None:
        """All questions that there are. Never waits."""
        while True:
            try:
                question = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.socket.send_multipart(self._judge(question), zmq.NOBLOCK)

    def _judge(self, question: list[bytes]) -> list[bytes]:
        version, request, _domain, _address, _identity, mechanism, *credentials = question
        welcome = (
            version == VERSION and mechanism == b"CURVE" and len(credentials) == 1 and credentials[0] in self._allowed
        )
        verdict = (b"200", b"OK") if welcome else (b"400", b"this key is not allowed here")
        return [VERSION, request, *verdict, b"", b""]

    def close(self) -> None:
        self.socket.close()
