/* Threads of one process share a handle: what four producers commit, two consumers get whole, once, and in each producer's order. */
#include "t.h"

#define PRODUCERS 4
#define CONSUMERS 2
#define EACH T_ROUNDS(60000)

struct message {
	uint64_t producer, number, sum; /* redundant, so that a mixture of two shows */
};

static rb_ring *ring;
static _Atomic uint8_t seen[PRODUCERS][EACH];

static void *produce(void *arg)
{
	uint64_t me = (uintptr_t)arg;
	struct rb_slot slot;

	for (uint64_t n = 0; n < EACH; n++) {
		t_equal(rb_claim(ring, me << 32 | n, RB_ANY, t_soon(), &slot), 0);
		*(struct message *)slot.data = (struct message){ .producer = me, .number = n, .sum = me * 31 + n * 17 };
		t_equal(rb_commit(ring, &slot, sizeof(struct message)), 0);
	}
	return NULL;
}

static void *consume(void *arg)
{
	uint64_t next[PRODUCERS] = { 0 };
	struct rb_slot slot;
	int rc;

	(void)arg;
	while ((rc = rb_take(ring, NULL, t_soon(), &slot)) == 0) {
		struct message got = *(struct message *)slot.data;

		t_equal(slot.bytes, sizeof(got));
		t_equal(got.producer, slot.tag >> 32);
		t_equal(got.number, slot.tag & UINT32_MAX);
		t_equal(got.sum, got.producer * 31 + got.number * 17);
		t_check(got.number >= next[got.producer]);
		next[got.producer] = got.number + 1;
		t_equal(atomic_fetch_add(&seen[got.producer][got.number], 1), 0);
		t_equal(rb_release(ring, &slot), 0);
	}
	t_equal(rc, -EPIPE);
	return NULL;
}

int main(void)
{
	pthread_t producers[PRODUCERS], consumers[CONSUMERS];

	ring = t_queue(8);
	for (int i = 0; i < CONSUMERS; i++)
		consumers[i] = t_thread(consume, NULL);
	for (int i = 0; i < PRODUCERS; i++)
		producers[i] = t_thread(produce, (void *)(uintptr_t)i);
	for (int i = 0; i < PRODUCERS; i++)
		t_join(producers[i]);
	rb_finish(ring);
	for (int i = 0; i < CONSUMERS; i++)
		t_join(consumers[i]);

	for (int p = 0; p < PRODUCERS; p++)
		for (int n = 0; n < EACH; n++)
			t_equal(seen[p][n], 1);
	t_equal(t_stats(ring).published, PRODUCERS * EACH);
	t_equal(t_stats(ring).consumed, PRODUCERS * EACH);
	t_equal(t_stats(ring).free, 8);
	rb_detach(ring);
	return 0;
}
