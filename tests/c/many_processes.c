/* A million messages from four processes to two: none lost, none twice, none torn, each producer's in its order. */
#include "t.h"

#define PRODUCERS 4
#define CONSUMERS 2
#define EACH T_ROUNDS(250000)
#define WORDS 8

struct shared {
	_Atomic uint8_t seen[PRODUCERS][EACH];
};

static rb_ring *ring;
static struct shared *shared;

/* Each word follows from the first, so a single stale one shows. */
static uint64_t word(uint64_t tag, int i)
{
	return (tag + (uint64_t)i) * UINT64_C(0x9e3779b97f4a7c15);
}

static void produce(void *arg)
{
	uint64_t me = (uintptr_t)arg;
	struct rb_slot slot;

	for (uint64_t n = 0; n < EACH; n++) {
		t_equal(rb_claim(ring, me << 32 | n, RB_ANY, t_soon(), &slot), 0);
		for (int i = 0; i < WORDS; i++)
			((uint64_t *)slot.data)[i] = word(slot.tag, i);
		t_equal(rb_commit(ring, &slot, WORDS * 8), 0);
	}
	rb_detach(ring);
}

static void consume(void *arg)
{
	uint64_t next[PRODUCERS] = { 0 };
	struct rb_slot slot;
	int rc;

	(void)arg;
	while ((rc = rb_take(ring, NULL, t_soon(), &slot)) == 0) {
		uint64_t producer = slot.tag >> 32, number = slot.tag & UINT32_MAX;

		t_equal(slot.bytes, WORDS * 8);
		for (int i = 0; i < WORDS; i++)
			t_equal(((uint64_t *)slot.data)[i], word(slot.tag, i));
		t_check(number >= next[producer]);
		next[producer] = number + 1;
		t_equal(atomic_fetch_add(&shared->seen[producer][number], 1), 0);
		t_equal(rb_release(ring, &slot), 0);
	}
	t_equal(rc, -EPIPE);
	rb_detach(ring);
}

int main(void)
{
	pid_t producers[PRODUCERS], consumers[CONSUMERS];

	ring = t_queue(32);
	shared = t_shared(sizeof(*shared));
	for (int i = 0; i < CONSUMERS; i++)
		consumers[i] = t_child(consume, NULL);
	for (int i = 0; i < PRODUCERS; i++)
		producers[i] = t_child(produce, (void *)(uintptr_t)i);
	for (int i = 0; i < PRODUCERS; i++)
		t_ends_well(producers[i]);
	rb_finish(ring);
	for (int i = 0; i < CONSUMERS; i++)
		t_ends_well(consumers[i]);

	for (int p = 0; p < PRODUCERS; p++)
		for (int n = 0; n < EACH; n++)
			t_equal(shared->seen[p][n], 1);
	struct rb_stats stats = t_stats(ring);
	t_equal(stats.published, PRODUCERS * EACH);
	t_equal(stats.consumed, PRODUCERS * EACH);
	t_equal(stats.free, 32);
	t_equal(stats.participants, 1);
	rb_detach(ring);
	return 0;
}
