/* Threads that read through one handle are one reader: each message reaches one of them, once, and none is left over. */
#include "t.h"

#define THREADS 3
#define MESSAGES T_ROUNDS(60000)

static rb_ring *ring;
static _Atomic uint8_t seen[MESSAGES];

static void *read_all(void *arg)
{
	struct rb_slot slot;
	int rc;

	(void)arg;
	while ((rc = rb_take(ring, NULL, t_soon(), &slot)) == 0) {
		t_verify(&slot);
		t_equal(atomic_fetch_add(&seen[slot.tag], 1), 0);
		t_equal(rb_release(ring, &slot), 0);
	}
	t_equal(rc, -EPIPE);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	ring = t_broadcast(8);
	rb_ring *producer = t_attach(ring);
	t_equal(rb_subscribe(ring), 0);
	for (int i = 0; i < THREADS; i++)
		threads[i] = t_thread(read_all, NULL);
	for (uint64_t tag = 0; tag < MESSAGES; tag++)
		t_put(producer, tag);
	rb_finish(producer);
	for (int i = 0; i < THREADS; i++)
		t_join(threads[i]);
	for (int i = 0; i < MESSAGES; i++)
		t_equal(seen[i], 1);
	t_equal(t_stats(ring).free, 8);
	rb_detach(producer);
	rb_detach(ring);
	return 0;
}
