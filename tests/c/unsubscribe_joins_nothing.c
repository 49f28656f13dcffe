/* A forked child that unsubscribes an inherited handle is no reader and does not become a participant by it. */
#include "t.h"

static void unsubscribe(void *arg)
{
	rb_ring *ring = arg;

	t_equal(rb_unsubscribe(ring), 0);
	t_equal(t_stats(ring).participants, 1);
	rb_detach(ring);
}

int main(void)
{
	for (int mode = RB_QUEUE; mode <= RB_BROADCAST; mode++) {
		rb_ring *ring = t_create(.slots = 2, .slot_bytes = 64, .mode = (enum rb_mode)mode);

		if (mode == RB_BROADCAST)
			t_equal(rb_subscribe(ring), 0);
		t_ends_well(t_child(unsubscribe, ring));
		t_equal(t_stats(ring).readers, mode == RB_BROADCAST);
		rb_detach(ring);
	}
	return 0;
}
