/* Slots that are committed together are there in order, and wake their takers once for all; the first that cannot be published is
 * what the call says, and stays claimed with those behind it. */
#include "t.h"

#define SLOTS 4

static rb_ring *ring;
static _Atomic int taken;

static void *take_one(void *arg)
{
	struct rb_filter mine = { .by_tag = true, .tag = (uint64_t)(uintptr_t)arg };
	struct rb_slot slot;

	t_equal(rb_take(ring, &mine, t_soon(), &slot), 0);
	t_verify(&slot);
	t_equal(rb_release(ring, &slot), 0);
	taken++;
	return NULL;
}

int main(void)
{
	struct rb_slot slots[SLOTS];
	uint64_t bytes[SLOTS];
	pthread_t takers[SLOTS];

	ring = t_queue(SLOTS);
	for (int i = 0; i < SLOTS; i++) {
		takers[i] = t_thread(take_one, (void *)(uintptr_t)(i + 1));
		slots[i] = t_claim(ring, (uint64_t)i + 1);
		t_fill(&slots[i]);
		bytes[i] = 16;
	}
	t_equal(rb_commit_all(ring, slots, bytes, SLOTS), 0);
	for (int i = 0; i < SLOTS; i++)
		t_join(takers[i]);
	t_equal(taken, SLOTS);
	t_equal(rb_commit_all(ring, slots, bytes, SLOTS), -ESTALE);
	t_equal(rb_commit_all(ring, slots, bytes, 0), 0);

	for (int i = 0; i < SLOTS; i++) {
		slots[i] = t_claim(ring, (uint64_t)i + 1);
		t_fill(&slots[i]);
	}
	bytes[2] = slots[2].bytes + 1;
	t_equal(rb_commit_all(ring, slots, bytes, SLOTS), -EMSGSIZE);
	t_equal(t_get(ring), 1);
	t_equal(t_get(ring), 2);
	t_equal(t_refused_take(ring), -EAGAIN);
	t_equal(rb_abort(ring, &slots[2]), 0);
	t_equal(rb_abort(ring, &slots[3]), 0);
	rb_detach(ring);

	ring = t_broadcast(2);
	t_equal(rb_subscribe(ring), 0);
	slots[0] = t_claim(ring, 1);
	slots[1] = t_claim(ring, 2);
	t_fill(&slots[0]);
	t_fill(&slots[1]);
	bytes[0] = bytes[1] = 16;
	t_equal(rb_commit_all(ring, slots, bytes, 2), 0);
	t_equal(t_get(ring), 1);
	t_equal(t_get(ring), 2);
	rb_detach(ring);
	return 0;
}
