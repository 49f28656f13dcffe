/* Huge pages round a slot up to 2 MiB: always when asked for, by themselves from 16 MiB on, never when refused; the ring works the same. */
#include "t.h"

#define MIB (UINT64_C(1) << 20)

static void use(uint64_t slot_bytes, enum rb_hugepages hugepages, uint64_t want)
{
	rb_ring *ring = t_create(.slots = 2, .slot_bytes = slot_bytes, .participants = 4, .hugepages = hugepages);
	struct rb_info info;

	rb_get_info(ring, &info);
	t_equal(info.slot_stride, want);
	t_equal(info.slot_bytes, slot_bytes);
	for (uint64_t tag = 1; tag <= 4; tag++) {
		struct rb_slot slot = t_claim(ring, tag);
		t_equal(slot.bytes, slot_bytes);
		((unsigned char *)slot.data)[slot_bytes - 1] = 1;
		t_commit(ring, slot);
		t_equal(t_get(ring), tag);
	}
	rb_detach(ring);
}

int main(void)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	use(100, RB_HUGE_NEVER, page);
	use(100, RB_HUGE_AUTO, page);
	use(100, RB_HUGE_ALWAYS, 2 * MIB);
	use(2 * MIB + 1, RB_HUGE_ALWAYS, 4 * MIB);
	use(16 * MIB - page, RB_HUGE_AUTO, 16 * MIB - page);
	use(16 * MIB + 1, RB_HUGE_AUTO, 18 * MIB);
	use(16 * MIB + 1, RB_HUGE_NEVER, 16 * MIB + page);
	return 0;
}
