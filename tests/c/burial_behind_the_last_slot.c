/* A dead participant's note of a burial that names no slot, and be it the one behind the last, frees nothing: what lies there is payload. */
#include "t.h"

#define SLOTS 64        /* whose records fill a page: */
#define PARTICIPANTS 16 /* so do the rows */

static void join_and_die(void *arg)
{
	t_put(t_attach(arg), 1);
	raise(SIGKILL);
}

int main(void)
{
	rb_ring *ring = t_create(.slots = SLOTS, .slot_bytes = 64, .participants = PARTICIPANTS, .redeliver = true);
	struct rb_map map = t_map(ring);
	struct rb_desc *behind = &map.descs[SLOTS];

	t_check((unsigned char *)behind == map.payload);
	t_equal(t_wait(t_child(join_and_die, ring)), SIGKILL);
	t_equal(map.payload[0], 1); /* the message's first byte, its tag */
	atomic_store(&map.rows[1].grave_slot, SLOTS);
	atomic_store(&map.rows[1].grave_word, atomic_load(&behind->word));
	t_equal(rb_recover(ring), 0);
	t_equal(atomic_load(&map.rows[1].grave_word), 0);
	t_equal(t_get(ring), 1);
	t_unmap(&map);
	rb_detach(ring);
	return 0;
}
