/* Rings come and go, attach and fail to attach, fork and die: descriptors and mappings are afterwards what they were before. */
#include "t.h"
#include <dirent.h>

static int descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int n = 0;

	t_check(directory);
	while (readdir(directory))
		n++;
	closedir(directory);
	return n;
}

/* Mappings of rings: a sanitizer's own come and go. */
static int mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int n = 0;

	t_check(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "/memfd:ringbuf") || strstr(line, "/dev/shm/ringbuf.");
	fclose(maps);
	return n;
}

static rb_ring *inherited;

static void use_and_leave(void *arg)
{
	(void)arg;
	int before = descriptors(), mapped = mappings();
	t_put(inherited, 1);
	t_equal(descriptors(), before + 1); /* its own proof of life */
	rb_ring *own = t_attach(inherited);
	rb_detach(own);
	t_equal(descriptors(), before + 1);
	rb_detach(inherited);
	t_equal(descriptors(), before - 1);
	t_equal(mappings(), mapped - 1);
}

static void round_trip(const char *name)
{
	struct rb_options bad = { .slots = 0, .slot_bytes = 1 }, taken = { .name = name, .slots = 1, .slot_bytes = 64 };
	rb_ring *ring = t_create(.slots = 2, .slot_bytes = 64, .participants = 3, .name = name), *other, *third = NULL;

	t_equal(rb_attach(name, &other), 0);
	t_equal(rb_attach(name, &third), 0);
	rb_detach(third);
	t_equal(rb_create(&bad, &third), -EINVAL);
	t_equal(rb_create(&taken, &third), -EEXIST);
	t_equal(rb_unlink(name), -EBUSY);
	t_equal(chmod(t_path(name), 0640), 0);
	t_equal(rb_attach(name, &third), -EACCES);
	t_equal(chmod(t_path(name), 0600), 0);
	int fd = memfd_create("t", MFD_CLOEXEC);
	t_equal(rb_attach_fd(fd, &third), -EBADMSG);
	t_equal(close(fd), 0);
	inherited = t_broadcast(2);
	rb_ring *reader = t_attach(inherited);
	t_equal(rb_subscribe(reader), 0);
	t_ends_well(t_child(use_and_leave, NULL));
	rb_detach(reader);
	rb_detach(inherited);
	rb_detach(other);
	rb_detach(ring);
	t_equal(rb_unlink(name), -ENOENT);
	t_equal(rb_attach(name, &third), -ENOENT);
}

int main(void)
{
	const char *name = t_name();

	round_trip(name); /* what libraries open once */
	int before = descriptors(), mapped = mappings();
	for (int i = 0; i < 20; i++) {
		round_trip(name);
		t_equal(descriptors(), before);
		t_equal(mappings(), mapped);
	}
	t_equal(mapped, 0);
	return 0;
}
