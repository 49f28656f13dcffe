/* A call that shall not wait makes exactly the accesses that it makes where nobody ever spins; one whose deadline has passed does
 * not spin either. */
#include "t.h"

#include "handle.h"

static int accesses;

void rb_between(void);

void rb_between(void)
{
	accesses++;
}

static int accesses_of_take(rb_ring *ring, int64_t deadline_ns, int want)
{
	struct rb_slot slot;

	accesses = 0;
	t_equal(rb_take(ring, NULL, deadline_ns, &slot), want);
	return accesses;
}

static int accesses_of_claim(rb_ring *ring, int64_t deadline_ns, int want)
{
	struct rb_slot slot;

	accesses = 0;
	t_equal(rb_claim(ring, 1, RB_ANY, deadline_ns, &slot), want);
	return accesses;
}

int main(void)
{
	rb_ring *empty = t_queue(2), *full = t_queue(2);

	t_put(full, 1);
	t_put(full, 2);
	empty->reaped_ns = full->reaped_ns = INT64_MAX; /* looking for the dead, now and then, makes accesses too */

	empty->spin_ns = full->spin_ns = 0;
	int take = accesses_of_take(empty, RB_NOW, -EAGAIN), claim = accesses_of_claim(full, RB_NOW, -EAGAIN);
	empty->spin_ns = full->spin_ns = T_PATIENCE_NS;
	t_equal(accesses_of_take(empty, RB_NOW, -EAGAIN), take);
	t_equal(accesses_of_claim(full, RB_NOW, -EAGAIN), claim);

	int64_t past = rb_now_ns();
	t_check(accesses_of_take(empty, past, -ETIMEDOUT) < 10 * take);
	t_check(accesses_of_claim(full, past, -ETIMEDOUT) < 10 * claim);
	rb_detach(full);
	rb_detach(empty);
	return 0;
}
