/* What rb_can_take and rb_can_claim say of the next call holds, and whatever comes after rb_watch ends an rb_await on what that
 * returned; one that nobody ends says after a slice that there is nothing, or finds what the dead have left without a word. */
#include "t.h"

#define ROUNDS T_ROUNDS(2000)

static rb_ring *ring;
static _Atomic int *step;

static int can_take_tag(uint64_t tag)
{
	struct rb_filter filter = { .by_tag = true, .tag = tag };

	return rb_can_take(ring, &filter);
}

static void says_what_a_call_would_find(void)
{
	struct rb_slot slots[2];

	ring = t_queue(2);
	t_equal(rb_can_take(ring, NULL), 0);
	t_equal(rb_can_claim(ring), 1);
	slots[0] = t_claim(ring, 5);
	slots[1] = t_claim(ring, 6);
	t_equal(rb_can_claim(ring), 0);
	t_equal(rb_can_take(ring, NULL), 0);
	t_commit(ring, slots[0]);
	t_equal(rb_can_take(ring, NULL), 1);
	t_equal(can_take_tag(5), 1);
	t_equal(can_take_tag(6), 0);
	t_equal(rb_count_tags(ring, 5, 6), 2);
	t_equal(rb_count_tags(ring, 6, 9), 1);
	t_equal(rb_count_tags(ring, 7, 9), 0);
	t_equal(rb_finish(ring), 0);
	t_equal(rb_can_claim(ring), 1); /* to be told of the end */
	t_equal(can_take_tag(7), 0);    /* the open claim may yet become anything */
	t_equal(rb_abort(ring, &slots[1]), 0);
	t_equal(can_take_tag(7), 1);
	t_equal(t_get(ring), 5);
	t_equal(rb_can_take(ring, NULL), 1);
	t_check(rb_payload_of(ring, 1) == (char *)rb_payload_of(ring, 0) + t_map(ring).header.slot_stride);
	t_check(!rb_payload_of(ring, 2));
	rb_detach(ring);
}

static void every_change_ends_a_wait(void)
{
	ring = t_queue(1);
	uint32_t seen = rb_watch(ring, RB_TO_TAKE);
	struct rb_slot slot = t_claim(ring, 1);

	t_equal(rb_await(ring, RB_TO_TAKE, seen, RB_FOREVER), -EAGAIN); /* nothing to take yet */
	t_equal(rb_can_claim(ring), 0);
	t_equal(rb_await(ring, RB_TO_CLAIM, rb_watch(ring, RB_TO_CLAIM), rb_now_ns() + T_MS_NS), -EAGAIN);
	seen = rb_watch(ring, RB_TO_TAKE);
	uint32_t claiming = rb_watch(ring, RB_TO_CLAIM);
	t_commit(ring, slot);
	t_equal(rb_await(ring, RB_TO_TAKE, seen, RB_FOREVER), 0);
	t_equal(rb_await(ring, RB_TO_TAKE, seen, RB_FOREVER), 0); /* and again: it is over for good */
	t_equal(t_get(ring), 1);
	t_equal(rb_await(ring, RB_TO_CLAIM, claiming, RB_FOREVER), 0);

	seen = rb_watch(ring, RB_TO_TAKE);
	rb_wake(ring);
	t_equal(rb_await(ring, RB_TO_TAKE, seen, RB_FOREVER), 0);
	seen = rb_watch(ring, RB_TO_TAKE);
	t_equal(rb_finish(ring), 0);
	t_equal(rb_await(ring, RB_TO_TAKE, seen, RB_FOREVER), 0);
	rb_detach(ring);
}

/* The child has changed something and is killed before it says so. */
static void publish_unheard(void *arg)
{
	struct rb_map map = t_map(ring);
	struct rb_slot slot = t_claim(ring, 3);

	(void)arg;
	atomic_store(&map.control->ready.word, 0); /* as if nobody slept */
	t_commit(ring, slot);
	atomic_store(step, 1);
	t_hang();
}

static void finds_what_nobody_told(void)
{
	ring = t_queue(1);
	atomic_store(step, 0);
	pid_t child = t_child(publish_unheard, NULL);
	t_await(step, 1);
	t_kill(child);
	struct rb_map map = t_map(ring);
	t_equal(rb_await(ring, RB_TO_TAKE, atomic_load(&map.control->ready.word), RB_FOREVER), 0);
	t_equal(t_get(ring), 3);
	t_unmap(&map);
	rb_detach(ring);
}

static void *put_all(void *arg)
{
	(void)arg;
	for (int i = 0; i < ROUNDS; i++)
		t_put(ring, 7);
	return NULL;
}

/* The loop and its thread, in one. No message may be passed over: each -EAGAIN below would be 100 ms lost. */
static void misses_nothing(void)
{
	struct rb_slot slot;
	int late = 0;

	ring = t_queue(ROUNDS);
	pthread_t producer = t_thread(put_all, NULL);
	for (int got = 0; got < ROUNDS;) {
		uint32_t seen = rb_watch(ring, RB_TO_TAKE);

		if (rb_can_take(ring, NULL) == 0)
			late += rb_await(ring, RB_TO_TAKE, seen, RB_FOREVER) < 0 && rb_can_take(ring, NULL) != 0;
		if (rb_take(ring, NULL, RB_NOW, &slot) < 0)
			continue;
		t_equal(rb_release(ring, &slot), 0);
		got++;
	}
	t_join(producer);
	t_equal(late, 0);
	rb_detach(ring);
}

int main(void)
{
	step = t_shared(sizeof(*step));
	says_what_a_call_would_find();
	every_change_ends_a_wait();
	finds_what_nobody_told();
	misses_nothing();
	return 0;
}
