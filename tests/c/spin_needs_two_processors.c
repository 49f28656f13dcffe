/* Who may run on one processor only does not spin: what he waits for cannot be done meanwhile. A child of his looks for itself. */
#include "t.h"

#include "handle.h"

static cpu_set_t all;

static void run_on(int processors)
{
	cpu_set_t some;

	CPU_ZERO(&some);
	for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&some) < processors; i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &some);
	t_equal(sched_setaffinity(0, sizeof(some), &some), 0);
}

static void join_with_two(void *arg)
{
	rb_ring *ring = arg;

	run_on(2);
	t_put(ring, 1);
	t_check(ring->spin_ns > 0);
}

int main(void)
{
	struct rb_slot slot;

	t_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	if (CPU_COUNT(&all) < 2)
		t_skip("there is one processor");

	run_on(1);
	rb_ring *ring = t_queue(1);
	t_equal(ring->spin_ns, 0);
	t_equal(rb_take(ring, NULL, rb_now_ns() + T_MS_NS, &slot), -ETIMEDOUT);
	t_equal(ring->taking.pace, 0);
	t_equal(t_stats(ring).waits, 1);

	t_ends_well(t_child(join_with_two, ring));
	t_equal(t_get(ring), 1);
	rb_detach(ring);
	return 0;
}
