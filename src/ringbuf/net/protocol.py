"""What a server and its clients say to each other: the same messages over a local socket and over the network.

    header of 64 bytes | body

    client -> server                                  server -> client
    HELLO    who I am, where I want to begin          WELCOME   what is served here
    BEGIN    my loop over an epoch begins             SCHEMA    what batches are made of
    NEXT     done up to seq; send up to limit         SEGMENT   memory to map; its descriptor comes along (local)
    FREE     the memory of seq is yours again         BATCH     seq, its epoch and index; where it lies (local); or
    LEAVE    my loop ended before its epoch                     its size, and the frame follows (network)
    BYE      I go                                     END       the epoch is over
    STATUS   how is everybody? (without a HELLO)      LEFT      what comes now was sent after your LEAVE
    RESUME   in the place of HELLO: I am back         RESUMED   go on (network)
                                                      FINISHED  there is no further epoch
                                                      FAILED    the source raised an exception
                                                      DROPPED   you were too slow
                                                      REFUSED   not so
                                                      STATUS    the answer

A body is a JSON object, but for that of BATCH. Whoever reads trusts nothing: sizes are checked before anything else, and
each value when it is used. Nothing in here runs or imports code; exceptions travel as text.
"""

from __future__ import annotations

import enum
import json
import struct
import sys
from typing import Any, NamedTuple

from ringbuf.errors import RingbufError, VersionMismatch

__all__ = [
    "BODY_BYTES",
    "COPY",
    "HEADER_BYTES",
    "PIECE_BYTES",
    "TEXT_BYTES",
    "VERSION",
    "Kind",
    "Message",
    "OtherVersion",
    "ProtocolError",
    "clean",
    "decode",
    "encode",
    "parse",
    "version",
]

VERSION = 1
HEADER_BYTES = 64
BODY_BYTES = 60 << 10  # of anything but a batch
TEXT_BYTES = 9 << 10  # of a text in a body: an exception's, a traceback's; JSON may make each three times as long
PIECE_BYTES = 1 << 20  # of a frame; over the network its pieces follow the BATCH, each a message of its own

CUT = " [cut]"

_HEADER = struct.Struct("<4sBBHQQQQQQQ")
_MAGIC = b"rbuf"


class ProtocolError(RingbufError):
    """The other side does not speak this protocol, or not correctly."""


class OtherVersion(ProtocolError, VersionMismatch):
    """The other side speaks another version of it."""


class Kind(enum.IntEnum):
    HELLO = 1
    BEGIN = 2
    NEXT = 3
    FREE = 4
    LEAVE = 5
    BYE = 6
    STATUS = 7
    RESUME = 8

    WELCOME = 32
    SCHEMA = 33
    SEGMENT = 34
    BATCH = 35
    END = 36
    FINISHED = 37
    FAILED = 38
    DROPPED = 39
    REFUSED = 40
    LEFT = 41
    RESUMED = 42


COPY = 1
"""Flag of a BATCH: others need its slot, so take a copy and give it back."""


class Message(NamedTuple):
    """A header. What a field means depends on the kind; 0 where it means nothing.

    seq: of a BATCH, from 1, in each session; NEXT, LEAVE: all up to this one are done; FREE: this one; LEFT: of the last BATCH,
        and `epoch` is the next one; BYE: none after this one was looked at, and FREE of those before may follow.
    epoch, index: of a BATCH, from 0. END: `index` is the number of batches of the epoch.
    segment, offset, nbytes: where a batch lies; over the network its size alone. SEGMENT: its number and size; size 0: it is not
        used any more.
    extra: NEXT and BEGIN: send up to this seq. BATCH: all before this index of the epoch are done, by whomever.
    flags: BATCH: COPY; over the network the codec of its pieces. SEGMENT: 1 where it may be written to.
    """

    kind: int
    seq: int = 0
    epoch: int = 0
    index: int = 0
    segment: int = 0
    offset: int = 0
    nbytes: int = 0
    extra: int = 0
    flags: int = 0


def encode(message: Message, body: dict | None = None) -> bytes:
    """A message as it travels; BATCH goes without its frame. Raises ValueError when it is too long."""
    kind, seq, epoch, index, segment, offset, nbytes, extra, flags = message
    header = _HEADER.pack(_MAGIC, VERSION, kind, flags, seq, epoch, index, segment, offset, nbytes, extra)
    if body is None:
        return header
    text = json.dumps(body, separators=(",", ":")).encode()
    if len(text) > BODY_BYTES:
        raise ValueError(f"the body of a message has {len(text)} bytes, at most {BODY_BYTES} are allowed")
    return header + text


def decode(data: Any) -> tuple[Message, memoryview]:
    """The message in these bytes, and its body as it is. Raises ProtocolError."""
    view = memoryview(data)
    if len(view) < HEADER_BYTES:
        raise ProtocolError(f"a message has at least {HEADER_BYTES} bytes, here are {len(view)}")
    magic, version, kind, flags, *fields = _HEADER.unpack_from(view)
    if magic != _MAGIC:
        raise ProtocolError(f"a message begins with {_MAGIC!r}, these bytes with {magic!r}")
    if version != VERSION:
        raise OtherVersion(f"the other side speaks version {version} of the protocol, this one {VERSION}")
    return Message(kind, *fields, flags=flags), view[HEADER_BYTES:]


def parse(body: memoryview, **expected: Any) -> dict[str, Any]:
    """The JSON object of a body.

    expected: what each of its values has to be, as isinstance() takes it; others are left out, None is left out of a
        body where it is not expected.
    Raises ProtocolError.
    """
    if len(body) > BODY_BYTES:
        raise ProtocolError(f"the body of a message has {len(body)} bytes, at most {BODY_BYTES} are allowed")
    try:
        values = json.loads(bytes(body)) if len(body) else {}
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the body of a message is not JSON ({type(error).__name__})") from None
    if not isinstance(values, dict):
        raise ProtocolError(f"the body of a message is not an object, but {type(values).__name__}")
    for name, kinds in expected.items():
        value = values.get(name)
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise ProtocolError(f"{name!r} in a message should be {wanted}, got {type(value).__name__}")
    return {name: values[name] for name in expected if name in values}


def clean(text: str, most: int = TEXT_BYTES) -> str:
    """A text of somebody else's, fit for a log or a terminal: control characters escaped, at most `most` bytes in UTF-8."""
    shown = "".join(c if c in "\n\t" or c.isprintable() else ascii(c)[1:-1] for c in text[:most])
    data = shown.encode("utf-8", "backslashreplace")
    if len(text) <= most and len(data) <= most:
        return data.decode()
    return data[: most - len(CUT)].decode("utf-8", "ignore") + CUT


def version() -> str:
    """Of this package, for the other side to show."""
    return sys.modules["ringbuf"].__version__
