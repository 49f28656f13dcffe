"""Messages that tell whether they are whole: who, which, that again inverted, length, checksum, and bytes that follow
from the identity. A message is a frame (arrays in a tree) or raw bytes in a slot.

An identity is producer << 32 | number, or with ABORTED in it what nobody may ever receive.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

ABORTED = 1 << 31
NUMBER = ABORTED - 1
_HEAD = struct.Struct("<qqqq")
HEAD_BYTES = _HEAD.size
GARBAGE = 0xDB


class Damaged(AssertionError):
    """A message that is not what its producer wrote."""


class Payload:
    """Makes and checks the messages of one round.

    data_bytes: the most that a message's data has.
    """

    def __init__(self, seed: int, data_bytes: int):
        self.data_bytes = data_bytes
        self._pattern = np.random.default_rng(seed).integers(0, 256, data_bytes + 4096, np.uint8)

    def length(self, identity: int) -> int:
        """Mostly short, sometimes all there is."""
        drawn = zlib.crc32(identity.to_bytes(8, "little")) & 0xFFFF
        return self.data_bytes if drawn < 6000 else drawn * min(self.data_bytes, 2048) >> 16

    def data(self, identity: int) -> np.ndarray:
        start = identity * 2654435761 % 4096
        return self._pattern[start : start + self.length(identity)]

    # ---- frames

    def tree(self, identity: int, array: np.ndarray) -> dict[str, Any]:
        """The tree around the data, which is written into `array` here."""
        array[:] = self.data(identity)
        return {"id": identity, "not": ~identity, "parts": [array, {"crc": zlib.crc32(array), "length": len(array)}]}

    def check_tree(self, tree: dict[str, Any]) -> int:
        array, more = tree["parts"]
        return self._check(tree["id"], tree["not"], more["length"], more["crc"], array)

    # ---- raw slots

    def write(self, slot: Any, identity: int) -> int:
        """Fill a slot's buffer; returns the number of bytes."""
        data, view = self.data(identity), memoryview(slot)
        view[HEAD_BYTES : HEAD_BYTES + len(data)] = data.data
        _HEAD.pack_into(view, 0, identity, ~identity, len(data), zlib.crc32(data))
        return HEAD_BYTES + len(data)

    def check_raw(self, slot: Any) -> int:
        view = memoryview(slot)
        identity, inverted, length, crc = _HEAD.unpack_from(view)
        return self._check(identity, inverted, length, crc, np.frombuffer(view[HEAD_BYTES:], np.uint8))

    def _check(self, identity: int, inverted: int, length: int, crc: int, array: np.ndarray) -> int:
        wanted = self.data(identity)
        problems = [
            what
            for what, wrong in {
                "its identity and the inverse disagree": ~identity != inverted,
                "it was aborted": identity & ABORTED,
                f"its length says {length}": length != len(wanted),
                f"{array.nbytes} bytes came": array.nbytes != len(wanted),
                "its checksum is wrong": zlib.crc32(array) != crc,
                "its bytes are another message's": not np.array_equal(array, wanted),
            }.items()
            if wrong
        ]
        if problems:
            raise Damaged(
                f"message {identity >> 32}:{identity & NUMBER} of {len(wanted)} bytes: {', '.join(problems)}; "
                f"it begins with {bytes(array[:16]).hex()}, not {bytes(wanted[:16]).hex()}"
            )
        return identity


def scribble(message: Any) -> None:
    """Spoil a message that is about to be let go of: nobody may see this."""
    array = message["parts"][0] if isinstance(message, dict) else np.frombuffer(message, np.uint8)
    array[:] = GARBAGE
