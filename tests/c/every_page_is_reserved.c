/* Every page of a segment is reserved when rb_create returns, whatever its size: also the last ones, and with huge pages. */
#include "t.h"

#define MIB (UINT64_C(1) << 20)

static void create(uint64_t slot_bytes, enum rb_hugepages hugepages)
{
	rb_ring *ring = t_create(.slots = 1, .slot_bytes = slot_bytes, .hugepages = hugepages);
	struct rb_info info;
	struct stat stat;

	snprintf(t_context, sizeof(t_context), "a slot of %llu bytes, %s huge pages: ", (unsigned long long)slot_bytes,
		 hugepages == RB_HUGE_NEVER ? "without" : "with");
	rb_get_info(ring, &info);
	t_equal(fstat(rb_fd(ring), &stat), 0);
	t_equal(stat.st_size, info.total_bytes);
	t_check((uint64_t)stat.st_blocks * 512 >= info.total_bytes);
	rb_detach(ring);
}

int main(void)
{
	/* It is done in strides of 8 MiB. */
	const uint64_t sizes[] = { 1, 4096, 4097, MIB, 8 * MIB - 4096, 8 * MIB, 8 * MIB + 1, 12 * MIB };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		create(sizes[s], RB_HUGE_NEVER);
		create(sizes[s], RB_HUGE_ALWAYS);
	}
	return 0;
}
