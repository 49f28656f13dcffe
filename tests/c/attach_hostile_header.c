/* Whatever a header says, with its checksum made right or left wrong, attaching is an error or a handle that works, and nothing beyond the segment is touched. */
#include "t.h"

#ifdef __SANITIZE_THREAD__
#define STRIDE 7 /* of what is chosen: a mapping is slow there, and has nothing to show */
#else
#define STRIDE 1
#endif

static rb_ring *ring;
static int fd;
static struct rb_info info;
static struct rb_header whole;
static long tried, accepted, refused_as_damaged, refused_as_foreign;

/* ---- a handle that came of it ------------------------------------------------------------------------------- */

static void inside(const struct rb_slot *slot, const struct rb_info *said, unsigned char *first)
{
	t_check(slot->index < said->slots && slot->bytes <= said->slot_bytes);
	t_check((unsigned char *)slot->data == first + slot->index * said->slot_stride);
	memset(slot->data, 0x5a, said->slot_bytes);
}

/* One message through every slot; then the last byte that the header speaks of. */
static void use(rb_ring *other)
{
	struct rb_info said;
	struct rb_slot slot;
	struct rb_lost lost[RB_LOST_LOG];
	struct stat stat;

	rb_get_info(other, &said);
	t_equal(fstat(fd, &stat), 0);
	t_check(said.total_bytes <= (uint64_t)stat.st_size);
	t_check(said.slots >= 1 && said.slots * said.slot_stride <= said.total_bytes && said.slot_bytes <= said.slot_stride);
	t_check(!said.name || strnlen(said.name, RB_NAME_MAX + 1) <= RB_NAME_MAX);
	if (said.mode == RB_BROADCAST)
		t_equal(rb_subscribe(other), 0);
	t_equal(rb_claim(other, 1, RB_ANY, RB_NOW, &slot), 0);
	unsigned char *first = (unsigned char *)slot.data - slot.index * said.slot_stride;
	inside(&slot, &said, first);
	t_equal(rb_commit(other, &slot, said.slot_bytes), 0);
	t_equal(rb_take(other, NULL, RB_NOW, &slot), 0);
	inside(&slot, &said, first);
	t_equal(rb_release(other, &slot), 0);
	t_equal(t_stats(other).free, said.slots);
	t_equal(rb_ready(other), 0);
	t_equal(rb_recover(other), 0);
	t_equal(rb_get_lost(other, lost, RB_LOST_LOG), 0);
	memset(first, 0x5a, said.slots * said.slot_stride);
}

static void attach(void)
{
	rb_ring *other = NULL;
	struct rb_survey *found;
	int rc = rb_attach_fd(fd, &other);

	/* Who only looks comes to the same end, and sees no more than there is. */
	t_equal(rb_survey_fd(fd, &found), 0);
	t_equal(found->problem, rc);
	t_equal(found->readable, rc == 0);
	rb_survey_free(found);
	tried++;
	refused_as_damaged += rc == -EBADMSG;
	refused_as_foreign += rc == -EPROTO;
	if (rc == 0) {
		accepted++;
		use(other);
		rb_detach(other);
	} else if (rc != -EBADMSG && rc != -EPROTO) {
		t_die(__FILE__, __LINE__, "attach says %d", rc);
	}
}

static void attach_to(struct rb_header header, bool right)
{
	if (right)
		header.checksum = t_checksum(&header);
	t_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	attach();
}

/* ---- every byte ---------------------------------------------------------------------------------------------- */

/* Short: each bit, the ends, and what is next to what is there. */
static bool is_chosen(int value, int old, bool thorough)
{
	int flipped = value ^ old;

	return thorough || value == 0 || value == 255 || (flipped & (flipped - 1)) == 0 || value == old + 1 || value == old - 1;
}

static void every_byte(bool thorough)
{
	for (size_t at = 0; at < sizeof(whole); at += STRIDE)
		for (int value = 0; value < 256; value++)
			for (int right = 0; right < 2; right++) {
				struct rb_header damaged = whole;
				unsigned char *byte = (unsigned char *)&damaged + at;

				if (!is_chosen(value, *byte, thorough))
					continue;
				snprintf(t_context, sizeof(t_context), "byte %zu = 0x%02x, checksum %s: ", at, value, right ? "right" : "wrong");
				long before = accepted;
				bool same = *byte == value;
				*byte = (unsigned char)value;
				attach_to(damaged, right);
				if (!right)
					t_equal(accepted - before, same);
			}
}

/* ---- headers that agree with their checksum, and with nothing else ---------------------------------------------- */

#define FIELD(name) { #name, offsetof(struct rb_header, name), sizeof(((struct rb_header *)0)->name) }

