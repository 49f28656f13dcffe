/* A message with a ticket that was never drawn is damage: -EBADMSG, the slot comes back, and no take waits for that ticket. */
#include "t.h"

static void meet_the_future(enum rb_mode mode, uint64_t ahead)
{
	rb_ring *ring = t_create(.slots = 3, .slot_bytes = 64, .mode = mode);
	struct rb_map map = t_map(ring);
	struct rb_slot slot;

	if (mode == RB_BROADCAST)
		t_equal(rb_subscribe(ring), 0);
	t_put(ring, 1);
	struct rb_slot last = t_claim(ring, 0);
	uint64_t seq = atomic_load(&map.control->tickets) + ahead;
	atomic_store(&map.descs[last.index].word, rb_word(&map, RB_READY, mode == RB_BROADCAST ? 1 : 0, seq));

	t_equal(t_get(ring), 1); /* what is honest comes first */
	t_equal(rb_take(ring, NULL, t_soon(), &slot), -EBADMSG);
	t_equal(t_refused_take(ring), -EAGAIN);
	t_equal(t_stats(ring).free, 3);
	for (uint64_t tag = 2; tag < 9; tag++) {
		t_put(ring, tag);
		t_equal(t_get(ring), tag);
	}
	t_unmap(&map);
	rb_detach(ring);
}

int main(void)
{
	alarm(T_PATIENCE_NS / T_SECOND_NS);
	for (int mode = RB_QUEUE; mode <= RB_BROADCAST; mode++) {
		meet_the_future((enum rb_mode)mode, 0);
		meet_the_future((enum rb_mode)mode, 1000);
		meet_the_future((enum rb_mode)mode, UINT64_C(1) << 40);
	}
	return 0;
}
