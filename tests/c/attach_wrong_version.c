/* Another layout version, byte order or kind of waiting is refused with -EPROTO before anything else is believed; the version can be asked for. */
#include "t.h"

static void refuse(int fd, const struct rb_header *header)
{
	struct rb_header other = *header;

	/* Of another version even the rest of the header may differ: sizes and checksum need not agree. */
	other.slots = UINT32_MAX;
	t_equal(pwrite(fd, &other, sizeof(other), 0), sizeof(other));
	t_refuses(fd, -EPROTO);
	other = *header;
	other.checksum = t_checksum(&other);
	t_equal(pwrite(fd, &other, sizeof(other), 0), sizeof(other));
	t_refuses(fd, -EPROTO);
}

int main(void)
{
	rb_ring *ring = t_queue(1);
	struct rb_info info;
	uint32_t version;

	t_equal(rb_peek_version(rb_fd(ring), &version), 0);
	t_equal(version, RB_LAYOUT_VERSION);
	rb_get_info(ring, &info);
	int copy = t_copy(ring, info.total_bytes, T_SEALS);
	struct rb_header whole = t_header(copy), other = whole;

	other.version = RB_LAYOUT_VERSION + 1;
	refuse(copy, &other);
	t_equal(rb_peek_version(copy, &version), 0);
	t_equal(version, RB_LAYOUT_VERSION + 1);
	other.version = 0;
	refuse(copy, &other);

	other = whole;
	other.byte_order = __builtin_bswap32(other.byte_order);
	refuse(copy, &other);
	other = whole;
	other.wait_kind = 3 - other.wait_kind;
	refuse(copy, &other);
	t_equal(rb_peek_version(copy, &version), 0);
	t_equal(version, RB_LAYOUT_VERSION);

	t_equal(pwrite(copy, &whole, sizeof(whole), 0), sizeof(whole));
	t_refuses(copy, 0);
	rb_detach(ring);
	return 0;
}
