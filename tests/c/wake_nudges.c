/* rb_wake makes every waiting call of its handle ask the pause hook at once, also when the hook is being asked; without a hook they
 * wait on. */
#include "t.h"

#define TRIES 12
#define FAST_NS (40 * T_MS_NS)
#define WAITERS 2

static rb_ring *ring;
static struct rb_slot only;
static _Atomic int leaving, ended;
static _Atomic int64_t ended_ns[WAITERS];

static int leave_now(void *arg)
{
	return atomic_load((_Atomic int *)arg) ? -ECANCELED : 0;
}

static void *take(void *arg)
{
	struct rb_slot slot;

	(void)arg;
	t_equal(rb_take(ring, NULL, t_soon(), &slot), -ECANCELED);
	ended_ns[0] = rb_now_ns();
	ended++;
	return NULL;
}

static void *claim(void *arg)
{
	struct rb_slot slot;

	(void)arg;
	t_equal(rb_claim(ring, 1, RB_ANY, t_soon(), &slot), -ECANCELED);
	ended_ns[1] = rb_now_ns();
	ended++;
	return NULL;
}

static int64_t measure(void)
{
	pthread_t threads[WAITERS] = { t_thread(take, NULL), t_thread(claim, NULL) };

	t_sleep_ms(5);
	rb_wake(ring); /* for nothing: the hook has no objection */
	t_sleep_ms(5);
	t_equal(ended, 0);
	leaving = 1;
	int64_t woken_ns = rb_now_ns();
	rb_wake(ring);
	for (int i = 0; i < WAITERS; i++)
		t_join(threads[i]);
	leaving = ended = 0;
	return (ended_ns[0] > ended_ns[1] ? ended_ns[0] : ended_ns[1]) - woken_ns;
}

static int64_t asked_ns[2];
static int asked;

/* While it is asked for the first time, somebody else wants it to be asked again. */
static int leave_when_asked_twice(void *arg)
{
	(void)arg;
	asked_ns[asked] = rb_now_ns();
	if (asked++ > 0)
		return -ECANCELED;
	rb_wake(ring);
	return 0;
}

static void *wake_soon(void *arg)
{
	(void)arg;
	t_sleep_ms(5);
	rb_wake(ring);
	return NULL;
}

static int64_t measure_while_asked(void)
{
	struct rb_slot slot;
	pthread_t waker = t_thread(wake_soon, NULL);

	asked = 0;
	t_equal(rb_take(ring, NULL, t_soon(), &slot), -ECANCELED);
	t_join(waker);
	return asked_ns[1] - asked_ns[0];
}

static int64_t best_of(int64_t (*measured)(void))
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < TRIES && best > FAST_NS; i++) {
		int64_t took = measured();
		best = took < best ? took : best;
	}
	return best;
}

static void *wake_often(void *arg)
{
	(void)arg;
	for (int i = 0; i < 30; i++) {
		t_sleep_ms(1);
		rb_wake(ring);
	}
	return NULL;
}

int main(void)
{
	struct rb_slot slot;

	ring = t_queue(1);
	pthread_t waker = t_thread(wake_often, NULL);
	int64_t deadline = rb_now_ns() + 20 * T_MS_NS;
	t_equal(rb_take(ring, NULL, deadline, &slot), -ETIMEDOUT);
	t_check(rb_now_ns() >= deadline);
	t_join(waker);

	only = t_claim(ring, 1);
	rb_on_pause(ring, leave_now, &leaving);
	t_check(best_of(measure) <= FAST_NS);
	rb_on_pause(ring, leave_when_asked_twice, NULL);
	t_check(best_of(measure_while_asked) <= FAST_NS);
	t_equal(rb_abort(ring, &only), 0);
	rb_detach(ring);
	return 0;
}
