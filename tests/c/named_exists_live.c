/* A name in use by the living cannot be created again: -EEXIST, and its ring goes on undisturbed. */
#include "t.h"

int main(void)
{
	const char *name = t_name();
	struct rb_options other = { .name = name, .slots = 3, .slot_bytes = 128 };
	rb_ring *ring = t_create(.name = name, .slots = 2, .slot_bytes = 64), *second = NULL, *peer;
	struct rb_info info;

	t_put(ring, 1);
	t_equal(rb_create(&other, &second), -EEXIST);
	t_check(second == NULL);
	t_equal(rb_attach(name, &peer), 0);
	rb_get_info(peer, &info);
	t_equal(info.slots, 2);
	t_equal(t_get(peer), 1);

	/* Its creator gone, whoever is attached keeps it. */
	rb_detach(ring);
	t_equal(rb_create(&other, &second), -EEXIST);
	t_put(peer, 2);
	t_equal(t_get(peer), 2);
	rb_detach(peer);
	t_equal(rb_create(&other, &second), 0);
	rb_get_info(second, &info);
	t_equal(info.slots, 3);
	rb_detach(second);
	return 0;
}
