/* Without redelivery, what a killed consumer held is dropped and counted, and its slots come back. */
#include "t.h"

static rb_ring *ring;
static _Atomic int *step;

static void take_two_and_hang(void *arg)
{
	(void)arg;
	t_take(ring);
	t_take(ring);
	atomic_store(step, 1);
	t_hang();
}

int main(void)
{
	step = t_shared(sizeof(*step));
	ring = t_create(.slots = 3, .slot_bytes = 64, .redeliver = false);
	for (uint64_t tag = 1; tag <= 3; tag++)
		t_put(ring, tag);
	pid_t child = t_child(take_two_and_hang, NULL);
	t_await(step, 1);
	t_kill(child);

	t_put(ring, 4); /* waits until they are back */
	t_put(ring, 5);
	for (uint64_t tag = 3; tag <= 5; tag++)
		t_equal(t_get(ring), tag);
	t_equal(t_refused_take(ring), -EAGAIN);
	struct rb_stats stats = t_stats(ring);
	t_equal(stats.dropped, 2);
	t_equal(stats.lost, 0);
	t_equal(stats.consumed, 3);
	t_equal(stats.free, 3);
	rb_detach(ring);
	return 0;
}
