/* A take by target gets the oldest message addressed to it or to anyone, and never somebody else's. */
#include "t.h"

static void put_for(rb_ring *ring, uint64_t tag, uint32_t target)
{
	struct rb_slot slot;

	t_equal(rb_claim(ring, tag, target, RB_NOW, &slot), 0);
	t_equal(slot.target, target);
	t_commit(ring, slot);
}

static int get_as(rb_ring *ring, uint32_t me)
{
	struct rb_filter filter = { .by_target = true, .target = me };
	struct rb_slot slot;
	int rc = rb_take(ring, &filter, RB_NOW, &slot);

	if (rc < 0)
		return rc;
	t_check(slot.target == me || slot.target == RB_ANY);
	t_verify(&slot);
	t_equal(rb_release(ring, &slot), 0);
	return (int)slot.tag;
}

int main(void)
{
	struct rb_filter mine = { .by_target = true, .target = 1, .by_tag = true, .tag = 15 };
	rb_ring *ring = t_queue(8);
	struct rb_slot slot;

	put_for(ring, 10, 1);
	put_for(ring, 11, 0);
	put_for(ring, 12, RB_ANY);
	put_for(ring, 13, 1);
	put_for(ring, 14, 2);
	put_for(ring, 15, 2);

	t_equal(get_as(ring, 0), 11);
	t_equal(get_as(ring, 1), 10);
	t_equal(get_as(ring, 1), 12);
	t_equal(get_as(ring, 0), -EAGAIN);
	t_equal(get_as(ring, 1), 13);
	t_equal(get_as(ring, 3), -EAGAIN);
	t_equal(rb_take(ring, &mine, RB_NOW, &slot), -EAGAIN); /* the tag is there, for another */
	t_equal(get_as(ring, RB_ANY), -EAGAIN);                /* one who is nobody in particular */

	/* Without a filter anybody's message will do. */
	t_equal(t_get(ring), 14);
	t_equal(rb_finish(ring), 0);
	t_equal(get_as(ring, 1), -EPIPE);
	t_equal(get_as(ring, 2), 15);
	rb_detach(ring);
	return 0;
}
