/* Threads that use an inherited handle at the same moment join the ring once, and become one reader. */
#include "t.h"

#include "crash_points.h"

#define THREADS 6
#define ROUNDS 4

/* Where one thread joins, or subscribes, for as long as it takes the others to come and wait for it. */
void rb_crash_point(enum rb_crash_point point)
{
	if (point == RB_AT_join_locked || point == RB_AT_subscribe_owned)
		t_sleep_ms(20);
}

static rb_ring *ring;
static pthread_barrier_t barrier;

static void *look(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&barrier);
	t_equal(rb_ready(ring), 0);
	pthread_barrier_wait(&barrier);
	t_equal(rb_subscribe(ring), 0);
	return NULL;
}

static void in_a_child(void *arg)
{
	pthread_t threads[THREADS];

	(void)arg;
	t_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
	for (int i = 0; i < THREADS; i++)
		threads[i] = t_thread(look, NULL);
	for (int i = 0; i < THREADS; i++)
		t_join(threads[i]);
	t_equal(t_stats(ring).participants, 2);
	t_equal(t_stats(ring).readers, 1);
	rb_detach(ring);
}

int main(void)
{
	ring = t_broadcast(2);
	for (int round = 0; round < ROUNDS; round++)
		t_ends_well(t_child(in_a_child, NULL));
	t_equal(t_stats(ring).participants, 1);
	t_equal(t_stats(ring).readers, 0);
	rb_detach(ring);
	return 0;
}
