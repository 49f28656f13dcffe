/* A name that leads to a link, a FIFO, or a file that is no ring, is an error at once: nothing is followed, waited for or mapped. */
#include "t.h"

static const char *name;
static const char *path;

/* Afterwards the name is free, or `instead` is put there. */
static void refuse(int attach, int create, const char *instead)
{
	struct rb_options options = { .name = name, .slots = 1, .slot_bytes = 64 };
	rb_ring *ring = NULL;
	int attached = rb_attach(name, &ring), created = create ? rb_create(&options, &ring) : 0;

	unlink(path);
	if (instead)
		t_equal(rename(instead, path), 0);
	t_equal(attached, attach);
	t_equal(created, create);
	t_check(ring == NULL);
}

int main(void)
{
	char target[RB_NAME_MAX + 128];
	rb_ring *ring;

	alarm(T_PATIENCE_NS / T_SECOND_NS); /* opening a FIFO must not wait for its other end */
	name = t_name();
	path = t_path(name);

	snprintf(target, sizeof(target), "%s.target", path);
	ring = t_create(.slots = 1, .slot_bytes = 64, .name = name);
	t_equal(rename(path, target), 0);
	t_equal(symlink(target, path), 0);
	refuse(-EACCES, -EACCES, target);
	rb_detach(ring);
	t_check(!t_name_exists(name));

	t_equal(mkfifo(path, 0600), 0);
	refuse(-EACCES, -EACCES, NULL);

	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	t_check(fd >= 0);
	t_equal(close(fd), 0);
	refuse(-EBADMSG, 0, NULL);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	t_equal(ftruncate(fd, 1 << 16), 0);
	t_equal(close(fd), 0);
	refuse(-EBADMSG, 0, NULL);
	return 0;
}
