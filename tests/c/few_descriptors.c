/* With 0, 1, 2 ... descriptors to spare, creating and attaching say -EMFILE, with nothing left behind, or work. */
#include "t.h"
#include <sys/resource.h>

static const char *name;
static rb_ring *ring, *made;

static int create_anonymous(void)
{
	return rb_create(&(struct rb_options){ .slots = 2, .slot_bytes = 64, .participants = 4 }, &made);
}

static int create_named(void)
{
	return rb_create(&(struct rb_options){ .slots = 2, .slot_bytes = 64, .participants = 4, .name = name }, &made);
}

static int attach(void)
{
	return rb_attach_fd(rb_fd(ring), &made);
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static bool works_with(int spare, int (*call)(void))
{
	int held = open_descriptors(), next = dup(0);
	struct rlimit limit;

	close(next);
	t_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	rlim_t was = limit.rlim_cur;
	limit.rlim_cur = (rlim_t)(next + spare);
	t_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	int rc = call();
	if (rc == 0) {
		t_put(made, 1);
		t_equal(t_get(made), 1);
		rb_detach(made);
	} else {
		t_equal(rc, -EMFILE);
		t_check(made == NULL);
	}
	made = NULL;
	limit.rlim_cur = was;
	t_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	t_equal(open_descriptors(), held);
	t_check(!t_name_exists(name));
	return rc == 0;
}

int main(void)
{
	int (*const calls[])(void) = { create_anonymous, create_named, attach };

	name = t_name();
	ring = t_queue(2);
	for (size_t i = 0; i < 3; i++) {
		t_check(!works_with(0, calls[i]));
		t_check(!works_with(1, calls[i]));
		t_check(works_with(2, calls[i])); /* the segment, and the proof of life */
	}
	t_put(ring, 1);
	t_equal(t_get(ring), 1);
	rb_detach(ring);
	return 0;
}
