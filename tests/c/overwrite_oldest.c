/* An overwriting ring never refuses while a message is unread: the oldest goes, is counted, and the newest stay in order. */
#include "t.h"

#define SLOTS 4

int main(void)
{
	rb_ring *ring = t_create(.slots = SLOTS, .slot_bytes = 64, .full = RB_OVERWRITE);

	for (uint64_t i = 0; i < 10; i++)
		t_put(ring, i);
	t_equal(t_stats(ring).dropped, 6);
	for (uint64_t i = 6; i < 10; i++)
		t_equal(t_get(ring), i);
	t_equal(t_refused_take(ring), -EAGAIN);

	/* What somebody holds is never overwritten: a message being read or written is not for the taking. */
	t_put(ring, 20);
	t_put(ring, 21);
	struct rb_slot held = t_take(ring);
	struct rb_slot open = t_claim(ring, 30);
	t_fill(&open);
	for (uint64_t i = 40; i < 50; i++)
		t_put(ring, i);
	t_verify(&held);
	t_equal(held.tag, 20);
	t_equal(t_stats(ring).dropped, 6 + 1 + 8); /* 21, and 40 to 47 */
	t_equal(rb_commit(ring, &open, 16), 0);
	t_equal(rb_release(ring, &held), 0);
	t_equal(t_get(ring), 48);
	t_equal(t_get(ring), 49);
	t_equal(t_get(ring), 30);

	/* Nothing unread is left to give up: then it is as full as any. */
	for (int i = 0; i < SLOTS; i++)
		t_claim(ring, 60);
	t_equal(t_refused_claim(ring), -EAGAIN);
	t_equal(t_stats(ring).published, 10 + 2 + 10 + 1);
	t_equal(t_stats(ring).consumed, 4 + 1 + 3);
	rb_detach(ring);

	ring = t_create(.slots = 1, .slot_bytes = 64, .full = RB_OVERWRITE);
	t_put(ring, 1);
	t_put(ring, 2);
	t_equal(t_get(ring), 2);
	rb_detach(ring);
	return 0;
}
