/* A waiting call asks its pause hook after a signal and at least about every 100 ms; a negative answer ends the call. */
#include "t.h"

struct asked {
	_Atomic int times, answer_at, answer;
};

static int ask(void *arg)
{
	struct asked *asked = arg;

	return ++asked->times >= asked->answer_at ? asked->answer : 0;
}

static void note(int signal_number)
{
	(void)signal_number;
}

static void *signal_until_asked(void *arg)
{
	for (int64_t end = t_soon(); atomic_load((_Atomic int *)arg) == 0; usleep(1000)) {
		t_check(rb_now_ns() < end);
		kill(getpid(), SIGUSR1);
	}
	return NULL;
}

int main(void)
{
	struct sigaction action = { .sa_handler = note };
	struct asked asked = { .answer_at = 3, .answer = -EINTR };
	rb_ring *ring = t_queue(1);
	struct rb_slot slot;

	/* By itself: three times in 300 ms; the bound is generous, for busy machines. */
	rb_on_pause(ring, ask, &asked);
	int64_t began = rb_now_ns();
	t_equal(rb_take(ring, NULL, RB_FOREVER, &slot), -EINTR);
	t_equal(asked.times, 3);
	t_check(rb_now_ns() - began >= 200 * T_MS_NS);
	t_check(rb_now_ns() - began < 5 * T_SECOND_NS);

	/* The hook's own answer is what the call returns. */
	struct rb_slot only = t_claim(ring, 1);
	asked = (struct asked){ .answer_at = 1, .answer = -4711 };
	t_equal(rb_claim(ring, 2, RB_ANY, RB_FOREVER, &slot), -4711);
	t_equal(t_refused_claim(ring), -EAGAIN); /* not asked: it does not wait */
	t_equal(asked.times, 1);

	/* By a signal, sooner: some of those that come every millisecond. */
	t_equal(sigaction(SIGUSR1, &action, NULL), 0);
	int64_t best = INT64_MAX;
	for (int i = 0; i < 12 && best > 40 * T_MS_NS; i++) {
		sigset_t usr1;
		sigemptyset(&usr1);
		sigaddset(&usr1, SIGUSR1);
		asked = (struct asked){ .answer_at = 1, .answer = -EINTR };
		began = rb_now_ns();
		pthread_sigmask(SIG_BLOCK, &usr1, NULL); /* for the thread to inherit: signals are for the waiter */
		pthread_t thread = t_thread(signal_until_asked, &asked.times);
		pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
		t_equal(rb_take(ring, NULL, RB_FOREVER, &slot), -EINTR);
		int64_t took = rb_now_ns() - began;
		best = took < best ? took : best;
		t_join(thread);
	}
	t_check(best <= 40 * T_MS_NS);
	t_equal(rb_abort(ring, &only), 0);
	rb_detach(ring);
	return 0;
}
