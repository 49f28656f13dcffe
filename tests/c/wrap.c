/* Many times round: contents, order and the rise of tickets survive the re-use of every slot. */
#include "t.h"

#define SLOTS 3
#define MESSAGES T_ROUNDS(300000)

int main(void)
{
	rb_ring *ring = t_queue(SLOTS);
	uint64_t put = 0, got = 0, last = 0, random = 88172645463325252u;

	while (got < MESSAGES) {
		struct rb_slot slot;
		bool room = put - got < SLOTS && put < MESSAGES;

		if (room && (put == got || t_random(&random) & 1)) {
			t_put(ring, put++);
			continue;
		}
		t_equal(rb_take(ring, NULL, RB_NOW, &slot), 0);
		t_verify(&slot);
		t_equal(slot.tag, got++);
		t_check(slot.ticket > last);
		last = slot.ticket;
		t_equal(rb_release(ring, &slot), 0);
	}
	t_equal(t_stats(ring).free, SLOTS);
	t_equal(t_stats(ring).published, MESSAGES);
	t_equal(t_stats(ring).consumed, MESSAGES);
	rb_detach(ring);
	return 0;
}
