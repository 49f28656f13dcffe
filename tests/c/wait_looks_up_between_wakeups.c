/* Who is woken again and again by messages for others still asks its pause hook about every 100 ms, and still finds the dead. */
#include "t.h"

static _Atomic int over;
static rb_ring *ring;

/* A message for somebody else every 2 ms, taken back at once: each commit wakes every taker. */
static void *busy(void *arg)
{
	struct rb_filter mine = { .by_tag = true, .tag = 1 };
	struct rb_slot slot;

	(void)arg;
	for (int64_t end = t_soon(); !atomic_load(&over) && rb_now_ns() < end; usleep(2000)) {
		t_put(ring, 1);
		t_equal(rb_take(ring, &mine, t_soon(), &slot), 0);
		t_equal(rb_release(ring, &slot), 0);
	}
	return NULL;
}

static int ask(void *arg)
{
	return ++*(int *)arg >= 3 ? -EINTR : 0;
}

static void take_and_die(void *arg)
{
	struct rb_filter late = { .by_tag = true, .tag = 2 };
	struct rb_slot slot;
	rb_ring *mine = t_attach(ring);

	t_equal(rb_take(mine, &late, t_soon(), &slot), 0);
	atomic_store((_Atomic int *)arg, 1);
	t_hang();
}

int main(void)
{
	struct rb_filter other = { .by_tag = true, .tag = 3 }, late = { .by_tag = true, .tag = 2 };
	struct rb_slot slot;
	int asked = 0;

	ring = t_queue(4);
	_Atomic int *taken = t_shared(sizeof(*taken));
	t_put(ring, 2);
	pid_t child = t_child(take_and_die, taken);
	t_await(taken, 1);
	rb_ring *waiter = t_attach(ring);
	rb_on_pause(waiter, ask, &asked);
	pthread_t thread = t_thread(busy, NULL);

	t_equal(rb_take(waiter, &other, t_soon(), &slot), -EINTR);
	t_equal(asked, 3);
	t_check(t_stats(ring).waits > 3); /* it was woken in between: each look-up but for those ends one wait */

	asked = -1000;
	t_kill(child);
	t_equal(rb_take(waiter, &late, t_soon(), &slot), 0); /* what the dead one held */
	t_equal(rb_release(waiter, &slot), 0);
	atomic_store(&over, 1);
	t_join(thread);
	rb_detach(waiter);
	rb_detach(ring);
	return 0;
}
