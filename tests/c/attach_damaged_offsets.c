/* A header that agrees with its checksum but not with the file, or not with itself, is refused: offsets are worked out, not believed. */
#include "t.h"

#define FIELD(name) { #name, offsetof(struct rb_header, name), sizeof(((struct rb_header *)0)->name) }

static const struct {
	const char *name;
	size_t at, bytes;
} fields[] = {
	FIELD(mode), FIELD(full), FIELD(redeliver), FIELD(hugepages), FIELD(slots), FIELD(participants), FIELD(page_bytes),
	FIELD(slot_bytes), FIELD(slot_stride), FIELD(rows_at), FIELD(descs_at), FIELD(payload_at), FIELD(total_bytes),
};

static const uint64_t values[] = {
	0, 1, 2, 3, 63, 4095, 4096, 4097, 8192, 65536, 65537, 1 << 20, UINT64_C(1) << 31, UINT32_MAX, UINT64_C(1) << 32,
	UINT64_C(1) << 62, INT64_MAX, INT64_MAX + UINT64_C(1), UINT64_MAX - 4095, UINT64_MAX,
};

/* Geometry may be other than the creator's only if it is consistent and fits: harmless, then. */
static void attach_and_use(int fd, const char *what, uint64_t value)
{
	rb_ring *ring;
	struct rb_info info;
	struct stat stat;
	int rc = rb_attach_fd(fd, &ring);

	if (rc == 0) {
		rb_get_info(ring, &info);
		t_equal(fstat(fd, &stat), 0);
		if (info.total_bytes > (uint64_t)stat.st_size)
			t_die(__FILE__, __LINE__, "%s = %llu was believed", what, (unsigned long long)value);
		rb_detach(ring);
	} else if (rc != -EBADMSG) {
		t_die(__FILE__, __LINE__, "%s = %llu: attach says %d", what, (unsigned long long)value, rc);
	}
}

int main(void)
{
	rb_ring *ring = t_create(.slots = 4, .slot_bytes = 5000, .participants = 4);
	struct rb_info info;

	rb_get_info(ring, &info);
	int fd = t_copy(ring, info.total_bytes, T_SEALS);
	const struct rb_header whole = t_header(fd);
	for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
		for (size_t v = 0; v < sizeof(values) / sizeof(values[0]) + 2; v++) {
			struct rb_header damaged = whole;
			uint64_t value = 0, old = 0;

			memcpy(&old, (unsigned char *)&damaged + fields[f].at, fields[f].bytes);
			value = v < sizeof(values) / sizeof(values[0]) ? values[v] : old + (v % 2 ? 64 : (uint64_t)-64);
			memcpy((unsigned char *)&damaged + fields[f].at, &value, fields[f].bytes);
			damaged.checksum = t_checksum(&damaged);
			t_equal(pwrite(fd, &damaged, sizeof(damaged), 0), sizeof(damaged));
			attach_and_use(fd, fields[f].name, value);
		}
	}

	/* Offsets are never free to choose: each alone, off by one page, is refused. */
	for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
		struct rb_header damaged = whole;
		uint64_t value = 0;

		if (fields[f].at < offsetof(struct rb_header, slot_stride))
			continue;
		memcpy(&value, (unsigned char *)&damaged + fields[f].at, fields[f].bytes);
		value -= 4096;
		memcpy((unsigned char *)&damaged + fields[f].at, &value, fields[f].bytes);
		damaged.checksum = t_checksum(&damaged);
		t_equal(pwrite(fd, &damaged, sizeof(damaged), 0), sizeof(damaged));
		t_refuses(fd, -EBADMSG);
	}

	/* Twice the slots, consistent in all offsets, but the file ends before them. */
	rb_ring *large = t_create(.slots = 8, .slot_bytes = 5000, .participants = 4);
	struct rb_header other = t_header(rb_fd(large));
	t_equal(pwrite(fd, &other, sizeof(other), 0), sizeof(other));
	t_refuses(fd, -EBADMSG);

	/* A page that is none, and offsets that go with it. */
	struct rb_header odd = whole;
	odd.page_bytes = 4097;
	odd.slots = 2;
	odd.slot_stride = (odd.slot_bytes + 4096) & ~UINT64_C(4096);
	odd.payload_at = (odd.descs_at + odd.slots * sizeof(struct rb_desc) + 4096) & ~UINT64_C(4096);
	odd.total_bytes = odd.payload_at + odd.slots * odd.slot_stride;
	t_check(odd.total_bytes <= info.total_bytes);
	odd.checksum = t_checksum(&odd);
	t_equal(pwrite(fd, &odd, sizeof(odd), 0), sizeof(odd));
	t_refuses(fd, -EBADMSG);

	/* Neither true nor false. */
	struct rb_header maybe = whole;
	maybe.redeliver = 2;
	maybe.checksum = t_checksum(&maybe);
	t_equal(pwrite(fd, &maybe, sizeof(maybe), 0), sizeof(maybe));
	t_refuses(fd, -EBADMSG);

	/* A name that does not end, or that no creator could have given. */
	struct rb_header named = whole;
	memset(named.name, 'x', sizeof(named.name));
	named.checksum = t_checksum(&named);
	t_equal(pwrite(fd, &named, sizeof(named), 0), sizeof(named));
	t_refuses(fd, -EBADMSG);
	strcpy(named.name, "../x");
	named.checksum = t_checksum(&named);
	t_equal(pwrite(fd, &named, sizeof(named), 0), sizeof(named));
	t_refuses(fd, -EBADMSG);

	t_equal(pwrite(fd, &whole, sizeof(whole), 0), sizeof(whole));
	t_refuses(fd, 0);
	rb_detach(large);
	rb_detach(ring);
	return 0;
}
