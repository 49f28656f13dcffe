/* A wait ends at its deadline, an absolute moment: never earlier, also when signals interrupt it; RB_NOW does not wait. */
#include "t.h"
#include <sys/time.h>

static volatile sig_atomic_t interruptions;

static void interrupt(int signal_number)
{
	(void)signal_number;
	interruptions++;
}

static void wait_for(rb_ring *ring, int ms)
{
	struct rb_slot slot;
	int64_t deadline = rb_now_ns() + ms * T_MS_NS;

	t_equal(rb_take(ring, NULL, deadline, &slot), -ETIMEDOUT);
	t_check(rb_now_ns() >= deadline);
	t_check(rb_now_ns() < deadline + T_PATIENCE_NS);

	struct rb_slot only = t_claim(ring, 1);
	deadline = rb_now_ns() + ms * T_MS_NS;
	t_equal(rb_claim(ring, 2, RB_ANY, deadline, &slot), -ETIMEDOUT);
	t_check(rb_now_ns() >= deadline);
	t_equal(rb_abort(ring, &only), 0);
}

/* Nor much later: by less than the 100 ms after which every wait looks up. The best of some times counts. */
static void wait_no_longer(rb_ring *ring, int ms)
{
	struct rb_slot slot;
	int64_t best = INT64_MAX;

	for (int i = 0; i < 12 && best > 40 * T_MS_NS; i++) {
		int64_t deadline = rb_now_ns() + ms * T_MS_NS;
		t_equal(rb_take(ring, NULL, deadline, &slot), -ETIMEDOUT);
		int64_t late = rb_now_ns() - deadline;
		best = late < best ? late : best;
	}
	t_check(best <= 40 * T_MS_NS);
}

int main(void)
{
	struct sigaction action = { .sa_handler = interrupt };
	struct itimerval every_3ms = { .it_interval = { .tv_usec = 3000 }, .it_value = { .tv_usec = 3000 } };
	rb_ring *ring = t_queue(1);
	struct rb_slot slot;

	wait_for(ring, 1);
	wait_for(ring, 30);
	wait_for(ring, 240); /* over several slices */
	wait_no_longer(ring, 10);

	t_equal(rb_take(ring, NULL, 1, &slot), -ETIMEDOUT); /* long past */
	t_equal(rb_take(ring, NULL, rb_now_ns(), &slot), -ETIMEDOUT);
	t_equal(rb_take(ring, NULL, RB_NOW, &slot), -EAGAIN);
	t_equal(rb_take(ring, NULL, -1, &slot), -EAGAIN);

	/* What is there is taken even when the deadline has passed. */
	t_put(ring, 1);
	t_equal(rb_take(ring, NULL, 1, &slot), 0);
	t_equal(rb_release(ring, &slot), 0);

	t_equal(sigaction(SIGALRM, &action, NULL), 0);
	t_equal(setitimer(ITIMER_REAL, &every_3ms, NULL), 0);
	wait_for(ring, 120);
	t_check(interruptions > 0);
	rb_detach(ring);
	return 0;
}
