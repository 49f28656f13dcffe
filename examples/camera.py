"""A camera does not wait: a full ring overwrites its oldest picture, and a slow reader sees the newest ones.

A process stands for the camera. The reader takes longer for a picture than the camera; it skips some, and never falls behind.

    python examples/camera.py
    python examples/camera.py --full block      # the camera waits for the reader instead
"""

import argparse
import multiprocessing
import sys
import time

import numpy as np

import ringbuf

SHAPE = (480, 640, 3)


def film(ring, pictures, per_second):
    """The camera: pictures in place, at a steady rate if nobody holds it up."""
    try:
        due = time.monotonic()
        for number in range(pictures):
            with ring.reserve() as slot:  # full="overwrite": gets a slot at once
                image = slot.empty(SHAPE, np.uint8)
                image[:] = number % 256
                slot.value = {"number": number, "taken_ns": time.monotonic_ns(), "image": image}
            due += 1 / per_second
            time.sleep(max(0, due - time.monotonic()))
        ring.finish()  # the reader's loop ends with what is left
    except KeyboardInterrupt:
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", choices=["overwrite", "block"], default="overwrite")
    parser.add_argument("--pictures", type=int, default=600)
    parser.add_argument("--per-second", type=float, default=200)
    parser.add_argument("--look-ms", type=float, default=20, help="what the reader takes for a picture")
    options = parser.parse_args()
    with ringbuf.RingBuffer(slots=4, slot_bytes=int(np.prod(SHAPE)), full=options.full) as ring:
        camera = multiprocessing.Process(target=film, args=(ring, options.pictures, options.per_second))
        camera.start()
        seen, ages, last = 0, [], -1
        for picture in ring:  # in the order in which they were taken
            ages.append((time.monotonic_ns() - picture["taken_ns"]) / 1e6)
            assert picture["number"] > last and (picture["image"] == picture["number"] % 256).all()
            if seen % 25 == 0:
                dropped = ring.stats().dropped
                print(f"picture {picture['number']:>4}, {ages[-1]:5.1f} ms old, {dropped} dropped so far", flush=True)
            seen, last = seen + 1, picture["number"]
            time.sleep(options.look_ms / 1e3)
        camera.join()
        print(f"{options.pictures} taken, {seen} seen, {ring.stats().dropped} dropped; at most {max(ages):.0f} ms old when seen")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
