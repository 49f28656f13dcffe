/* However finish falls among claims and commits: what was committed is delivered, and then every consumer sees the end. */
#include "t.h"

#define PRODUCERS 2
#define ROUNDS T_ROUNDS(1500)

static rb_ring *ring;
static _Atomic uint64_t committed, delivered;

static void *produce(void *arg)
{
	struct rb_slot slot;
	int rc;

	(void)arg;
	while ((rc = rb_claim(ring, 1, RB_ANY, t_soon(), &slot)) == 0) {
		t_commit(ring, slot);
		atomic_fetch_add(&committed, 1);
	}
	t_equal(rc, -EPIPE);
	return NULL;
}

static void *consume(void *arg)
{
	struct rb_slot slot;
	int rc;

	(void)arg;
	while ((rc = rb_take(ring, NULL, t_soon(), &slot)) == 0) {
		t_verify(&slot);
		t_equal(rb_release(ring, &slot), 0);
		atomic_fetch_add(&delivered, 1);
	}
	t_equal(rc, -EPIPE);
	return NULL;
}

int main(void)
{
	pthread_t producers[PRODUCERS];
	uint64_t random = 88172645463325252u;

	for (int round = 0; round < ROUNDS; round++) {
		ring = t_queue(3);
		atomic_store(&committed, 0);
		atomic_store(&delivered, 0);
		pthread_t consumer = t_thread(consume, NULL);
		for (int i = 0; i < PRODUCERS; i++)
			producers[i] = t_thread(produce, NULL);
		for (uint64_t spin = t_random(&random) % 20000; spin > 0; spin--)
			atomic_signal_fence(memory_order_seq_cst);
		rb_finish(ring);
		for (int i = 0; i < PRODUCERS; i++)
			t_join(producers[i]);
		t_join(consumer);
		t_equal(delivered, committed);
		t_equal(t_stats(ring).free, 3);
		rb_detach(ring);
	}
	return 0;
}
