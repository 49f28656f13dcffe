/* Waits in vain go more and more often without a spin, one in 64 in the end; one spin that finds something ends that. */
#include "t.h"

#include "handle.h"

static rb_ring *ring, *other;
static int left; /* accesses until a message comes */

void rb_between(void);

void rb_between(void)
{
	if (left > 0 && --left == 0)
		t_put(other, 1);
}

/* Has this wait, which is in vain, begun with a spin? */
static bool spins(void)
{
	struct rb_slot slot;
	uint32_t rest = ring->taking.rest;

	t_equal(rb_take(ring, NULL, rb_now_ns() + 20000, &slot), -ETIMEDOUT);
	return rest == 0 && ring->taking.rest > 0;
}

int main(void)
{
	static const int after[] = { 0, 1, 3, 7, 15, 31, 63, 63, 63 }; /* waits without */

	ring = t_queue(2);
	other = t_attach(ring);
	ring->spin_ns = 1000;
	for (size_t i = 0; i < sizeof(after) / sizeof(*after); i++) {
		for (int k = 0; k < after[i]; k++)
			t_check(!spins());
		t_check(spins());
	}

	t_equal(ring->taking.pace, 63);
	ring->taking.rest = 0; /* as after so many waits */
	ring->spin_ns = T_PATIENCE_NS;
	left = 40; /* more than the first look makes */
	t_equal(t_get(ring), 1);
	t_equal(ring->taking.pace, 0);
	t_equal(ring->taking.rest, 0);
	rb_detach(other);
	rb_detach(ring);
	return 0;
}
