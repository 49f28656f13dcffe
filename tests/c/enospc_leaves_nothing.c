/* A named ring for which /dev/shm has no room is -ENOSPC, at once and with nothing left behind; a smaller one then fits. */
#include "t.h"
#include "private_shm.h"
#include <sys/statvfs.h>

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

	private_shm("size=1m");
	int before = private_shm_entries();
	unsigned long room = free_blocks();
	int next_fd = dup(0);
	close(next_fd);
	for (int i = 0; i < 3; i++) {
		t_equal(rb_create(&large, &ring), -ENOSPC);
		t_check(ring == NULL);
		t_equal(private_shm_entries(), before);
		t_equal(free_blocks(), room);
	}
	large.hugepages = RB_HUGE_ALWAYS;
	t_equal(rb_create(&large, &ring), -ENOSPC);
	t_equal(free_blocks(), room);

	/* Not even the small page that each huge one begins with. */
	int filler = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	t_check(filler >= 0);
	t_equal(posix_fallocate(filler, 0, (off_t)(room - 1) * 4096), 0);
	t_equal(rb_create(&large, &ring), -ENOSPC);
	t_equal(close(filler), 0);
	t_equal(free_blocks(), room);
	int fd = dup(0);
	t_equal(fd, next_fd);
	close(fd);

	t_equal(rb_create(&small, &ring), 0);
	t_put(ring, 1);
	t_equal(t_get(ring), 1);
	rb_detach(ring);
	t_equal(private_shm_entries(), before);
	t_equal(free_blocks(), room);
	return 0;
}
