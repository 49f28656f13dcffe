/* Every byte of the header is looked at: whichever is changed, attaching is refused and nothing is written. */
#include "t.h"

int main(void)
{
	static const unsigned char flips[] = { 0x01, 0x80, 0xff };
	rb_ring *ring = t_create(.slots = 2, .slot_bytes = 100, .participants = 3);
	struct rb_info info;
	unsigned char byte;

	rb_get_info(ring, &info);
	int fd = t_copy(ring, info.total_bytes, T_SEALS);
	for (off_t at = 0; at < RB_CONTROL_AT; at++) {
		for (size_t f = 0; f < sizeof(flips); f++) {
			t_equal(pread(fd, &byte, 1, at), 1);
			byte ^= flips[f];
			t_equal(pwrite(fd, &byte, 1, at), 1);
			int rc = t_try_attach(fd);
			if (at >= (off_t)sizeof(struct rb_header))
				t_equal(rc, 0); /* the gap behind the header says nothing */
			else if (rc != (at >= 8 && at < 20 ? -EPROTO : -EBADMSG))
				t_die(__FILE__, __LINE__, "byte %d ^ 0x%02x: attach says %d", (int)at, flips[f], rc);
			byte ^= flips[f];
			t_equal(pwrite(fd, &byte, 1, at), 1);
		}
	}
	t_refuses(fd, 0);
	rb_detach(ring);
	return 0;
}
