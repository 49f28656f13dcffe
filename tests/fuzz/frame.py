"""Whatever bytes a frame is made of, reading it gives a batch or a FrameError, and runs no pickle.

    python tests/fuzz/frame.py [libFuzzer's options] FOLDER...      needs atheris; scripts/fuzz calls it

An input that begins with a frame's magic is read as it is. Any other is four bytes, the lengths of what would be arrays and
values, and then arrays, values and schema; the header is worked out, so that fuzzing gets behind it.
tests/test_frame_fuzzed.py runs the corpus without atheris.
"""

import contextlib
import pickle
import struct
import sys

import numpy as np


class PickleRan(BaseException):
    """Not an Exception, so that no reader takes it for a flaw of the frame."""


def no_pickles(*args, **kwargs):
    raise PickleRan


@contextlib.contextmanager
def pickles_forbidden():
    loads, pickle.loads = pickle.loads, no_pickles
    try:
        yield
    finally:
        pickle.loads = loads


def framed(data: bytes) -> bytearray:
    if data.startswith(b"rb-frame") or len(data) < 4:
        return bytearray(data)
    arrays, values = struct.unpack_from("<HH", data)
    body = data[4:]
    arrays, values = min(arrays, len(body)), min(values, max(0, len(body) - arrays))
    tail = 64 + arrays
    schema = len(body) - arrays - values
    return bytearray(struct.pack("<8s7Q", b"rb-frame", 1, tail + values + schema, tail, values, schema, 0, 0) + body)


def unframed(frame: bytes) -> bytes:
    """The other form of a good frame."""
    tail, values = struct.unpack_from("<QQ", frame, 24)
    return struct.pack("<HH", tail - 64, values) + bytes(frame[64:])


def walk_through(value):
    """Touch every byte that a reader was given."""
    if isinstance(value, np.ndarray):
        value.tobytes()
    elif isinstance(value, dict):
        for item in value.items():
            walk_through(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            walk_through(item)


def run(data: bytes, read, FrameError) -> int:
    """Read one input in each way; return how many of them gave a batch."""
    buffer = framed(data)
    batches = 0
    for copy in (False, True):
        with contextlib.suppress(FrameError):
            walk_through(read(buffer, copy=copy))
            batches += 1
    return batches


def main():
    import atheris

    with atheris.instrument_imports(include=["ringbuf"]):
        from ringbuf import frame
        from ringbuf.errors import FrameError

    with pickles_forbidden():
        atheris.Setup(sys.argv, lambda data: run(data, frame.read, FrameError) and None)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
