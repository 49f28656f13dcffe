/* rb_unlink does not take a name from the living: -EBUSY; without a ring it is -ENOENT. */
#include "t.h"

int main(void)
{
	const char *name = t_name();
	rb_ring *ring, *other;

	t_equal(rb_unlink(name), -ENOENT);
	ring = t_create(.name = name, .slots = 1, .slot_bytes = 64);
	t_equal(rb_unlink(name), -EBUSY);
	t_equal(rb_attach(name, &other), 0);
	rb_detach(ring);
	t_equal(rb_unlink(name), -EBUSY);
	t_check(t_name_exists(name));
	t_put(other, 1);
	t_equal(t_get(other), 1);
	rb_detach(other);
	t_equal(rb_unlink(name), -ENOENT);
	return 0;
}
