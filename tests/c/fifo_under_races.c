/* One producer, one consumer, many slots: the order of commits holds though each scan races with them. */
#include "t.h"

#define SLOTS 64
#define BURST 16
#define BURSTS T_ROUNDS(20000)

static rb_ring *ring;

static void *produce(void *arg)
{
	struct rb_slot burst[BURST];

	(void)arg;
	for (uint64_t n = 0; n < BURSTS; n++) {
		for (int i = 0; i < BURST; i++)
			t_equal(rb_claim(ring, n * BURST + (uint64_t)i, RB_ANY, t_soon(), &burst[i]), 0);
		for (int i = 0; i < BURST; i++)
			t_commit(ring, burst[i]);
	}
	return NULL;
}

int main(void)
{
	ring = t_queue(SLOTS);
	pthread_t producer = t_thread(produce, NULL);

	for (uint64_t n = 0; n < BURSTS * BURST; n++)
		t_equal(t_get(ring), n);
	t_join(producer);
	t_equal(t_refused_take(ring), -EAGAIN);
	rb_detach(ring);
	return 0;
}
