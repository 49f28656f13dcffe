/* The bytes of a segment, at fixed places and in the form of version 1: what another build must find there.
 * Numbers are written out here on purpose: this test is to fail when the layout changes unnoticed. */
#include "t.h"

static int fd;

static uint64_t at(off_t offset, size_t bytes)
{
	uint64_t value = 0;

	t_equal(pread(fd, &value, bytes, offset), bytes); /* little endian, as all we run on */
	return value;
}

static void check_queue(void)
{
	rb_ring *ring = t_create(.slots = 2, .slot_bytes = 5000, .participants = 3, .redeliver = true);
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct rb_info info;
	char magic[8];
	uint32_t version;

	rb_get_info(ring, &info);
	fd = rb_fd(ring);
	t_equal(pread(fd, magic, 8, 0), 8);
	t_equal(memcmp(magic, "ringbuf\n", 8), 0);
	t_equal(at(8, 4), 1); /* version */
	t_equal(at(12, 4), 0x01020304);
#ifdef RINGBUF_WAIT_SEMAPHORE
	t_equal(at(16, 4), 2);
#else
	t_equal(at(16, 4), 1);
#endif
	t_equal(at(20, 4), 0);   /* mode: queue */
	t_equal(at(24, 4), 0);   /* full: block */
	t_equal(at(28, 4), 1);   /* redeliver */
	t_equal(at(32, 4), 0);   /* hugepages: auto */
	t_equal(at(36, 4), 2);   /* slots */
	t_equal(at(40, 4), 3);   /* participants */
	t_equal(at(44, 4), page);
	t_equal(at(48, 8), 5000);
	t_equal(at(56, 8), info.slot_stride);
	t_equal(info.slot_stride, (5000 + page - 1) / page * page);
	t_equal(at(64, 8), 4096);
	t_equal(at(72, 8), 4096 + 3 * 256);
	uint64_t payload = at(80, 8);
	t_equal(payload % page, 0);
	t_check(payload >= 4096 + 3 * 256 + 2 * 64);
	t_equal(at(88, 8), payload + 2 * info.slot_stride);
	t_check(at(96, 8) != 0 || at(104, 8) != 0); /* id */
	t_equal(at(120, 1), 0); /* no name */
	t_equal(at(512, 8), 1); /* next ticket */
	t_equal(rb_peek_version(fd, &version), 0);
	t_equal(version, 1);

	/* state:3 | who:12 | seq:49 */
	const off_t word = 4096 + 3 * 256;
	struct rb_slot slot = t_claim(ring, 0x1234);
	off_t mine = word + slot.index * 64;
	t_equal(at(mine, 8), UINT64_C(1) << 61 | UINT64_C(1) << 49);
	t_equal(at(mine + 8, 8), 0x1234);
	t_equal(at(mine + 24, 4), RB_ANY);
	t_commit(ring, slot);
	t_equal(at(mine, 8), UINT64_C(2) << 61 | 1);
	t_equal(at(mine + 32, 8), 16); /* bytes */
	t_equal(at((off_t)(payload + slot.index * info.slot_stride), 8), 0x1234);
	t_equal(at(512, 8), 2);
	slot = t_take(ring);
	t_equal(at(mine, 8), UINT64_C(3) << 61 | UINT64_C(1) << 49 | 1);
	t_equal(rb_release(ring, &slot), 0);
	t_equal(at(mine, 8), 1);

	t_equal(at(4096, 4), 1);              /* row 0 is joined */
	t_equal(at(4096 + 8, 8), getpid());
	t_equal(at(4096 + 128, 8), 1);        /* published */
	t_equal(at(4096 + 136, 8), 1);        /* consumed */
	t_equal(at(512 + 384, 4), 0);
	rb_finish(ring);
	t_equal(at(512 + 384, 4), 1);         /* finished */
	rb_detach(ring);
}

static void check_broadcast(void)
{
	rb_ring *ring = t_create(.slots = 1, .slot_bytes = 64, .participants = 3, .mode = RB_BROADCAST);
	rb_ring *other = t_attach(ring);
	const off_t word = 4096 + 3 * 256;

	fd = rb_fd(ring);
	t_equal(at(20, 4), 1);
	t_equal(at(512 + 512, 8), UINT64_MAX); /* reader 0: no first ticket */
	t_equal(rb_subscribe(ring), 0);
	t_equal(rb_subscribe(other), 0);
	t_equal(at(512 + 388, 4), 3);          /* active */
	t_equal(at(512 + 512, 8), 1);
	t_equal(at(512 + 512 + 8, 4), 1);      /* owned by row 0 */
	t_equal(at(512 + 528 + 8, 4), 2);
	t_put(ring, 1);
	t_equal(at(word, 8), UINT64_C(2) << 61 | UINT64_C(3) << 45 | 1); /* state:3 | mask:16 | seq:45 */
	t_equal(t_get(ring), 1);
	t_equal(at(word, 8), UINT64_C(2) << 61 | UINT64_C(2) << 45 | 1);
	t_equal(t_get(other), 1);
	t_equal(at(word, 8), 1);
	rb_detach(other);
	rb_detach(ring);
}

static void check_name(void)
{
	const char *name = t_name();
	rb_ring *ring = t_create(.slots = 1, .slot_bytes = 64, .name = name);
	char stored[208];

	t_equal(pread(rb_fd(ring), stored, sizeof(stored), 120), sizeof(stored));
	t_equal(strcmp(stored, name), 0);
	rb_detach(ring);
}

int main(void)
{
	check_queue();
	check_broadcast();
	check_name();
	return 0;
}
