/* Wherever in a claim the ring is finished: once a consumer was told that nothing more comes, the claim does not succeed. */
#include "t.h"

#include "steps.h"

static rb_ring *ring, *other;
static struct rb_map map;
static struct rb_self self = { .map = &map, .row = 0, .reader = RB_NO_READER }; /* of `ring`, as its calls have it */
static int told;

static void finish(void)
{
	rb_finish(other);
	told = t_refused_take(other);
}

static bool finish_at(int n)
{
	struct rb_slot slot;

	ring = t_create(.slots = 2, .slot_bytes = 64, .participants = 2);
	other = t_attach(ring);
	map = t_map(ring);
	told = 0;
	steps_begin(n, finish);
	int rc = rb_ring_claim(&self, 1, RB_ANY, &slot);
	bool reached = steps_end();
	if (rc == 0) {
		t_check(told != -EPIPE);
		t_commit(ring, slot);
		t_equal(t_get(other), 1);
	} else {
		t_equal(rc, -EPIPE);
		t_check(told == -EPIPE || told == -EAGAIN); /* it may have seen a claim that then backed out */
	}
	if (reached)
		t_equal(t_refused_take(other), -EPIPE);
	t_equal(t_stats(ring).free, 2);
	t_unmap(&map);
	rb_detach(other);
	rb_detach(ring);
	return reached;
}

int main(void)
{
	int n;

	steps_prepare();
	for (n = 1; finish_at(n); n++)
		snprintf(t_context, sizeof(t_context), "finished at instruction %d: ", n + 1);
	t_check(n > 50);
	return 0;
}
