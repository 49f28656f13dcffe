/* A name that is taken when a ring asks for it, and free when its holder is looked for, is asked for again, a few times. */
#include "t.h"

#include <limits.h>
#include <sys/syscall.h>

static int taken; /* how often the system will still say so */

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
	if (taken > 0) {
		taken--;
		errno = EEXIST;
		return -1;
	}
	return (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);
}

int main(void)
{
	struct rb_options options = { .name = t_name(), .slots = 1, .slot_bytes = 64 };
	rb_ring *ring = NULL;

	taken = 2;
	t_equal(rb_create(&options, &ring), 0);
	t_equal(taken, 0);
	t_check(t_name_exists(options.name));
	rb_detach(ring);

	taken = INT_MAX; /* somebody is always faster */
	ring = NULL;
	t_equal(rb_create(&options, &ring), -EEXIST);
	t_check(ring == NULL && INT_MAX - taken < 1000);
	t_check(!t_name_exists(options.name));
	return 0;
}
