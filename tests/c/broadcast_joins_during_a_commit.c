/* A message that is committed while a reader joins, and is older than what that is owed, holds its slot no longer than the joining. */
#include "t.h"

#include "crash_points.h"

static rb_ring *ring;
static bool joining;

/* Active, so that a commit leaves the reader's bit, and without a first ticket, so that the commit cannot clear it again. */
void rb_crash_point(enum rb_crash_point point)
{
	if (!joining || point != RB_AT_subscribe_active)
		return;
	joining = false;
	t_put(ring, 1);
	t_equal(t_stats(ring).ready, 1);
}

int main(void)
{
	ring = t_broadcast(1);
	rb_ring *reader = t_attach(ring);

	joining = true;
	t_equal(rb_subscribe(reader), 0);
	t_check(!joining);
	t_equal(t_stats(ring).free, 1); /* though it has not taken anything yet */
	t_equal(t_refused_take(reader), -EAGAIN);
	t_put(ring, 2);
	t_equal(t_get(reader), 2);
	t_equal(t_stats(ring).free, 1);
	rb_detach(reader);
	rb_detach(ring);
	return 0;
}
