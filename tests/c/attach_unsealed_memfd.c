/* An anonymous segment that its owner could still shrink under us is refused; our own cannot be shrunk, grown or unsealed. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_queue(1);
	struct rb_info info;

	rb_get_info(ring, &info);
	t_equal(ftruncate(rb_fd(ring), 4096), -1);
	t_equal(ftruncate(rb_fd(ring), (off_t)info.total_bytes + 4096), -1);
	t_equal(fcntl(rb_fd(ring), F_ADD_SEALS, F_SEAL_WRITE), -1);
	t_equal(fcntl(rb_fd(ring), F_GET_SEALS), T_SEALS); /* nobody adds one that keeps attachers from writing */

	int fd = t_copy(ring, info.total_bytes, 0);
	t_refuses(fd, -EBADMSG);
	t_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
	t_refuses(fd, -EBADMSG);
	t_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	t_refuses(fd, 0);

	/* An anonymous segment in a plain file has no seals at all. */
	const char *name = t_name();
	char path[RB_NAME_MAX + 32];
	snprintf(path, sizeof(path), "/dev/shm/ringbuf.%s", name);
	int file = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	t_check(file >= 0);
	struct rb_map map = t_map(ring);
	t_equal(pwrite(file, map.base, info.total_bytes, 0), info.total_bytes);
	t_unmap(&map);
	t_refuses(file, -EBADMSG);
	rb_ring *out;
	t_equal(rb_attach(name, &out), -EBADMSG);
	t_check(t_name_exists(name)); /* not ours to remove */
	unlink(path);
	rb_detach(ring);
	return 0;
}
