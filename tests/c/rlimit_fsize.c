/* A limit on the size of files makes rb_create say -EFBIG; it does not kill the process with SIGXFSZ, and leaves nothing. */
#include "t.h"
#include <sys/resource.h>

int main(void)
{
	struct rlimit limit = { .rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY };
	const char *name = t_name();
	struct rb_options anonymous = { .slots = 4, .slot_bytes = 1 << 20 }, named = anonymous;
	rb_ring *ring = NULL;

	named.name = name;
	t_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = 1 << 20;
	t_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	int next_fd = dup(0);
	close(next_fd);
	t_equal(rb_create(&anonymous, &ring), -EFBIG);
	t_equal(rb_create(&named, &ring), -EFBIG);
	t_check(ring == NULL && !t_name_exists(name));
	int fd = dup(0);
	t_equal(fd, next_fd);

	ring = t_create(.slots = 2, .slot_bytes = 4096, .participants = 4);
	t_put(ring, 1);
	t_equal(t_get(ring), 1);
	rb_detach(ring);
	return 0;
}
