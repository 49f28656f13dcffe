/* A slot that was handed back already is refused with -ESTALE, also when somebody has it again. */
#include "t.h"

static void in_a_queue(void)
{
	rb_ring *ring = t_queue(1);
	struct rb_slot claimed = t_claim(ring, 1);

	t_commit(ring, claimed);
	t_equal(rb_commit(ring, &claimed, 16), -ESTALE);
	t_equal(rb_abort(ring, &claimed), -ESTALE);

	struct rb_slot taken = t_take(ring);
	t_equal(rb_commit(ring, &claimed, 16), -ESTALE);
	t_equal(rb_release(ring, &taken), 0);
	t_equal(rb_release(ring, &taken), -ESTALE);

	t_put(ring, 2);
	t_equal(rb_release(ring, &taken), -ESTALE);
	struct rb_slot next = t_take(ring);
	t_equal(rb_release(ring, &taken), -ESTALE);
	t_verify(&next);
	t_equal(rb_release(ring, &next), 0);
	t_equal(t_stats(ring).consumed, 2);
	rb_detach(ring);
}

static void in_a_broadcast(void)
{
	rb_ring *ring = t_broadcast(1), *other = t_attach(ring);

	t_equal(rb_subscribe(ring), 0);
	t_equal(rb_subscribe(other), 0);
	t_put(ring, 1);
	struct rb_slot taken = t_take(ring);
	t_equal(rb_release(ring, &taken), 0);
	t_equal(rb_release(ring, &taken), -ESTALE);
	t_equal(t_get(other), 1); /* it still owed its own */

	t_put(ring, 2);
	struct rb_slot next = t_take(ring);
	t_equal(next.index, taken.index);
	t_equal(rb_release(ring, &taken), -ESTALE);
	t_equal(rb_release(ring, &next), 0);
	t_equal(t_get(other), 2);
	t_equal(t_stats(ring).consumed, 4);
	t_equal(rb_unsubscribe(ring), 0);
	t_equal(rb_release(ring, &next), -ESTALE);

	t_equal(rb_subscribe(ring), 0);
	t_put(ring, 3);
	taken = t_take(other);
	t_equal(rb_release(other, &taken), 0);
	t_equal(rb_unsubscribe(other), 0);
	t_equal(rb_release(other, &taken), -ESTALE); /* who is no reader owes nothing */
	t_equal(t_get(ring), 3);
	rb_detach(other);
	rb_detach(ring);
}

static void by_another_handle(void)
{
	rb_ring *ring = t_queue(2), *other = t_attach(ring);

	struct rb_slot claimed = t_claim(ring, 1);
	t_equal(rb_commit(other, &claimed, 16), -ESTALE);
	t_equal(rb_abort(other, &claimed), -ESTALE);
	t_commit(ring, claimed);
	struct rb_slot taken = t_take(ring);
	t_equal(rb_release(other, &taken), -ESTALE);
	t_equal(rb_release(ring, &taken), 0);
	rb_detach(other);
	rb_detach(ring);
}

/* A slot that no ring has. */
static void of_no_ring(void)
{
	rb_ring *ring = t_queue(1);
	struct rb_slot claimed = t_claim(ring, 1), forged = claimed;

	forged.index = UINT32_MAX;
	t_equal(rb_commit(ring, &forged, 16), -ESTALE);
	t_equal(rb_abort(ring, &forged), -ESTALE);
	t_commit(ring, claimed);
	struct rb_slot taken = t_take(ring);
	forged = taken;
	forged.index = 1;
	t_equal(rb_release(ring, &forged), -ESTALE);
	forged.index = UINT32_MAX;
	t_equal(rb_release(ring, &forged), -ESTALE);
	t_equal(rb_release(ring, &taken), 0);
	rb_detach(ring);
}

int main(void)
{
	in_a_queue();
	in_a_broadcast();
	by_another_handle();
	of_no_ring();
	return 0;
}
