/* Where the kernel does not say how much memory is left, a ring is made without asking. */
#include "t.h"

static const char *meminfo; /* what it says; NULL: there is none */

FILE *fopen(const char *path, const char *mode)
{
	t_equal(strcmp(path, "/proc/meminfo"), 0);
	return meminfo ? fmemopen((void *)(uintptr_t)meminfo, strlen(meminfo), mode) : NULL;
}

int main(void)
{
	struct rb_options options = { .slots = 1, .slot_bytes = 1 << 20 };
	rb_ring *ring = NULL;

	rb_detach(t_queue(1));
	meminfo = "MemFree: 1 kB\nSwapFree: 1 kB\n"; /* a kernel older than MemAvailable */
	rb_detach(t_queue(1));

	meminfo = "MemAvailable: 100 kB\nSwapFree: 50 kB\n";
	t_equal(rb_create(&options, &ring), -ENOMEM);
	meminfo = "MemAvailable: 100 kB\nSwapFree: 5000 kB\n";
	t_equal(rb_create(&options, &ring), 0);
	rb_detach(ring);
	return 0;
}
