/* A descriptor of something else than a ring (a pipe, a directory, a device, a socket, a closed one), or one that does not allow what a ring needs, is an error at once. */
#include "t.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static void refuse(const char *what, int fd, int want)
{
	rb_ring *out = NULL;
	uint32_t version;
	int rc = rb_attach_fd(fd, &out);

	if (rc != want)
		t_die(__FILE__, __LINE__, "%s: attach says %d, not %d", what, rc, want);
	t_check(out == NULL);
	if (rb_peek_version(fd, &version) > 0)
		t_die(__FILE__, __LINE__, "%s: peek says that it worked", what);
	close(fd);
}

static int reopened(const rb_ring *ring, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", rb_fd(ring));
	int fd = open(path, flags | O_CLOEXEC);
	t_check(fd >= 0);
	return fd;
}

int main(void)
{
	rb_ring *ring = t_queue(2);
	struct rb_info info;
	int ends[2];

	alarm(T_PATIENCE_NS / T_SECOND_NS); /* nothing here may wait for its other end */
	rb_get_info(ring, &info);
	refuse("no descriptor", -1, -EBADF);
	int closed = dup(rb_fd(ring));
	close(closed);
	refuse("a closed one", closed, -EBADF);
	t_equal(pipe2(ends, O_CLOEXEC), 0);
	refuse("a pipe's reading end", ends[0], -EBADMSG);
	refuse("a pipe's writing end", ends[1], -EBADMSG);
	t_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	refuse("a socket", ends[0], -EBADMSG);
	close(ends[1]);
	refuse("an eventfd", eventfd(0, EFD_CLOEXEC), -EBADMSG);
	refuse("an epoll instance", epoll_create1(EPOLL_CLOEXEC), -EBADMSG);
	refuse("a folder", open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC), -EBADMSG);
	refuse("/dev/zero", open("/dev/zero", O_RDWR | O_CLOEXEC), -EBADMSG);
	refuse("/dev/null", open("/dev/null", O_RDWR | O_CLOEXEC), -EBADMSG);
	refuse("/dev/full", open("/dev/full", O_RDWR | O_CLOEXEC), -EBADMSG);
	refuse("a file of /proc", open("/proc/self/maps", O_RDONLY | O_CLOEXEC), -EBADMSG);
	refuse("a program", open("/proc/self/exe", O_RDONLY | O_CLOEXEC), -EBADMSG);

	refuse("a ring to be read only", reopened(ring, O_RDONLY), -EACCES);
	refuse("a ring to be written only", reopened(ring, O_WRONLY), -EBADF);
	refuse("a path to a ring", reopened(ring, O_PATH), -EBADF);
	refuse("a ring that cannot be written", t_copy(ring, info.total_bytes, T_SEALS | F_SEAL_WRITE), -EPERM);
	refuse("a ring that can shrink", t_copy(ring, info.total_bytes, 0), -EBADMSG);
	rb_ring *huge = t_create(.slots = 1, .slot_bytes = 64, .hugepages = RB_HUGE_ALWAYS);
	rb_get_info(huge, &info);
	refuse("a ring of huge pages that cannot be written", t_copy(huge, info.total_bytes, T_SEALS | F_SEAL_WRITE), -EPERM);
	rb_detach(huge);
	int disk = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (disk >= 0) { /* where there are no seals to ask for */
		struct rb_map map = t_map(ring);
		t_equal(pwrite(disk, map.base, map.header.total_bytes, 0), map.header.total_bytes);
		t_unmap(&map);
		refuse("a nameless ring on a disk", disk, -EBADMSG);
	}
	t_equal(t_stats(ring).participants, 1);
	rb_detach(ring);
	return 0;
}
