/* A named ring for which /dev/shm has no room is -ENOSPC, at once and with nothing left behind; a smaller one then fits. */
#include "t.h"
#include <dirent.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		t_skip("this kernel gives no user namespaces");
	close(fd);
}

/* A /dev/shm of one MiB, for this process alone. */
static void make_it_small(void)
{
	char map[32];
	uid_t uid = geteuid();

	if (unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) < 0)
		t_skip("no mount namespace of our own to be had");
	if (uid != 0) {
		snprintf(map, sizeof(map), "0 %u 1", (unsigned)uid);
		write_file("/proc/self/setgroups", "deny");
		write_file("/proc/self/uid_map", map);
	}
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("t", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") < 0)
		t_skip("no small /dev/shm to be had");
}

static int entries(void)
{
	DIR *directory = opendir("/dev/shm");
	int n = 0;

	t_check(directory);
	while (readdir(directory))
		n++;
	closedir(directory);
	return n;
}

static unsigned long free_blocks(void)
{
	struct statvfs room;

	t_equal(statvfs("/dev/shm", &room), 0);
	return room.f_bfree;
}

int main(void)
{
	struct rb_options large = { .name = "t", .slots = 4, .slot_bytes = 1 << 20 };
	struct rb_options small = { .name = "t", .slots = 2, .slot_bytes = 65536, .participants = 4 };
	rb_ring *ring = NULL;

	make_it_small();
	int before = entries();
	unsigned long room = free_blocks();
	int next_fd = dup(0);
	close(next_fd);
	for (int i = 0; i < 3; i++) {
		t_equal(rb_create(&large, &ring), -ENOSPC);
		t_check(ring == NULL);
		t_equal(entries(), before);
		t_equal(free_blocks(), room);
	}
	int fd = dup(0);
	t_equal(fd, next_fd);
	close(fd);

	t_equal(rb_create(&small, &ring), 0);
	t_put(ring, 1);
	t_equal(t_get(ring), 1);
	rb_detach(ring);
	t_equal(entries(), before);
	t_equal(free_blocks(), room);
	return 0;
}
