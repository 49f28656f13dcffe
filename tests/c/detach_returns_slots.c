/* Leaving gives everything back: claims are aborted, not lost; what was taken goes back to its place, or is dropped. */
#include "t.h"

static void leave_a_queue(bool redeliver)
{
	rb_ring *ring = t_create(.slots = 5, .slot_bytes = 64, .redeliver = redeliver), *guest = t_attach(ring);
	struct rb_lost lost;

	for (uint64_t tag = 1; tag <= 3; tag++)
		t_put(ring, tag);
	struct rb_slot first = t_take(guest);
	t_take(guest);
	t_claim(guest, 4);
	t_claim(guest, 5);
	t_equal(t_stats(ring).free, 0);
	rb_detach(guest);

	struct rb_stats stats = t_stats(ring);
	t_equal(stats.participants, 1);
	t_equal(stats.lost, 0);
	t_equal(rb_get_lost(ring, &lost, 1), 0);
	t_equal(stats.writing, 0);
	t_equal(stats.reading, 0);
	t_equal(stats.dropped, redeliver ? 0 : 2);
	if (redeliver) {
		struct rb_slot again = t_take(ring);
		t_equal(again.tag, 1);
		t_equal(again.ticket, first.ticket);
		t_equal(rb_release(ring, &again), 0);
		t_equal(t_get(ring), 2);
	}
	t_equal(t_get(ring), 3);
	t_equal(t_stats(ring).free, 5);
	rb_detach(ring);
}

static void leave_a_broadcast(void)
{
	rb_ring *ring = t_broadcast(4), *guest = t_attach(ring);

	t_equal(rb_subscribe(guest), 0);
	t_put(ring, 1);
	t_put(ring, 2);
	t_take(guest);
	t_claim(guest, 3);
	rb_detach(guest);
	t_equal(t_stats(ring).free, 4);
	t_equal(t_stats(ring).readers, 0);
	t_equal(t_stats(ring).lost, 0);
	rb_detach(ring);
}

int main(void)
{
	leave_a_queue(true);
	leave_a_queue(false);
	leave_a_broadcast();
	return 0;
}
