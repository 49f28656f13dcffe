/* A ring whose tickets run out finishes by itself: claims are refused, what is there is drained, nothing is lost. */
#include "t.h"

static void run_out(enum rb_mode mode)
{
	rb_ring *ring = t_create(.slots = 8, .slot_bytes = 64, .mode = mode);
	struct rb_map map = t_map(ring);
	struct rb_slot slot;
	uint64_t put = 0, got = 0;
	int rc;

	if (mode == RB_BROADCAST)
		t_equal(rb_subscribe(ring), 0);
	atomic_store(&map.control->tickets, rb_last_ticket(&map) - 2);
	if (mode == RB_BROADCAST) { /* it has joined before the end, not at ticket 1 */
		t_equal(rb_unsubscribe(ring), 0);
		t_equal(rb_subscribe(ring), 0);
	}

	while ((rc = rb_claim(ring, put, RB_ANY, RB_NOW, &slot)) == 0) {
		t_commit(ring, slot);
		put++;
		t_check(put < 8);
	}
	t_equal(rc, -EPIPE);
	t_check(put >= 2);
	t_equal(t_refused_claim(ring), -EPIPE);
	while ((rc = rb_take(ring, NULL, RB_NOW, &slot)) == 0) {
		t_verify(&slot);
		t_equal(slot.tag, got++);
		t_equal(rb_release(ring, &slot), 0);
	}
	t_equal(rc, -EPIPE);
	t_equal(got, put);
	t_equal(t_stats(ring).free, 8);
	/* Whatever claims under way do to the counter, it stays within its bits. */
	t_check(atomic_load(&map.control->tickets) + RB_SLOTS_MAX < UINT64_C(1) << map.seq_bits);
	t_unmap(&map);
	rb_detach(ring);
}

int main(void)
{
	run_out(RB_QUEUE);
	run_out(RB_BROADCAST);
	return 0;
}
