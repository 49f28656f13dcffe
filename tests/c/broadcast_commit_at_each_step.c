/* Wherever in a commit a reader joins, it gets that message exactly when its first ticket is not later; wherever one leaves, no bit of it stays.
 * Wherever one joins, another of its threads that takes already keeps what it has taken. */
#include "t.h"

#include "steps.h"

#define SLOTS 2

static rb_ring *ring, *reader;
static struct rb_map map;
static struct rb_self self = { .map = &map, .row = 0, .reader = RB_NO_READER }; /* of `ring`, as its calls have it */
static struct rb_self guest = { .map = &map, .row = 1, .reader = RB_NO_READER };

static void join(void)
{
	t_equal(rb_subscribe(reader), 0);
}

static void leave(void)
{
	t_equal(rb_unsubscribe(reader), 0);
}

static bool join_at(int n)
{
	struct rb_slot slot = t_claim(ring, (uint64_t)n), taken;

	t_fill(&slot);
	uint64_t ticket = atomic_load(&map.control->tickets);
	steps_begin(n, join);
	int rc = rb_ring_commit(&self, &slot, 16);
	bool reached = steps_end();
	t_equal(rc, 0);
	t_equal(rb_subscribe(reader), 0); /* joined already, unless the commit was over before */

	bool entitled = atomic_load(&map.control->readers[0].start) <= ticket;
	t_equal(t_stats(ring).free, entitled ? SLOTS - 1 : SLOTS);
	rc = rb_take(reader, NULL, RB_NOW, &taken);
	t_equal(rc, entitled ? 0 : -EAGAIN);
	if (rc == 0) {
		t_verify(&taken);
		t_equal(taken.tag, n);
		t_equal(rb_release(reader, &taken), 0);
	}
	leave();
	t_equal(t_stats(ring).free, SLOTS);
	return reached;
}

static bool leave_at(int n)
{
	struct rb_slot slot = t_claim(ring, (uint64_t)n);

	t_fill(&slot);
	join();
	steps_begin(n, leave);
	int rc = rb_ring_commit(&self, &slot, 16);
	bool reached = steps_end();
	t_equal(rc, 0);
	leave();
	t_equal(t_stats(ring).free, SLOTS);
	return reached;
}

/* The other way round: a whole commit at each step of a reader's leaving, and of its joining. */
static void commit_one(void)
{
	t_put(ring, 1);
}

static bool commit_while_leaving(int n)
{
	t_equal(rb_ring_subscribe(&guest), 0);
	steps_begin(n, commit_one);
	rb_ring_unsubscribe(&map, guest.reader);
	bool reached = steps_end();
	t_equal(t_stats(ring).free, SLOTS);
	return reached;
}

static bool commit_while_joining(int n)
{
	uint64_t ticket = atomic_load(&map.control->tickets);

	steps_begin(n, commit_one);
	t_equal(rb_ring_subscribe(&guest), 0);
	bool reached = steps_end();
	/* Joining was not over: it gets that one if its first ticket is not later; else it does not keep the slot. */
	bool committed = atomic_load(&map.control->tickets) > ticket;
	bool entitled = atomic_load(&map.control->readers[guest.reader].start) <= ticket;
	rb_ring_clear_unentitled(&map);
	t_equal(t_stats(ring).free, committed && entitled ? SLOTS - 1 : SLOTS);
	rb_ring_unsubscribe(&map, guest.reader);
	t_equal(t_stats(ring).free, SLOTS);
	return reached;
}

/* Another thread of the joining reader, which needs no more than to see that it has an entry. */
static struct rb_slot held;
static bool holds;

static void commit_and_take(void)
{
	bool freed;

	t_put(ring, 1);
	holds = rb_ring_take(&guest, NULL, &held, &freed) == 0;
}

static bool take_while_joining(int n)
{
	holds = false;
	steps_begin(n, commit_and_take);
	t_check(rb_ring_subscribe(&guest) >= 0);
	bool reached = steps_end();
	rb_ring_clear_unentitled(&map);
	if (holds) {
		t_equal(atomic_load(&map.descs[held.index].word), held.word);
		t_equal(rb_ring_release(&guest, &held), 0);
	}
	rb_ring_unsubscribe(&map, guest.reader);
	guest.reader = RB_NO_READER;
	t_equal(t_stats(ring).free, SLOTS);
	return reached;
}

int main(void)
{
	int n = 1;

	steps_prepare();
	ring = t_create(.slots = SLOTS, .slot_bytes = 64, .participants = 2, .mode = RB_BROADCAST);
	reader = t_attach(ring);
	map = t_map(ring);
	for (n = 1; join_at(n); n++)
		snprintf(t_context, sizeof(t_context), "joining at instruction %d: ", n + 1);
	t_check(n > 50); /* it did step through something */
	for (n = 1; leave_at(n); n++)
		snprintf(t_context, sizeof(t_context), "leaving at instruction %d: ", n + 1);
	t_check(n > 50);
	for (n = 1; commit_while_leaving(n); n++)
		snprintf(t_context, sizeof(t_context), "committed at instruction %d of leaving: ", n + 1);
	t_check(n > 20);
	for (n = 1; commit_while_joining(n); n++)
		snprintf(t_context, sizeof(t_context), "committed at instruction %d of joining: ", n + 1);
	t_check(n > 10);
	guest.reader = RB_NO_READER;
	guest.held = calloc(SLOTS, sizeof(*guest.held));
	t_check(guest.held);
	for (n = 1; take_while_joining(n); n++)
		snprintf(t_context, sizeof(t_context), "taken at instruction %d of joining: ", n + 1);
	t_check(n > 10);
	free(guest.held);
	t_unmap(&map);
	rb_detach(reader);
	rb_detach(ring);
	return 0;
}