static const struct field {
	const char *name;
	size_t at, bytes;
} fields[] = {
	FIELD(mode), FIELD(full), FIELD(hugepages), FIELD(slots), FIELD(participants), FIELD(page_bytes), FIELD(slot_bytes),
	FIELD(slot_stride), FIELD(rows_at), FIELD(descs_at), FIELD(payload_at), FIELD(total_bytes),
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static void set(struct rb_header *header, const struct field *field, uint64_t value)
{
	memcpy((unsigned char *)header + field->at, &value, field->bytes);
}

/* Two fields at once: sections that lie in the header, in each other, before the start; counts whose product wraps around. */
static void every_pair(bool thorough)
{
	const uint64_t values[] = {
		0, 1, 64, 336, RB_CONTROL_AT, RB_ROWS_AT, whole.descs_at, whole.payload_at, whole.total_bytes, 65535, 65536, 65537,
		UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 48, UINT64_C(1) << 62, INT64_MAX, UINT64_C(1) << 63,
		UINT64_MAX - 4095, UINT64_MAX, -whole.descs_at, -whole.payload_at, whole.slot_stride, UINT64_MAX / 3 + 1,
	};
	const size_t n = sizeof(values) / sizeof(values[0]);

	for (size_t a = 0; a < FIELDS; a++)
		for (size_t b = a + 1; b < FIELDS; b++)
			for (size_t v = 0; v < n * n; v += thorough ? 1 : 5 * STRIDE) {
				struct rb_header damaged = whole;

				set(&damaged, &fields[a], values[v / n]);
				set(&damaged, &fields[b], values[v % n]);
				snprintf(t_context, sizeof(t_context), "%s = %llu, %s = %llu: ", fields[a].name, (unsigned long long)values[v / n],
					 fields[b].name, (unsigned long long)values[v % n]);
				attach_to(damaged, true);
			}
}

/* Consistent in itself, as a creator of such a ring would have written it; the file behind it is too small, or is not. */
static void other_shapes(void)
{
	static const uint32_t counts[] = { 1, 2, 3, 4, 5, 8, 100, 65536 };
	static const uint64_t sizes[] = { 1, 4096, 4097, 5000, 8192, 1 << 20, 1 << 30, UINT64_C(1) << 40, INT64_MAX / 65536 };

	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			struct rb_header other = whole;

			other.slots = counts[c];
			other.slot_bytes = sizes[s];
			other.slot_stride = (sizes[s] + 4095) / 4096 * 4096;
			other.payload_at = (other.descs_at + other.slots * sizeof(struct rb_desc) + 4095) / 4096 * 4096;
			other.total_bytes = other.payload_at + other.slots * other.slot_stride;
			snprintf(t_context, sizeof(t_context), "%u slots of %llu bytes: ", other.slots, (unsigned long long)sizes[s]);
			long before = accepted;
			attach_to(other, true);
			t_equal(accepted - before, other.total_bytes <= whole.total_bytes);
		}
}

/* ---- every length -------------------------------------------------------------------------------------------- */

static void at_length(uint64_t bytes, uint64_t said, const unsigned char *segment)
{
	struct rb_header header = whole;
	int was = fd;
	long before = accepted;

	snprintf(t_context, sizeof(t_context), "%llu bytes long, said to be %llu: ", (unsigned long long)bytes, (unsigned long long)said);
	fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	t_check(fd >= 0);
	t_equal(ftruncate(fd, (off_t)bytes), 0);
	uint64_t there = bytes < info.total_bytes ? bytes : info.total_bytes;
	t_equal(pwrite(fd, segment, there, 0), there);
	header.total_bytes = said;
	header.checksum = t_checksum(&header);
	if (bytes >= sizeof(header) && said != whole.total_bytes)
		t_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	t_equal(fcntl(fd, F_ADD_SEALS, T_SEALS), 0);
	attach();
	t_equal(accepted - before, bytes >= whole.total_bytes && said == whole.total_bytes);
	close(fd);
	fd = was;
}

static void every_length(bool thorough)
{
	struct rb_map map = t_map(ring);
	const uint64_t edges[] = { 336, RB_CONTROL_AT, RB_ROWS_AT, whole.descs_at, whole.descs_at + 64, whole.payload_at,
				   whole.payload_at + whole.slot_stride, whole.total_bytes, whole.total_bytes + 4096, 1 << 20 };

	for (uint64_t bytes = 0; bytes <= RB_CONTROL_AT; bytes += thorough || bytes % 8 == 0 ? 1 : 7)
		at_length(bytes, whole.total_bytes, map.base);
	for (size_t e = 0; e < sizeof(edges) / sizeof(edges[0]); e++)
		for (int off = -2; off <= 2; off++) {
			uint64_t bytes = edges[e] + (uint64_t)off;
			at_length(bytes, whole.total_bytes, map.base);
			if (bytes != whole.total_bytes)
				at_length(bytes, bytes, map.base); /* the header says what is true, and is no ring's */
		}
	t_unmap(&map);
}

int main(int argc, char **argv)
{
	bool thorough = t_thorough(argc, argv);

	ring = t_create(.slots = 4, .slot_bytes = 5000, .participants = 4);
	rb_get_info(ring, &info);
	fd = t_copy(ring, info.total_bytes, T_SEALS);
	/* The creator's row was copied, its life was not: cleared, or the first attach would be its reaper. */
	uint32_t vacant = 0;
	t_equal(pwrite(fd, &vacant, sizeof(vacant), RB_ROWS_AT), sizeof(vacant));
	whole = t_header(fd);
	memset(whole.id, 0, sizeof(whole.id)); /* the same cases each time */
	whole.created_ns = 0;
	whole.checksum = t_checksum(&whole);
	every_byte(thorough);
	every_pair(thorough);
	other_shapes();
	every_length(thorough);
	t_check(accepted > 0 && refused_as_damaged > 0 && refused_as_foreign > 0);
	rb_detach(ring);
	t_figures("headers=%ld accepted=%ld refused_as_damaged=%ld refused_as_foreign=%ld", tried, accepted, refused_as_damaged,
		  refused_as_foreign);
	return 0;
}
