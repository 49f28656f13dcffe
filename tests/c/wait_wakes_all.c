/* One notification wakes everybody who sleeps on the event, in every round. */
#include "t.h"

#include "wait.h"

#define SLEEPERS 6
#define ROUNDS T_ROUNDS(4000)

static struct rb_event event;
static _Atomic int round_now, awake;

static void *sleeper(void *arg)
{
	(void)arg;
	for (int round = 1; round <= ROUNDS; round++) {
		while (atomic_load(&round_now) < round) {
			uint32_t seen = rb_event_prepare(&event);
			if (atomic_load(&round_now) >= round)
				break;
			if (rb_event_sleep(&event, seen, t_soon()) == -ETIMEDOUT)
				t_die(__FILE__, __LINE__, "a sleeper was left behind in round %d", round);
		}
		atomic_fetch_add(&awake, 1);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[SLEEPERS];

	t_equal(rb_event_init(&event), 0);
	for (int i = 0; i < SLEEPERS; i++)
		threads[i] = t_thread(sleeper, NULL);
	for (int round = 1; round <= ROUNDS; round++) {
		if (round % 2) /* half of the rounds find them asleep, or nearly */
			usleep(50);
		atomic_store(&round_now, round);
		rb_event_notify(&event);
		for (int64_t end = t_soon(); atomic_load(&awake) < round * SLEEPERS; sched_yield())
			t_check(rb_now_ns() < end + T_PATIENCE_NS);
	}
	for (int i = 0; i < SLEEPERS; i++)
		t_join(threads[i]);
	return 0;
}
