/* A take by tag gets the oldest message with that tag, passes over the others, and leaves them in order. */
#include "t.h"

static int take_tag(rb_ring *ring, uint64_t tag, struct rb_slot *out)
{
	struct rb_filter filter = { .by_tag = true, .tag = tag };

	return rb_take(ring, &filter, RB_NOW, out);
}

int main(void)
{
	static const uint64_t tags[] = { 7, 5, 0, 5, UINT64_MAX };
	rb_ring *ring = t_queue(5);
	struct rb_slot slot, second;

	for (int i = 0; i < 5; i++)
		t_put(ring, tags[i]);

	t_equal(take_tag(ring, 6, &slot), -EAGAIN);
	t_equal(take_tag(ring, 5, &slot), 0);
	t_verify(&slot);
	t_equal(take_tag(ring, 5, &second), 0);
	t_verify(&second);
	t_equal(second.tag, 5);
	t_check(second.ticket > slot.ticket);
	t_equal(take_tag(ring, 5, &slot), -EAGAIN);
	t_equal(take_tag(ring, 0, &slot), 0);
	t_equal(slot.tag, 0);

	/* Finished: the end has come for a tag that is not there, not yet for the others. */
	t_equal(rb_finish(ring), 0);
	t_equal(take_tag(ring, 5, &slot), -EPIPE);
	t_equal(take_tag(ring, UINT64_MAX, &slot), 0);
	t_equal(t_get(ring), 7);
	t_equal(t_refused_take(ring), -EPIPE);
	rb_detach(ring);
	return 0;
}
