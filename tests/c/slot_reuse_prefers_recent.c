/* A claim gets the slot that was used last: its memory is the likeliest to be in cache. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_queue(8);

	/* One at a time: always the same slot, of eight. */
	t_put(ring, 0);
	struct rb_slot first = t_take(ring);
	t_equal(rb_release(ring, &first), 0);
	for (int i = 1; i < 100; i++) {
		struct rb_slot slot = t_claim(ring, (uint64_t)i);
		t_equal(slot.index, first.index);
		t_commit(ring, slot);
		t_equal(t_get(ring), i);
	}

	/* After three at a time: the slot of the newest message. */
	for (int i = 0; i < 3; i++)
		t_put(ring, (uint64_t)i);
	uint32_t newest = 0;
	for (int i = 0; i < 3; i++) {
		struct rb_slot slot = t_take(ring);
		newest = slot.index;
		t_equal(rb_release(ring, &slot), 0);
	}
	struct rb_slot slot = t_claim(ring, 0);
	t_equal(slot.index, newest);

	/* An aborted slot was used last, too. */
	struct rb_slot other = t_claim(ring, 1);
	t_equal(rb_abort(ring, &slot), 0);
	struct rb_slot again = t_claim(ring, 2);
	t_equal(again.index, slot.index);
	t_equal(rb_abort(ring, &again), 0);
	t_equal(rb_abort(ring, &other), 0);
	rb_detach(ring);
	return 0;
}
