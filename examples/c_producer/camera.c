/* A camera in C: a picture of 640 x 480 pixels every few milliseconds, for whoever attaches to the ring.
 * Nobody has to: when all slots are full, the oldest picture makes room.
 *
 *   make && ./camera 300 & python3 viewer.py */
#include <ringbuf.h>
#include <ringbuf_frame.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static int failed(const char *what, int rc)
{
	fprintf(stderr, "camera: %s: %s\n", what, strerror(-rc));
	return EXIT_FAILURE;
}

/* What the sensor would do: a gradient that moves, and the picture's number in its first pixel. */
static void expose(unsigned char *pixels, uint32_t number)
{
	for (uint32_t y = 0; y < 480; y++)
		for (uint32_t x = 0; x < 640 * 3; x++)
			*pixels++ = (unsigned char)(x / 3 + y + number);
	memset(pixels - 480 * 640 * 3, (int)(number & 255), 3);
}

int main(int argc, char **argv)
{
	uint32_t pictures = argc > 1 ? (uint32_t)atoi(argv[1]) : 300;
	struct rb_array arrays[] = {
		{.name = "image", .dtype = "|u1", .ndim = 3, .shape = {480, 640, 3}},
		{.name = "number", .dtype = "<u4"},
		{.name = "time_ns", .dtype = "<i8"},
	};
	struct rb_options options = {
		.name = argc > 2 ? argv[2] : "camera", /* for ringbuf.attach() */
		.slots = 8,
		.slot_bytes = 480 * 640 * 3 + RB_FRAME_ROOM,
		.full = RB_OVERWRITE,
	};
	struct rb_stats stats;
	rb_ring *ring;

	int rc = rb_create(&options, &ring);
	if (rc)
		return failed("no ring", rc);
	for (uint32_t number = 0; number < pictures && rc == 0; number++) {
		struct rb_slot slot;
		uint64_t bytes;

		rc = rb_claim(ring, number, RB_ANY, RB_FOREVER, &slot);
		if (rc)
			break;
		rc = rb_frame_lay_out(slot.data, slot.bytes, arrays, 3, &bytes);
		if (rc == 0) {
			expose(arrays[0].data, number);
			*(uint32_t *)arrays[1].data = number;
			*(int64_t *)arrays[2].data = rb_now_ns();
			rc = rb_commit(ring, &slot, bytes);
		}
		pause_ms(5);
	}
	rb_finish(ring);
	do { /* the name goes with us: stay until the last pictures were looked at */
		pause_ms(10);
		rb_get_stats(ring, &stats);
	} while (rc == 0 && stats.ready + stats.reading);
	rb_detach(ring);
	return rc ? failed("stopped", rc) : EXIT_SUCCESS;
}
