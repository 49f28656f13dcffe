/* Another user's ring is neither attached to, nor replaced, nor removed: -EACCES, even for root. */
#include "t.h"

int main(void)
{
	const char *name = t_name();
	struct rb_options options = { .name = name, .slots = 1, .slot_bytes = 64 };
	const char *path = t_path(name);
	rb_ring *ring = NULL;
	struct stat before, after;

	if (geteuid() != 0)
		t_skip("only root can give a file to another user");
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	t_check(fd >= 0);
	close(fd);
	if (chown(path, 65534, 65534) < 0) {
		unlink(path);
		t_skip("this root may not give a file to another user");
	}
	t_equal(stat(path, &before), 0);
	int attached = rb_attach(name, &ring), created = rb_create(&options, &ring), unlinked = rb_unlink(name);
	t_equal(stat(path, &after), 0);
	t_equal(unlink(path), 0);
	t_equal(attached, -EACCES);
	t_equal(created, -EACCES);
	t_equal(unlinked, -EACCES);
	t_equal(after.st_ino, before.st_ino);
	t_check(ring == NULL);
	return 0;
}
