/* A header that is rewritten after it was looked at is not looked at again: an attacher works with what it has checked. */
#include "t.h"

#include <sys/syscall.h>

static bool watched;
static int segment;

static void rewrite(size_t at, uint32_t value)
{
	t_equal(pwrite(segment, &value, sizeof(value), (off_t)at), sizeof(value));
}

/* Whoever reads the header finds it whole, and leaves it like this. */
ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
	ssize_t got = syscall(SYS_pread64, fd, to, bytes, at);

	if (!watched)
		return got;
	watched = false;
	rewrite(offsetof(struct rb_header, mode), RB_BROADCAST);
	rewrite(offsetof(struct rb_header, slots), RB_SLOTS_MAX);
	rewrite(offsetof(struct rb_header, participants), RB_PARTICIPANTS_MAX);
	rewrite(offsetof(struct rb_header, slot_bytes), UINT32_MAX);
	rewrite(offsetof(struct rb_header, slot_stride), UINT32_MAX);
	rewrite(offsetof(struct rb_header, rows_at), UINT32_MAX);
	rewrite(offsetof(struct rb_header, descs_at), UINT32_MAX);
	rewrite(offsetof(struct rb_header, payload_at), UINT32_MAX);
	rewrite(offsetof(struct rb_header, total_bytes), 0);
	return got;
}

int main(void)
{
	rb_ring *ring = t_queue(4);
	struct rb_info before, after;

	rb_get_info(ring, &before);
	segment = rb_fd(ring);
	watched = true;
	rb_ring *other = t_attach(ring);
	t_check(!watched);
	rb_get_info(other, &after);
	t_equal(after.slots, before.slots);
	t_equal(after.participants, before.participants);
	t_equal(after.mode, before.mode);
	t_equal(after.slot_bytes, before.slot_bytes);
	t_equal(after.slot_stride, before.slot_stride);
	t_equal(after.total_bytes, before.total_bytes);
	for (uint64_t tag = 0; tag < 8; tag++) {
		t_put(other, tag);
		t_equal(t_get(ring), tag);
	}
	rb_detach(other);
	rb_detach(ring);
	return 0;
}
