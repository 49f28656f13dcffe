/* A reader gets what is committed from its joining to its leaving, and keeps nobody's slots after that. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_broadcast(4), *early = t_attach(ring), *late = t_attach(ring);

	t_equal(rb_subscribe(early), 0);
	t_equal(rb_subscribe(early), 0); /* once is enough */
	t_equal(t_stats(ring).readers, 1);
	t_put(ring, 1);
	t_equal(t_refused_take(late), -EAGAIN); /* the first take joins, too */
	t_equal(t_stats(ring).readers, 2);
	t_put(ring, 2);
	t_equal(t_get(late), 2);
	t_equal(t_get(early), 1);
	t_equal(rb_ready(early), 1);

	/* Leaving gives up what was not taken, for this reader only. */
	t_put(ring, 3);
	t_equal(t_get(early), 2);
	t_equal(rb_unsubscribe(early), 0);
	t_equal(rb_unsubscribe(early), 0);
	t_equal(t_stats(ring).readers, 1);
	t_equal(t_stats(ring).free, 3);
	t_equal(t_get(late), 3);
	t_equal(t_stats(ring).free, 4);

	/* Who comes back is new: nothing from before, all from now on. */
	t_put(ring, 4);
	t_equal(rb_subscribe(early), 0);
	t_put(ring, 5);
	t_equal(t_get(early), 5);
	t_equal(t_refused_take(early), -EAGAIN);
	t_equal(t_get(late), 4);

	/* Detaching leaves as well. */
	rb_detach(late);
	t_equal(t_stats(ring).readers, 1);
	t_equal(t_stats(ring).free, 4);
	rb_detach(early);

	/* Entries are used again, many times over. */
	for (int i = 0; i < 100; i++) {
		rb_ring *guest = t_attach(ring);
		t_equal(rb_subscribe(guest), 0);
		t_put(ring, (uint64_t)i);
		t_equal(t_get(guest), i);
		if (i % 2)
			t_equal(rb_unsubscribe(guest), 0);
		rb_detach(guest);
	}
	t_equal(t_stats(ring).readers, 0);
	t_equal(t_stats(ring).free, 4);

	rb_ring *queue = t_queue(1);
	t_equal(rb_subscribe(queue), -EINVAL);
	rb_detach(queue);
	rb_detach(ring);
	return 0;
}
