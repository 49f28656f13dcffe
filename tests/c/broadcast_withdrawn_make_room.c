/* A reader that unsubscribed with a message in hand makes room for another reader as soon as it has released it. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_broadcast(2), *readers[RB_READERS_MAX];
	struct rb_slot held[RB_READERS_MAX];

	for (uint32_t r = 0; r < RB_READERS_MAX; r++) {
		readers[r] = t_attach(ring);
		t_equal(rb_subscribe(readers[r]), 0);
	}
	t_put(ring, 1);
	for (uint32_t r = 0; r < RB_READERS_MAX; r++) {
		held[r] = t_take(readers[r]);
		t_equal(rb_unsubscribe(readers[r]), 0);
	}
	t_equal(rb_subscribe(ring), -EUSERS); /* their entries stand for what they hold */
	for (uint32_t r = 0; r < RB_READERS_MAX; r++)
		t_equal(rb_release(readers[r], &held[r]), 0);
	t_equal(rb_subscribe(ring), 0);
	t_put(ring, 2);
	t_equal(t_get(ring), 2);
	for (uint32_t r = 0; r < RB_READERS_MAX; r++)
		rb_detach(readers[r]);
	rb_detach(ring);
	return 0;
}
