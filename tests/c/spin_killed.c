/* Who is killed while it looks for work leaves nothing behind but its row: nobody is told that somebody sleeps. */
#include "t.h"

#include "handle.h"

static _Atomic int *looks; /* of the child, shared */
static bool counting;

void rb_between(void);

void rb_between(void)
{
	if (counting)
		atomic_fetch_add(looks, 1);
}

static void look_for_ever(void *arg)
{
	rb_ring *ring = t_attach(arg);
	struct rb_slot slot;

	ring->spin_ns = INT64_MAX / 2;
	counting = true;
	rb_take(ring, NULL, RB_FOREVER, &slot);
}

int main(void)
{
	looks = t_shared(sizeof(*looks));
	rb_ring *ring = t_queue(2);
	pid_t child = t_child(look_for_ever, ring);

	t_await(looks, 1000);
	t_equal(t_stats(ring).participants, 2);
	t_kill(child);
	t_equal(ring->map.control->ready.word, 0);
	t_equal(rb_recover(ring), 0);
	t_equal(t_stats(ring).participants, 1);
	t_put(ring, 1);
	t_equal(ring->map.control->ready.word, 0);
	t_equal(t_get(ring), 1);
	rb_detach(ring);
	return 0;
}
