/* Wherever in a claim that overwrites a consumer takes all that there is, and hands it back: there is a slot for the claim. */
#include "t.h"

#include "steps.h"

#define SLOTS 4

static rb_ring *ring, *other;
static struct rb_map map;
static struct rb_self self = { .map = &map, .row = 0, .reader = RB_NO_READER }; /* of `ring`, as its calls have it */

static void drain(void)
{
	struct rb_slot slot;

	while (rb_take(other, NULL, RB_NOW, &slot) == 0)
		rb_release(other, &slot);
}

static bool drained_at(int n)
{
	struct rb_slot slot;

	ring = t_create(.slots = SLOTS, .slot_bytes = 64, .participants = 2, .full = RB_OVERWRITE);
	other = t_attach(ring);
	map = t_map(ring);
	for (uint64_t tag = 1; tag <= SLOTS; tag++)
		t_put(ring, tag);
	steps_begin(n, drain);
	t_equal(rb_ring_claim(&self, SLOTS + 1, RB_ANY, &slot), 0);
	bool reached = steps_end();
	t_commit(ring, slot);
	t_unmap(&map);
	rb_detach(other);
	rb_detach(ring);
	return reached;
}

/* What is in hands is not overwritten, however often it is asked for. */
static void nothing_to_claim(void)
{
	struct rb_slot slot, held[SLOTS];

	ring = t_create(.slots = SLOTS, .slot_bytes = 64, .full = RB_OVERWRITE);
	for (uint64_t tag = 1; tag <= SLOTS; tag++)
		t_put(ring, tag);
	for (int i = 0; i < SLOTS; i++)
		t_equal(rb_take(ring, NULL, RB_NOW, &held[i]), 0);
	t_equal(rb_claim(ring, 0, RB_ANY, RB_NOW, &slot), -EAGAIN);
	t_equal(rb_release(ring, &held[0]), 0);
	t_equal(rb_claim(ring, 0, RB_ANY, RB_NOW, &slot), 0);
	t_equal(rb_claim(ring, 0, RB_ANY, RB_NOW, &slot), -EAGAIN); /* what is written is in hands, too */
	rb_detach(ring);
}

int main(void)
{
	int n;

	nothing_to_claim();
	steps_prepare();
	for (n = 1; drained_at(n); n++)
		snprintf(t_context, sizeof(t_context), "drained at instruction %d: ", n + 1);
	t_check(n > 50);
	return 0;
}
