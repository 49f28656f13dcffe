/* Every reader gets every message, in order; the slot is free when the last has released it; there is room for 16. */
#include "t.h"

#define SLOTS 4

int main(void)
{
	rb_ring *ring = t_broadcast(SLOTS), *readers[RB_READERS_MAX];
	struct rb_slot slot, held[2];

	for (int r = 0; r < (int)RB_READERS_MAX; r++) {
		readers[r] = t_attach(ring);
		t_equal(rb_subscribe(readers[r]), 0);
	}
	t_equal(rb_subscribe(ring), -EUSERS);
	t_equal(t_refused_take(ring), -EUSERS);
	t_equal(t_stats(ring).readers, RB_READERS_MAX);

	for (uint64_t tag = 0; tag < SLOTS; tag++)
		t_put(ring, tag);
	t_equal(t_refused_claim(ring), -EAGAIN);
	for (int r = 0; r < (int)RB_READERS_MAX; r++) {
		t_equal(rb_ready(readers[r]), SLOTS);
		held[0] = t_take(readers[r]); /* what is held is not taken again, what is behind it is */
		held[1] = t_take(readers[r]);
		t_equal(held[0].tag, 0);
		t_equal(held[1].tag, 1);
		t_equal(t_get(readers[r]), 2);
		t_equal(t_get(readers[r]), 3);
		t_equal(t_refused_take(readers[r]), -EAGAIN);
		t_equal(rb_release(readers[r], &held[1]), 0);
		t_equal(rb_ready(readers[r]), 0);
		t_equal(t_stats(ring).free, r + 1 < (int)RB_READERS_MAX ? 0 : SLOTS - 1);
		t_equal(rb_release(readers[r], &held[0]), 0);
	}
	t_equal(t_stats(ring).free, SLOTS);
	t_equal(t_stats(ring).consumed, SLOTS * RB_READERS_MAX);
	t_equal(t_stats(ring).published, SLOTS);
	t_equal(t_stats(ring).dropped, 0);

	/* Filters work for each reader on its own. */
	t_put(ring, 8);
	t_put(ring, 9);
	struct rb_filter nine = { .by_tag = true, .tag = 9 };
	t_equal(rb_take(readers[0], &nine, RB_NOW, &slot), 0);
	t_verify(&slot);
	t_equal(rb_take(readers[0], &nine, RB_NOW, &slot), -EAGAIN);
	t_equal(t_get(readers[0]), 8);
	for (int r = 1; r < (int)RB_READERS_MAX; r++)
		t_equal(t_get(readers[r]), 8);

	/* The end: each drains its own. */
	rb_finish(ring);
	t_equal(t_get(readers[1]), 9);
	t_equal(t_refused_take(readers[1]), -EPIPE);
	t_equal(t_get(readers[2]), 9);
	for (int r = 0; r < (int)RB_READERS_MAX; r++)
		rb_detach(readers[r]);
	rb_detach(ring);
	return 0;
}
