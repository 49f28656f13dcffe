/* An aborted message is never delivered, its slot is free at once, and its holder cannot publish it any more. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_queue(1);
	struct rb_slot slot = t_claim(ring, 1);

	t_fill(&slot);
	t_equal(rb_abort(ring, &slot), 0);
	t_equal(t_refused_take(ring), -EAGAIN);
	t_equal(t_stats(ring).free, 1);
	t_equal(rb_abort(ring, &slot), -ESTALE);
	t_equal(rb_commit(ring, &slot, 16), -ESTALE);

	/* Nor when the same process has the same slot again: that is another claim. */
	struct rb_slot again = t_claim(ring, 2);
	t_equal(again.index, slot.index);
	t_equal(rb_commit(ring, &slot, 16), -ESTALE);
	t_equal(rb_abort(ring, &slot), -ESTALE);
	t_commit(ring, again);
	t_equal(t_get(ring), 2);
	t_equal(t_refused_take(ring), -EAGAIN);
	t_equal(t_stats(ring).published, 1);
	t_equal(t_stats(ring).lost, 0);
	rb_detach(ring);
	return 0;
}
