/* Where a claim begins to look is a guess. A wrong one costs looks: the only free slot is found from everywhere, none is never
 * found, and messages are taken in the order of their commits whichever slots they are in. */
#include "t.h"

#include "handle.h"

static const uint32_t sizes[] = { 1, 2, 63, 64, 65, 129, 300 };

static uint32_t draw(uint32_t below)
{
	static uint64_t state = 1;

	state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(state >> 33) % below;
}

static void find_the_only_one(rb_ring *ring, uint32_t slots)
{
	static struct rb_slot held[300];

	for (uint32_t i = 0; i < slots; i++) {
		struct rb_slot slot = t_claim(ring, i);
		held[slot.index] = slot;
	}
	for (uint32_t guess = 0; guess < slots; guess++) {
		uint32_t free = draw(slots);

		ring->self.claimed = guess;
		t_equal(t_refused_claim(ring), -EAGAIN);
		t_equal(rb_abort(ring, &held[free]), 0);
		ring->self.claimed = guess;
		held[free] = t_claim(ring, free);
		t_equal(held[free].index, free);
	}
	for (uint32_t i = 0; i < slots; i++)
		t_equal(rb_abort(ring, &held[i]), 0);
}

static void keep_the_order(rb_ring *ring, uint32_t slots)
{
	uint64_t put = 0, got = 0;

	for (int round = 0; round < T_ROUNDS(20000); round++) {
		if (put - got < slots && (put == got || draw(2))) {
			ring->self.claimed = draw(slots);
			t_put(ring, put++);
		} else {
			t_equal(t_get(ring), got++);
		}
	}
}

int main(void)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		rb_ring *ring = t_queue(sizes[i]);

		snprintf(t_context, sizeof(t_context), "%u slots: ", sizes[i]);
		find_the_only_one(ring, sizes[i]);
		keep_the_order(ring, sizes[i]);
		rb_detach(ring);
	}
	return 0;
}
