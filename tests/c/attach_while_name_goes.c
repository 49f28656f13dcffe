/* Who comes by name while the name is being removed finds no ring; who comes by descriptor needs no name and attaches. */
#include "t.h"

static int exclusively(const char *name)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = RB_LIFE_BYTE, .l_len = 1 };
	int fd = open(t_path(name), O_RDWR | O_CLOEXEC);

	t_check(fd >= 0);
	t_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
	return fd;
}

/* A segment whose creator is gone and has left the name behind. */
static void create_and_die(void *arg)
{
	t_create(.name = arg, .slots = 2, .slot_bytes = 64);
	raise(SIGKILL);
}

int main(void)
{
	const char *name = t_name();
	rb_ring *ring = NULL;

	t_equal(t_wait(t_child(create_and_die, t_named)), SIGKILL);
	int remover = exclusively(name);
	t_equal(rb_attach(name, &ring), -ENOENT);
	t_check(ring == NULL);
	t_equal(rb_attach_fd(remover, &ring), 0);
	t_put(ring, 1);
	t_equal(t_get(ring), 1);
	t_equal(unlink(t_path(name)), 0);
	rb_detach(ring);
	close(remover);
	return 0;
}
