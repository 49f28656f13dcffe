/* A reader that unsubscribes with messages in hand gives up what it has not taken; what it holds stays until released. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_broadcast(4), *reader = t_attach(ring);
	struct rb_slot slot;

	t_equal(rb_subscribe(reader), 0);
	for (uint64_t tag = 1; tag <= 4; tag++)
		t_put(ring, tag);
	struct rb_slot first = t_take(reader), second = t_take(reader);
	t_equal(rb_unsubscribe(reader), 0);
	t_equal(t_stats(ring).readers, 0);
	t_equal(t_stats(ring).free, 2);
	t_equal(rb_ready(reader), 0);

	/* Nobody owes it anything new, and nobody writes over what it looks at. */
	for (uint64_t tag = 5; tag < 50; tag++)
		t_put(ring, tag);
	struct rb_slot a = t_claim(ring, 50), b = t_claim(ring, 51);
	t_equal(t_refused_claim(ring), -EAGAIN);
	memset(a.data, 0xff, a.bytes);
	memset(b.data, 0xff, b.bytes);
	t_verify(&first);
	t_verify(&second);
	t_equal(rb_abort(ring, &a), 0);
	t_equal(rb_abort(ring, &b), 0);

	/* It cannot be a reader again before they are back; then it can, with nothing from before. */
	t_equal(rb_subscribe(reader), -EBUSY);
	t_equal(rb_take(reader, NULL, RB_NOW, &slot), -EBUSY);
	t_equal(rb_release(reader, &first), 0);
	t_equal(t_stats(ring).free, 3);
	t_equal(rb_subscribe(reader), -EBUSY);
	t_equal(rb_release(reader, &first), -ESTALE);
	t_equal(rb_release(reader, &second), 0);
	t_equal(t_stats(ring).free, 4);
	t_equal(rb_subscribe(reader), 0);
	t_put(ring, 52);
	t_equal(t_get(reader), 52);

	/* Leaving for good gives back what an unsubscribed reader still held. */
	t_put(ring, 53);
	first = t_take(reader);
	t_equal(first.tag, 53);
	t_equal(rb_unsubscribe(reader), 0);
	t_equal(t_stats(ring).free, 3);
	rb_detach(reader);
	t_equal(t_stats(ring).free, 4);

	/* Its entry is somebody else's then, not two people's. */
	rb_ring *next = t_attach(ring), *another = t_attach(ring);
	t_equal(rb_subscribe(next), 0);
	t_equal(rb_subscribe(another), 0);
	t_put(ring, 54);
	t_equal(t_get(next), 54);
	t_equal(t_stats(ring).free, 3);
	t_equal(t_get(another), 54);
	t_equal(t_stats(ring).free, 4);
	rb_detach(another);
	rb_detach(next);
	rb_detach(ring);
	return 0;
}
