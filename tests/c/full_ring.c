/* A full ring refuses with -EAGAIN, whatever it is full of; one release makes room for one. */
#include "t.h"

#define SLOTS 3

int main(void)
{
	struct rb_slot claimed[SLOTS], taken[SLOTS];
	rb_ring *ring = t_queue(SLOTS);

	for (int i = 0; i < SLOTS; i++) {
		claimed[i] = t_claim(ring, (uint64_t)i);
		for (int k = 0; k < i; k++)
			t_check(claimed[k].index != claimed[i].index);
	}
	t_equal(t_refused_claim(ring), -EAGAIN);

	for (int i = 0; i < SLOTS; i++)
		t_commit(ring, claimed[i]);
	t_equal(t_refused_claim(ring), -EAGAIN);

	for (int i = 0; i < SLOTS; i++)
		taken[i] = t_take(ring);
	t_equal(t_refused_claim(ring), -EAGAIN);

	t_equal(rb_release(ring, &taken[1]), 0);
	struct rb_slot again = t_claim(ring, 9);
	t_equal(again.index, taken[1].index);
	t_equal(t_refused_claim(ring), -EAGAIN);
	rb_detach(ring);
	return 0;
}
