/* A killed reader holds nobody up: its bits are cleared, also of what it held, and the others go on undisturbed. */
#include "t.h"

static rb_ring *ring;
static _Atomic int *step;

static void read_and_hang(void *arg)
{
	(void)arg;
	t_equal(rb_subscribe(ring), 0);
	atomic_store(step, 1);
	struct rb_slot slot = t_take(ring);
	t_equal(slot.tag, 1);
	atomic_store(step, 2);
	t_hang();
}

int main(void)
{
	step = t_shared(sizeof(*step));
	ring = t_broadcast(3);
	rb_ring *reader = t_attach(ring);
	t_equal(rb_subscribe(reader), 0);
	pid_t child = t_child(read_and_hang, NULL);

	t_await(step, 1);
	t_put(ring, 1);
	t_put(ring, 2);
	t_put(ring, 3);
	t_await(step, 2);
	t_equal(t_get(reader), 1);
	t_equal(t_refused_claim(ring), -EAGAIN); /* it lives, and owes a release of all three */
	t_equal(t_stats(ring).readers, 2);

	t_kill(child);
	t_put(ring, 4); /* waits until the dead one is found */
	t_equal(t_stats(ring).readers, 1);
	t_equal(t_stats(ring).participants, 2);
	t_equal(t_get(reader), 2);
	t_equal(t_get(reader), 3);
	t_equal(t_get(reader), 4);
	t_equal(t_stats(ring).free, 3);
	t_equal(t_stats(ring).lost, 0);
	rb_detach(reader);
	rb_detach(ring);
	return 0;
}
