/* No descriptor of a ring outlives an exec: a program that a participant starts does not keep it alive, nor the segment. */
#include "t.h"

#define MOST 64

static void check(const char *what, const bool *before)
{
	for (int fd = 0; fd < MOST; fd++) {
		int flags = fcntl(fd, F_GETFD);

		if (flags >= 0 && !before[fd] && !(flags & FD_CLOEXEC))
			t_die(__FILE__, __LINE__, "%s: descriptor %d is inherited", what, fd);
	}
}

int main(void)
{
	bool before[MOST];
	const char *name = t_name();
	rb_ring *other;

	for (int fd = 0; fd < MOST; fd++)
		before[fd] = fcntl(fd, F_GETFD) >= 0;
	rb_ring *ring = t_queue(1);
	check("rb_create", before);
	other = t_attach(ring);
	check("rb_attach_fd", before);
	rb_detach(other);
	rb_detach(ring);

	ring = t_create(.name = name, .slots = 1, .slot_bytes = 64);
	check("rb_create with a name", before);
	t_equal(rb_attach(name, &other), 0);
	check("rb_attach", before);
	rb_detach(other);
	rb_detach(ring);
	return 0;
}
