"""Write the inputs that fuzzing begins with: real frames and real segments, whole and damaged in the ways once found to matter.

    python tests/fuzz/make_corpus.py            into tests/fuzz/corpus; what fuzzing has added there is left alone
    python tests/fuzz/make_corpus.py FOLDER     add those frames of a folder that reach lines, or errors, that none did before

What fuzzing of attach found is added by libFuzzer itself: build/fuzz/fuzz-attach -merge=1 -use_counters=0 CORPUS FOLDER.
"""

import collections
import hashlib
import mmap
import struct
import sys
from pathlib import Path

import numpy as np
from frame import framed, pickles_forbidden, run, unframed

from ringbuf import _core, frame
from ringbuf.errors import FrameError

CORPUS = Path(__file__).with_name("corpus")
Point = collections.namedtuple("Point", "x y")

BATCHES = {
    "nothing": None,
    "arrays": {"image": np.arange(24, dtype=np.uint8).reshape(2, 3, 4), "label": np.arange(2)},
    "values": [True, 5, 2**70, 1.5, 2j, "text\ud800", b"bytes", np.str_("s"), np.bytes_(b"s"), np.float32(1)],
    "runs": [[1, 2, 3], (1.5, 2.5), ["a", "b"], (b"a", b"b"), [True, False]],
    "keys": {1: None, "a": 1, (None, b"k", 1.5): [], False: ()},
    "classes": [Point(1, "x"), collections.OrderedDict(a=1)],
    "struct": np.zeros(2, [("a", "i1"), ("b", ">M8[us]", (2,))]),
    "empty": [np.zeros((0, 3)), [], {}, (), ""],
}

SCHEMAS = {
    "pickle": b'["p",0]',
    "tensor": b'["T","float32",0]',
    "dataclass": b'["data","m","P",["x"],"n"]',
    "run": b'["list*","s",1000000000]',
    "deep": b'["list",' * 70 + b'"n"' + b"]" * 70,
    "scalar": b'["x","<U1",""]',
}


def write(target: str, name: str, data: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{name}").write_bytes(data)


def frames() -> None:
    for name, batch in BATCHES.items():
        plan = frame.plan(batch)
        buffer = bytearray(plan.frame_bytes)
        plan.write(buffer)
        write("frame", name, bytes(buffer))
        write("frame", f"{name}-parts", unframed(buffer))
    for name, tree in SCHEMAS.items():
        write("frame", f"schema-{name}", struct.pack("<HH", 0, 8) + bytes(8) + b"[" + tree + b",[]]")
    write("frame", "row", struct.pack("<HH", 64, 0) + bytes(64) + b'["a",[["<f8",[2,2],64]]]')


def segment(**options) -> bytes:
    """The first bytes of a ring with a message in each state: header, control block, rows, descriptors."""
    ring = _core.Ring.create(slot_bytes=64, **options)
    if options.get("mode") == "broadcast":
        ring.subscribe()
    for _ in range(2):
        with ring.claim(timeout=0, tag=1) as claim:
            claim.commit(16)
    held = [ring.claim(timeout=0, tag=2), ring.take(timeout=0)]
    with mmap.mmap(ring.fileno(), ring.total_bytes) as whole:
        payload_at = struct.unpack_from("<Q", whole, 80)[0]
        found = bytearray(whole[:payload_at])
    del held
    ring.close()
    found[96:120] = bytes(24)  # who made it and when: not the same tomorrow
    found[328:336] = bytes(8)  # its checksum, which inputs have made right
    found[4104:4120] = bytes(16)
    return bytes(found)


def small(found: bytes, participants: int = 2) -> bytes:
    """The same with few rows: the header of such a ring, and what stands at the same places."""
    slots = struct.unpack_from("<I", found, 36)[0]
    descs_at = 4096 + 256 * participants
    payload_at = -(-(descs_at + 64 * slots) // 4096) * 4096
    stride = struct.unpack_from("<Q", found, 56)[0]
    header = bytearray(found[:512])
    struct.pack_into("<I", header, 40, participants)
    struct.pack_into("<QQQ", header, 72, descs_at, payload_at, payload_at + slots * stride)
    old_descs_at = struct.unpack_from("<Q", found, 72)[0]
    return bytes(header) + found[512:descs_at] + found[old_descs_at : old_descs_at + 64 * slots]


def segments() -> None:
    for name, options in {
        "queue": {"slots": 4},
        "overwrite": {"slots": 4, "full": "overwrite"},
        "broadcast": {"slots": 4, "mode": "broadcast"},
        "drop": {"slots": 3, "redeliver": False},
    }.items():
        whole = small(segment(**options))
        write("attach", name, b"\1" + whole)
        for state, what in [(1, "writing"), (3, "reading")]:  # all held by the dead
            dead = bytearray(whole)
            for at in range(len(whole) - 64 * options["slots"], len(whole), 64):
                struct.pack_into("<Q", dead, at, state << 61 | 1 << (45 if name == "broadcast" else 49) | 1)
            write("attach", f"{name}-{what}", b"\1" + dead)
    write("attach", "header", b"\0" + whole[:336])
    write("attach", "short", b"\3" + whole[:4000])
    write("attach", "unsealed", b"\5" + whole[:336])
    future = bytearray(whole)
    struct.pack_into("<Q", future, len(whole) - 64, 2 << 61 | 1 << 40)
    write("attach", "future", b"\1" + future)
    grave = bytearray(whole)
    struct.pack_into("<QQQQ", grave, 4096 + 24, 1 << 61 | 1 << 49 | 1, 1 << 40, 7, 1)
    write("attach", "grave", b"\1" + grave)
    unnamed_end = bytearray(whole)
    unnamed_end[120:328] = b"x" * 208
    write("attach", "endless-name", b"\1" + unnamed_end)


def reached(data: bytes) -> set:
    """Pairs of lines that reading this input runs one after the other, and what it ends with."""
    found, last = set(), [None]

    def trace(call, event, argument):
        if "/ringbuf/" not in call.f_code.co_filename:
            return None
        here = call.f_code.co_filename, call.f_lineno
        found.add((last[0], here))
        last[0] = here
        return trace

    sys.settrace(trace)
    try:
        run(data, frame.read, FrameError)
    finally:
        sys.settrace(None)
    try:
        frame.read(framed(data))
    except FrameError as error:
        found.add(type(error.__cause__).__name__)
    return found


def add_frames(folder: Path) -> None:
    known = set()
    with pickles_forbidden():
        for data in sorted((path.read_bytes() for path in (CORPUS / "frame").iterdir()), key=len):
            reached(data)  # so that caches are filled
            known |= reached(data)
        for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_size):
            data = path.read_bytes()
            new = reached(data) - known
            if new:
                known |= new
                (CORPUS / "frame" / f"found-{hashlib.sha256(data).hexdigest()[:12]}").write_bytes(data)


if __name__ == "__main__":
    if sys.argv[1:]:
        add_frames(Path(sys.argv[1]))
    else:
        frames()
        segments()
