"""Put pictures into the ring and leave when all were read."""

import argparse
import time

import numpy as np

import ringbuf

parser = argparse.ArgumentParser()
parser.add_argument("--messages", type=int, default=100)
parser.add_argument("--name", default="pictures")
options = parser.parse_args()

random = np.random.default_rng(0)
with ringbuf.RingBuffer(slots=4, slot_bytes=1 << 20, name=options.name) as ring:
    for number in range(options.messages):
        image = random.integers(0, 256, (256, 256, 3), np.uint8)
        ring.put({"image": image, "labels": {"number": number, "weights": np.full(4, number, np.float32)}})
    ring.finish()
    while ring.stats().consumed < options.messages:  # the name goes when we do
        time.sleep(0.01)
