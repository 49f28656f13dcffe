/* A name that somebody removed by hand is missed by nobody: the ring goes on, its last user leaves, and another's file of that name stays. */
#include "t.h"

int main(void)
{
	const char *name = t_name();
	rb_ring *ring = t_create(.name = name, .slots = 1, .slot_bytes = 64);

	t_equal(unlink(t_path(name)), 0);
	t_put(ring, 1);
	t_equal(t_get(ring), 1);
	rb_detach(ring);
	t_check(!t_name_exists(name));

	ring = t_create(.name = name, .slots = 1, .slot_bytes = 64);
	t_equal(unlink(t_path(name)), 0);
	int fd = open(t_path(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	t_check(fd >= 0);
	rb_detach(ring);
	t_check(t_name_exists(name));
	t_equal(unlink(t_path(name)), 0);
	close(fd);
	return 0;
}
