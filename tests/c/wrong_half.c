/* Producers' calls refuse what was taken, consumers' calls refuse what was claimed: -ESTALE, nothing changes. */
#include "t.h"

static void mix_up(enum rb_mode mode)
{
	rb_ring *ring = t_create(.slots = 2, .slot_bytes = 64, .mode = mode);

	if (mode == RB_BROADCAST)
		t_equal(rb_subscribe(ring), 0);
	struct rb_slot claimed = t_claim(ring, 1);
	t_equal(rb_release(ring, &claimed), -ESTALE);
	t_equal(t_stats(ring).writing, 1);
	t_commit(ring, claimed);

	struct rb_slot taken = t_take(ring);
	t_equal(rb_commit(ring, &taken, 16), -ESTALE);
	t_equal(rb_abort(ring, &taken), -ESTALE);
	t_equal(t_refused_take(ring), -EAGAIN);
	t_equal(rb_release(ring, &taken), 0);
	t_equal(t_stats(ring).free, 2);
	t_equal(t_stats(ring).published, 1);
	rb_detach(ring);
}

int main(void)
{
	mix_up(RB_QUEUE);
	mix_up(RB_BROADCAST);
	return 0;
}
