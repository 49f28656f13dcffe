"""Read what the simulator writes: it runs in a thread, without the GIL, and fills slots while we look at others."""

import argparse
import threading

import numpy as np
from walks import produce

import ringbuf

parser = argparse.ArgumentParser()
parser.add_argument("--walks", type=int, default=1000)
parser.add_argument("--steps", type=int, default=10_000)
parser.add_argument("--name", default="walks")
options = parser.parse_args()

with ringbuf.RingBuffer(slots=4, slot_bytes=options.steps * 16, name=options.name) as ring:
    thread = threading.Thread(target=produce, args=(options.name, options.walks, options.steps))
    thread.start()
    ends = np.array([message["walk"][-1].copy() for message in ring])  # a view would keep its slot
    thread.join()

distance = np.sqrt((ends**2).sum(axis=1).mean())
expected = np.sqrt(2 * options.steps)
print(f"{len(ends)} walks of {options.steps} steps end {distance:.0f} from the start (about {expected:.0f} expected)")
