/* After finish: claims are refused, what was claimed may be committed, everything committed is taken, then -EPIPE. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_queue(4);

	t_put(ring, 1);
	struct rb_slot open = t_claim(ring, 2), given_up = t_claim(ring, 3);
	t_equal(rb_finish(ring), 0);
	t_equal(rb_finish(ring), 0);
	t_equal(t_refused_claim(ring), -EPIPE);
	t_check(t_stats(ring).finished);

	t_equal(t_get(ring), 1);
	t_equal(t_refused_take(ring), -EAGAIN); /* one may still come */
	t_commit(ring, open);
	struct rb_slot slot = t_take(ring);
	t_equal(slot.tag, 2);
	t_equal(t_refused_take(ring), -EAGAIN);
	t_equal(rb_abort(ring, &given_up), 0);
	t_equal(t_refused_take(ring), -EPIPE);
	t_equal(rb_release(ring, &slot), 0);

	/* Who comes late finds the end as well. */
	rb_ring *late = t_attach(ring);
	t_equal(t_refused_take(late), -EPIPE);
	t_equal(t_refused_claim(late), -EPIPE);
	rb_detach(late);
	rb_detach(ring);
	return 0;
}
