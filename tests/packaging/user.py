"""A user's program, for a type checker: tests/packaging/test_types.py has mypy --strict look at it. It is never run."""

from collections.abc import Iterator
from typing import Any, assert_type

import numpy as np

import ringbuf


class Pictures:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": np.zeros((3, 4), np.uint8), "label": index}


def produce(ring: ringbuf.RingBuffer) -> None:
    try:
        ring.put({"image": np.zeros(3)}, timeout=1.5, tag=7)
        ring.put_many([1, 2])
    except ringbuf.Full:
        pass
    except ringbuf.BatchTooLarge as error:
        assert_type(error.needed_bytes, int)
    with ring.reserve(tag=3) as slot:
        image = slot.empty((2, 3), np.uint8)
        slot.value = {"image": image}
    ring.finish()


def consume(name: str) -> int:
    with ringbuf.attach(name, timeout=None) as ring:
        assert_type(ring, ringbuf.RingBuffer)
        for batch in ring:
            print(batch["image"])
        try:
            ring.get(timeout=0)
        except (ringbuf.Empty, ringbuf.Closed) as error:
            print(error)
        stats = ring.stats()
        assert_type(stats, ringbuf.Stats)
        assert_type(stats.finished, bool)
        assert_type(ring.lost(), list[ringbuf.Lost])
        return len(ring) + stats.published + ring.slots + ring.slot_bytes


def load() -> None:
    loader = ringbuf.RingLoader(Pictures(), batch_size=2, shuffle=True, num_workers=2, seed_by="sample")
    with loader:
        for batch in loader:
            print(batch["label"])
    loader.load_state_dict(loader.state_dict())
    assert_type(loader.stats(), ringbuf.LoaderStats)


def batches(epoch: int) -> Iterator[dict[str, Any]]:
    yield {"x": np.zeros(epoch)}


def serve() -> None:
    with ringbuf.Server(batches, name="train", epochs=2) as server:
        assert_type(server, ringbuf.Server)
        with ringbuf.connect("train") as stream:
            assert_type(stream, ringbuf.Stream)
            for batch in stream:
                print(batch["x"])


def build() -> None:
    assert_type(ringbuf.get_include(), str)
    assert_type(ringbuf.get_library(), str)


with ringbuf.RingBuffer(slots=4, slot_bytes=1 << 20, name="cam0", mode="broadcast", full="block") as ring:
    produce(ring)
