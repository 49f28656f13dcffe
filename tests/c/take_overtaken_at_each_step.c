/* Wherever in a take two messages are committed one after the other, it does not get the second before the first; and wherever another takes, none is had twice,
 * nor one that the filter refuses. */
#include "t.h"

#include "steps.h"

#define SLOTS 4

static rb_ring *ring, *other;
static struct rb_map map;
static struct rb_self self = { .map = &map, .row = 0, .reader = RB_NO_READER }; /* of `ring`, as its calls have it */
static bool freed;
static struct rb_slot first, second;
static uint64_t stolen;

static void commit_both(void)
{
	t_commit(other, first);
	t_commit(other, second);
}

static void steal(void)
{
	stolen = t_get(other);
}

/* The two slots are tried in both directions of the scan. */
static bool commit_at(int n, bool upwards)
{
	struct rb_slot claimed[SLOTS], slot;

	for (uint64_t i = 0; i < SLOTS; i++) {
		slot = t_claim(other, i);
		claimed[slot.index] = slot;
	}
	first = claimed[upwards ? 0 : SLOTS - 1];
	second = claimed[upwards ? SLOTS - 1 : 0];
	steps_begin(n, commit_both);
	int rc = rb_ring_take(&self, NULL, &slot, &freed);
	bool reached = steps_end();
	if (!reached)
		commit_both();
	if (rc == 0) {
		t_verify(&slot);
		t_equal(slot.tag, first.tag);
		t_equal(rb_release(ring, &slot), 0);
	} else {
		t_equal(rc, -EAGAIN);
		t_equal(t_get(ring), first.tag);
	}
	t_equal(t_get(ring), second.tag);
	for (int i = 1; i < SLOTS - 1; i++)
		t_equal(rb_abort(other, &claimed[i]), 0);
	t_equal(t_stats(ring).free, SLOTS);
	return reached;
}

static bool steal_at(int n)
{
	struct rb_slot slot;

	stolen = 0;
	t_put(other, 1);
	t_put(other, 2);
	steps_begin(n, steal);
	int rc = rb_ring_take(&self, NULL, &slot, &freed);
	bool reached = steps_end();
	t_equal(rc, 0);
	t_verify(&slot);
	t_check(slot.tag != stolen);
	t_equal(rb_release(ring, &slot), 0);
	if (stolen == 0)
		t_equal(t_get(ring), 2);
	t_equal(t_refused_take(ring), -EAGAIN);
	t_equal(t_stats(ring).free, SLOTS);
	return reached;
}

static bool steal_the_only_one_at(int n)
{
	const struct rb_filter filter = { .by_tag = true, .tag = 1 };
	struct rb_slot slot;

	stolen = 0;
	t_put(other, 1);
	t_put(other, 2);
	steps_begin(n, steal);
	int rc = rb_ring_take(&self, &filter, &slot, &freed);
	bool reached = steps_end();
	if (rc == 0) {
		t_equal(slot.tag, 1);
		t_equal(rb_release(ring, &slot), 0);
	} else {
		t_equal(rc, -EAGAIN);
		t_equal(stolen, 1);
	}
	if (stolen != 2)
		t_equal(t_get(ring), 2);
	t_equal(t_stats(ring).free, SLOTS);
	return reached;
}

/* Another thread of the same reader, in broadcast. */
static void steal_as_ourselves(void)
{
	struct rb_slot slot;

	t_equal(rb_ring_take(&self, NULL, &slot, &freed), 0);
	stolen = slot.tag;
}

static bool share_at(int n)
{
	struct rb_slot slot;

	stolen = 0;
	t_put(other, 1);
	t_put(other, 2);
	steps_begin(n, steal_as_ourselves);
	int rc = rb_ring_take(&self, NULL, &slot, &freed);
	bool reached = steps_end();
	t_equal(rc, 0);
	t_check(slot.tag != stolen);
	rb_ring_unsubscribe(&map, self.reader); /* gives up all of it */
	t_equal(t_stats(ring).free, SLOTS);
	t_equal(rb_ring_subscribe(&self), 0);
	return reached;
}

static void share_a_reader(void)
{
	int n;

	ring = t_create(.slots = SLOTS, .slot_bytes = 64, .participants = 2, .mode = RB_BROADCAST);
	other = t_attach(ring);
	map = t_map(ring);
	self.held = calloc(SLOTS, sizeof(*self.held));
	t_check(self.held);
	t_equal(rb_ring_subscribe(&self), 0);
	for (n = 1; share_at(n); n++)
		snprintf(t_context, sizeof(t_context), "shared at instruction %d: ", n + 1);
	t_check(n > 50);
	free(self.held);
	t_unmap(&map);
	rb_detach(other);
	rb_detach(ring);
}

int main(void)
{
	int n;

	steps_prepare();
	ring = t_create(.slots = SLOTS, .slot_bytes = 64, .participants = 2, .redeliver = true);
	other = t_attach(ring);
	map = t_map(ring);
	for (int upwards = 0; upwards < 2; upwards++)
		for (n = 1; commit_at(n, upwards); n++)
			snprintf(t_context, sizeof(t_context), "committed at instruction %d: ", n + 1);
	t_check(n > 50);
	for (n = 1; steal_at(n); n++)
		snprintf(t_context, sizeof(t_context), "taken at instruction %d: ", n + 1);
	t_check(n > 50);
	for (n = 1; steal_the_only_one_at(n); n++)
		snprintf(t_context, sizeof(t_context), "the only one taken at instruction %d: ", n + 1);
	t_check(n > 50);
	t_unmap(&map);
	rb_detach(other);
	rb_detach(ring);
	share_a_reader();
	return 0;
}
