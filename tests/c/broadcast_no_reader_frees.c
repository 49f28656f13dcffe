/* What nobody is subscribed to read is freed by its commit and counted as dropped; the producer is never held up. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_broadcast(2), *reader = t_attach(ring);

	for (uint64_t i = 0; i < 10; i++)
		t_put(ring, i);
	t_equal(t_stats(ring).published, 10);
	t_equal(t_stats(ring).dropped, 10);
	t_equal(t_stats(ring).free, 2);

	/* Claimed without readers, committed with one: it is for that one. */
	struct rb_slot slot = t_claim(ring, 11);
	t_equal(rb_subscribe(reader), 0);
	t_commit(ring, slot);
	t_equal(t_get(reader), 11);

	/* And the other way round. */
	slot = t_claim(ring, 12);
	t_equal(rb_unsubscribe(reader), 0);
	t_commit(ring, slot);
	t_equal(t_stats(ring).dropped, 11);
	t_equal(t_stats(ring).free, 2);
	rb_detach(reader);
	rb_detach(ring);
	return 0;
}
