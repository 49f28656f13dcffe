/* A message has from no bytes to all that a slot was made for; one more is -EMSGSIZE, and the slot stays claimed. */
#include "t.h"

#define BYTES 10000

static void pass_on(rb_ring *ring, uint64_t bytes)
{
	struct rb_slot slot = t_claim(ring, bytes);

	t_equal(slot.bytes, BYTES);
	t_equal((uintptr_t)slot.data % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
	memset(slot.data, (int)bytes & 0xff, bytes);
	t_equal(rb_commit(ring, &slot, bytes), 0);

	t_equal(rb_take(ring, NULL, RB_NOW, &slot), 0);
	t_equal(slot.bytes, bytes);
	for (uint64_t i = 0; i < bytes; i++)
		t_equal(((unsigned char *)slot.data)[i], bytes & 0xff);
	t_equal(rb_release(ring, &slot), 0);
}

int main(void)
{
	rb_ring *ring = t_create(.slots = 2, .slot_bytes = BYTES);
	struct rb_info info;

	rb_get_info(ring, &info);
	t_equal(info.slot_bytes, BYTES);
	t_check(info.slot_stride >= BYTES);
	pass_on(ring, 0);
	pass_on(ring, 1);
	pass_on(ring, BYTES);

	struct rb_slot slot = t_claim(ring, 5);
	t_equal(rb_commit(ring, &slot, BYTES + 1), -EMSGSIZE);
	t_equal(rb_commit(ring, &slot, UINT64_MAX), -EMSGSIZE);
	t_equal(t_stats(ring).writing, 1);
	t_equal(rb_commit(ring, &slot, BYTES), 0);
	rb_detach(ring);
	return 0;
}
