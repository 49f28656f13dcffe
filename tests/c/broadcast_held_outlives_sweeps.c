/* What an unsubscribed reader still holds is nobody else's to clear: not its producer's, nor who leaves or reaps the dead. */
#include "t.h"

#include "steps.h"

static rb_ring *ring, *reader;
static struct rb_slot held;
static struct rb_map map;
static struct rb_self self = { .map = &map, .row = 0, .reader = RB_NO_READER }; /* of `ring`, as its calls have it */

static void leave(void *arg)
{
	(void)arg;
	rb_detach(t_attach(ring));
}

static void die(void *arg)
{
	(void)arg;
	t_equal(rb_ready(ring), 0); /* joins */
	t_hang();
}

static void others_come_and_go(void)
{
	t_ends_well(t_child(leave, NULL));
	pid_t child = t_child(die, NULL);
	for (int64_t end = t_soon(); t_stats(ring).participants < 3 && rb_now_ns() < end; usleep(100))
		;
	t_equal(t_stats(ring).participants, 3);
	t_kill(child);
	t_equal(rb_recover(ring), 0);
	t_equal(t_stats(ring).participants, 2);
}

static void take_and_unsubscribe(void)
{
	if (rb_take(reader, NULL, RB_NOW, &held) == 0)
		t_equal(rb_unsubscribe(reader), 0);
}

/* At instruction n of a commit its message is taken, if it is there, and its reader is one no more. */
static bool unsubscribe_at(int n)
{
	struct rb_slot slot = t_claim(ring, (uint64_t)n);

	t_fill(&slot);
	held.bytes = 0;
	t_equal(rb_subscribe(reader), 0);
	steps_begin(n, take_and_unsubscribe);
	int rc = rb_ring_commit(&self, &slot, 16);
	bool reached = steps_end();
	t_equal(rc, 0);
	if (held.bytes == 0)
		take_and_unsubscribe();
	t_equal(t_stats(ring).free, 1);
	t_verify(&held);
	t_equal(rb_release(reader, &held), 0);
	t_equal(t_stats(ring).free, 2);
	return reached;
}

int main(void)
{
	ring = t_create(.slots = 2, .slot_bytes = 64, .mode = RB_BROADCAST);
	reader = t_attach(ring);
	map = t_map(ring);
	t_equal(rb_subscribe(reader), 0);
	t_put(ring, 1);
	take_and_unsubscribe();
	others_come_and_go();
	t_equal(t_stats(ring).free, 1);
	t_verify(&held);
	t_equal(rb_release(reader, &held), 0);
	t_equal(t_stats(ring).free, 2);

	steps_prepare();
	int n;
	for (n = 1; unsubscribe_at(n); n++)
		snprintf(t_context, sizeof(t_context), "unsubscribed at instruction %d: ", n + 1);
	t_check(n > 50); /* it did step through something */
	t_unmap(&map);
	rb_detach(reader);
	rb_detach(ring);
	return 0;
}
