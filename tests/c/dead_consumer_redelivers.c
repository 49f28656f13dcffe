/* What a killed consumer held goes back to its old place in the order, under its old ticket, and is taken by another. */
#include "t.h"

static rb_ring *ring;
static _Atomic int *step;
static _Atomic uint64_t *ticket;

static void take_two_and_hang(void *arg)
{
	(void)arg;
	*ticket = t_take(ring).ticket;
	t_take(ring);
	atomic_store(step, 1);
	t_hang();
}

static void again(void)
{
	atomic_store(step, 0);
	for (uint64_t tag = 1; tag <= 3; tag++)
		t_put(ring, tag);
	pid_t child = t_child(take_two_and_hang, NULL);
	t_await(step, 1);
	t_put(ring, 4);
	t_kill(child);
	t_equal(rb_recover(ring), 2);

	struct rb_slot slot = t_take(ring);
	t_equal(slot.tag, 1);
	t_equal(slot.ticket, *ticket);
	t_equal(rb_release(ring, &slot), 0);
	for (uint64_t tag = 2; tag <= 4; tag++)
		t_equal(t_get(ring), tag);
}

int main(void)
{
	step = t_shared(sizeof(*step));
	ticket = t_shared(sizeof(*ticket));
	ring = t_queue(4);
	again();
	again();
	struct rb_stats stats = t_stats(ring);
	t_equal(stats.lost, 0);
	t_equal(stats.dropped, 0);
	t_equal(stats.published, 8);
	t_equal(stats.free, 4);
	rb_detach(ring);
	return 0;
}
