/* Messages are taken in the order of their commits, whatever the order of their claims. */
#include "t.h"

int main(void)
{
	static const int order[] = { 2, 0, 3, 1 };
	struct rb_slot slots[4];
	rb_ring *ring = t_queue(4);
	uint64_t last = 0;

	for (int i = 0; i < 4; i++)
		slots[i] = t_claim(ring, (uint64_t)i);
	for (int i = 0; i < 4; i++)
		t_commit(ring, slots[order[i]]);

	for (int i = 0; i < 4; i++) {
		struct rb_slot slot = t_take(ring);
		t_equal(slot.tag, order[i]);
		t_equal(slot.index, slots[order[i]].index);
		t_equal(slot.target, RB_ANY);
		t_check(slot.ticket > last);
		last = slot.ticket;
		t_equal(rb_release(ring, &slot), 0);
	}
	t_equal(t_refused_take(ring), -EAGAIN);
	rb_detach(ring);
	return 0;
}
