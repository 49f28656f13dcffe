/* What does not begin with our magic is not a ring: -EBADMSG, nothing written, whatever else it says. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_queue(1), *out = NULL;
	struct rb_info info;
	uint32_t version;

	rb_get_info(ring, &info);
	int copy = t_copy(ring, info.total_bytes, T_SEALS);
	t_refuses(copy, 0);
	for (int i = 0; i < 8; i++) {
		struct rb_header header = t_header(copy), damaged = header;
		damaged.magic[i] ^= 0x20;
		damaged.checksum = t_checksum(&damaged);
		t_equal(pwrite(copy, &damaged, sizeof(damaged), 0), sizeof(damaged));
		t_refuses(copy, -EBADMSG);
		t_equal(rb_peek_version(copy, &version), -EBADMSG);
		t_equal(pwrite(copy, &header, sizeof(header), 0), sizeof(header));
	}
	t_refuses(copy, 0);

	/* Things that are no segment at all. */
	int ends[2];
	t_equal(pipe2(ends, O_CLOEXEC), 0);
	t_equal(rb_attach_fd(ends[0], &out), -EBADMSG);
	t_equal(rb_peek_version(ends[0], &version), -EBADMSG);
	int zeros = memfd_create("t", MFD_CLOEXEC);
	t_equal(ftruncate(zeros, 65536), 0);
	t_refuses(zeros, -EBADMSG);
	t_equal(rb_attach_fd(-1, &out), -EBADF);
	t_equal(rb_peek_version(-1, &version), -EBADF);
	t_check(out == NULL);
	rb_detach(ring);
	return 0;
}
