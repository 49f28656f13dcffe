/* A ring without committed messages gives -EAGAIN; what is claimed, aborted or taken is no message. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_queue(2);

	t_equal(t_refused_take(ring), -EAGAIN);
	struct rb_slot slot = t_claim(ring, 1);
	t_equal(t_refused_take(ring), -EAGAIN);
	t_equal(rb_ready(ring), 0);
	t_equal(rb_abort(ring, &slot), 0);
	t_equal(t_refused_take(ring), -EAGAIN);

	t_put(ring, 2);
	t_equal(rb_ready(ring), 1);
	slot = t_take(ring);
	t_equal(t_refused_take(ring), -EAGAIN);
	t_equal(rb_ready(ring), 0);
	t_equal(rb_release(ring, &slot), 0);
	t_equal(t_refused_take(ring), -EAGAIN);
	rb_detach(ring);
	return 0;
}
