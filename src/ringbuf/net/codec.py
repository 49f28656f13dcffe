"""Pieces of frames, smaller: lz4 or zstd, each piece by itself.

So the reader can tell how much it will get, never has more than one piece twice, and works on one while the next is under
way. A piece that does not shrink travels as it is: it is one when it has as many bytes as it should have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ringbuf.net.protocol import ProtocolError

__all__ = ["CODECS", "Codec", "codec"]

ZSTD_LEVEL = 3
ZSTD_WINDOW_LOG = 23  # a reader takes at most 8 MiB for a window, whatever a frame asks for

CODECS = {"lz4": 1, "zstd": 2}
"""Names, and what they are called in messages."""


class Codec:
    """number: in messages, from 1."""

    def __init__(self, name: str, pack: Callable[[Any], bytes], unpack: Callable[[Any, int], bytes]):
        self.name, self.number = name, CODECS[name]
        self._pack, self._unpack = pack, unpack

    def pack(self, piece: memoryview) -> Any:
        """The piece, smaller; or itself."""
        packed = self._pack(piece)
        return packed if len(packed) < len(piece) else piece

    def unpack(self, data: Any, nbytes: int) -> Any:
        """A piece of `nbytes`. No more than that is ever written. Raises ProtocolError."""
        if len(data) == nbytes:
            return data
        try:
            piece = self._unpack(data, nbytes) if len(data) < nbytes else b""
        except Exception as error:  # whatever the library calls it
            raise ProtocolError(f"a piece is not valid {self.name} ({type(error).__name__}: {error})") from None
        if len(piece) != nbytes:
            raise ProtocolError(
                f"a piece of {len(data)} bytes of {self.name} does not hold the {nbytes} that it should"
            )
        return piece


def codec(name: str) -> Codec:
    """Raises ImportError, which says what to install."""
    try:
        return _lz4() if name == "lz4" else _zstd()
    except ImportError as error:
        raise ImportError(f"compress={name!r} needs a package: pip install 'ringloader[compress]' ({error})") from error


def _lz4() -> Codec:
    from lz4 import block

    return Codec(
        "lz4",
        lambda piece: block.compress(piece, store_size=False),
        lambda data, nbytes: block.decompress(data, uncompressed_size=nbytes),
    )


def _zstd() -> Codec:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    options = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}

    def unpack(data: Any, nbytes: int) -> bytes:
        decompressor = zstd.ZstdDecompressor(options=options)
        piece = decompressor.decompress(data, max_length=nbytes)
        if decompressor.unused_data or not (decompressor.eof or decompressor.decompress(b"", max_length=1) == b""):
            raise ValueError("there is more in it")
        if not decompressor.eof:
            raise ValueError("it ends too early")
        return piece

    return Codec("zstd", lambda piece: zstd.compress(piece, ZSTD_LEVEL), unpack)
