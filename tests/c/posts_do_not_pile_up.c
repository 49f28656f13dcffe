/* A sleeper that was killed is told once, however often there is something to tell, and one that woke by itself is not told at all: who
 * sleeps after them is not woken for each time. */
#include "t.h"

#include "wait.h"

#define TIMES 200

static rb_ring *ring;
static struct rb_event *ready;

static void sleep_until_killed(void *arg)
{
	struct rb_slot slot;

	(void)arg;
	rb_take(ring, NULL, RB_FOREVER, &slot);
}

static void one_was_killed(void)
{
	pid_t child = t_child(sleep_until_killed, NULL);

	for (int64_t end = t_soon(); !(atomic_load(&ready->word) & 1); usleep(100))
		t_check(rb_now_ns() < end);
	t_sleep_ms(20); /* from its flag to its sleep */
	t_kill(child);
	for (int i = 0; i < TIMES; i++) {
		rb_event_prepare(ready);
		rb_event_notify(ready);
	}
}

static void one_woke_by_itself(void)
{
	for (int i = 0; i < TIMES; i++) {
		uint32_t seen = rb_event_prepare(ready);
		t_equal(rb_event_sleep(ready, seen, rb_now_ns() + T_MS_NS / 10), -ETIMEDOUT);
		rb_event_notify(ready);
	}
}

static void sleep_after(void (*what)(void))
{
	struct rb_slot slot;

	ring = t_queue(1);
	struct rb_map map = t_map(ring);
	ready = &map.control->ready;
	what();
	t_equal(rb_take(ring, NULL, rb_now_ns() + 150 * T_MS_NS, &slot), -ETIMEDOUT);
	t_check(t_stats(ring).waits < TIMES / 4);
	t_unmap(&map);
	rb_detach(ring);
}

int main(void)
{
	sleep_after(one_was_killed);
	sleep_after(one_woke_by_itself);
	return 0;
}
