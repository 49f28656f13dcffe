/* Ping-pong over two event counts: every change is noticed by wake-up or by the second look, never by a sleep running out. */
#include "t.h"

#include "wait.h"

#define ROUNDS T_ROUNDS(100000)

static struct {
	struct rb_event event[2];
	_Atomic int turn; /* whose: 0 or 1 in the lowest bit */
} *shared;

static void play(int me)
{
	for (int round = 0; round < ROUNDS; round++) {
		while ((atomic_load_explicit(&shared->turn, memory_order_relaxed) & 1) != me) {
			uint32_t seen = rb_event_prepare(&shared->event[me]);
			if ((atomic_load_explicit(&shared->turn, memory_order_relaxed) & 1) == me)
				break;
			/* A lost wake-up sleeps until this deadline; nothing else takes so long. */
			int rc = rb_event_sleep(&shared->event[me], seen, t_soon());
			if (rc == -ETIMEDOUT)
				t_die(__FILE__, __LINE__, "round %d: player %d was not woken", round, me);
		}
		atomic_fetch_add_explicit(&shared->turn, 1, memory_order_relaxed);
		rb_event_notify(&shared->event[!me]);
	}
}

static void play_second(void *arg)
{
	(void)arg;
	play(1);
}

static void *play_second_thread(void *arg)
{
	play_second(arg);
	return NULL;
}

int main(void)
{
	shared = t_shared(sizeof(*shared));
	for (int i = 0; i < 2; i++)
		t_equal(rb_event_init(&shared->event[i]), 0);

	pid_t child = t_child(play_second, NULL);
	play(0);
	t_ends_well(child);

	pthread_t thread = t_thread(play_second_thread, NULL);
	play(0);
	t_join(thread);
	t_equal(atomic_load(&shared->turn), 4 * ROUNDS);
	return 0;
}
