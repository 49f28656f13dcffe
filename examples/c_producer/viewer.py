"""Look at what the camera takes: its arrays, without a copy."""

import sys
import time

import ringbuf

ring = ringbuf.attach(sys.argv[1] if len(sys.argv) > 1 else "camera")  # waits up to 10 s for it
seen = []
age_ns = 0
for picture in ring:
    image, number = picture["image"], int(picture["number"])
    assert image.shape == (480, 640, 3) and (image[0, 0] == number % 256).all()
    age_ns = time.monotonic_ns() - int(picture["time_ns"])
    if number % 50 == 0:
        print(f"picture {number:4}: mean {image.mean():6.2f}, {age_ns / 1e6:.1f} ms old")
    seen.append(number)

print(f"{len(seen)} pictures up to number {seen[-1]}, in order: {seen == sorted(seen)}; {ring.stats().dropped} were overwritten")
