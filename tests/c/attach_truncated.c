/* A segment that is shorter than its header says is -EBADMSG at every length, never a bus error; a longer one does no harm. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_queue(2);
	struct rb_info info;
	uint32_t version;

	rb_get_info(ring, &info);
	const uint64_t lengths[] = { 0, 1, 8, 12, 335, 336, 512, 4095, 4096, info.total_bytes / 2, info.total_bytes - 4096,
				     info.total_bytes - 1 };
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		int fd = t_copy(ring, lengths[i], T_SEALS);
		t_refuses(fd, -EBADMSG);
		t_equal(rb_peek_version(fd, &version), lengths[i] < sizeof(struct rb_header) ? -EBADMSG : 0);
		close(fd);
	}
	int longer = t_copy(ring, info.total_bytes, 0);
	t_equal(ftruncate(longer, (off_t)info.total_bytes + 4096), 0);
	t_equal(fcntl(longer, F_ADD_SEALS, T_SEALS), 0);
	t_refuses(longer, 0);
	rb_detach(ring);
	return 0;
}
