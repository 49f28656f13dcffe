/* rb_get_stats says what has happened and how the slots are now; counts outlive who made them. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_create(.slots = 6, .slot_bytes = 64, .participants = 4, .redeliver = true), *guest;
	struct rb_slot slot;
	struct rb_stats stats = t_stats(ring);

	t_equal(stats.free, 6);
	t_equal(stats.participants, 1);
	t_equal(stats.published + stats.consumed + stats.dropped + stats.lost + stats.waits + stats.wait_ns, 0);

	guest = t_attach(ring);
	t_put(guest, 1);
	t_put(guest, 2);
	t_put(ring, 3);
	slot = t_take(ring);
	struct rb_slot claimed = t_claim(ring, 4);
	stats = t_stats(guest);
	t_equal(stats.published, 3);
	t_equal(stats.consumed, 0);
	t_equal(stats.free, 2);
	t_equal(stats.writing, 1);
	t_equal(stats.ready, 2);
	t_equal(stats.reading, 1);
	t_equal(stats.participants, 2);
	t_equal(stats.readers, 0);
	t_check(!stats.finished);
	t_equal(rb_ready(ring), 2);

	t_equal(rb_release(ring, &slot), 0);
	t_equal(rb_abort(ring, &claimed), 0);
	rb_detach(guest);
	stats = t_stats(ring);
	t_equal(stats.published, 3); /* also what the one who left has done */
	t_equal(stats.consumed, 1);
	t_equal(stats.free, 4);
	t_equal(stats.participants, 1);

	t_equal(t_get(ring), 2);
	t_equal(t_get(ring), 3);
	t_equal(stats.waits, 0);
	t_equal(rb_take(ring, NULL, rb_now_ns() + 5 * T_MS_NS, &slot), -ETIMEDOUT);
	stats = t_stats(ring);
	t_check(stats.waits >= 1);
	t_check(stats.wait_ns >= (uint64_t)T_MS_NS && stats.wait_ns < (uint64_t)T_PATIENCE_NS);
	rb_finish(ring);
	t_check(t_stats(ring).finished);
	rb_detach(ring);
	return 0;
}
