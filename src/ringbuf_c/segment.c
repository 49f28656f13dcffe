/* See segment.h for the rules. */
#define _GNU_SOURCE
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crash_points.h"
#include "lock.h"
#include "pages.h"
#include "wait.h"

#define SHM_DIR "/dev/shm"
#define SHM_PREFIX SHM_DIR "/ringbuf."
#define HUGE_WORTH (8 * RB_HUGE_PAGE) /* below this, rounding payloads up to huge pages wastes over an eighth */

/* ---- geometry ------------------------------------------------------------------------------------ */

static bool name_is_legal(const char *name)
{
	size_t length = strnlen(name, RB_NAME_MAX + 1);

	if (length == 0 || length > RB_NAME_MAX || name[0] == '.')
		return false;
	return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

/* Round up to a multiple of a power of two; callers keep sizes far enough from 2^64. */
static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) & ~(unit - 1);
}

static bool wants_huge_pages(const struct rb_header *header)
{
	return header->hugepages == RB_HUGE_ALWAYS ||
	       (header->hugepages == RB_HUGE_AUTO && header->slot_bytes >= HUGE_WORTH);
}

/* Offsets from counts. Used by the creator, and by attachers to check what a header claims. */
static int place(struct rb_header *header)
{
	uint64_t unit = wants_huge_pages(header) ? RB_HUGE_PAGE : header->page_bytes;
	uint64_t payload;

	if (header->slot_bytes > INT64_MAX / 2)
		return -EOVERFLOW;
	header->slot_stride = round_up(header->slot_bytes, unit);
	header->rows_at = RB_ROWS_AT;
	header->descs_at = header->rows_at + header->participants * sizeof(struct rb_row);
	header->payload_at = round_up(header->descs_at + header->slots * sizeof(struct rb_desc), unit);
	if (__builtin_mul_overflow(header->slot_stride, (uint64_t)header->slots, &payload) ||
	    __builtin_add_overflow(payload, header->payload_at, &header->total_bytes) ||
	    header->total_bytes > INT64_MAX)
		return -EOVERFLOW;
	return 0;
}

static bool counts_are_legal(const struct rb_header *header)
{
	return header->slots >= 1 && header->slots <= RB_SLOTS_MAX && header->participants >= 1 &&
	       header->participants <= RB_PARTICIPANTS_MAX && header->slot_bytes >= 1 && header->mode <= RB_BROADCAST &&
	       header->full <= RB_OVERWRITE && !(header->mode == RB_BROADCAST && header->full == RB_OVERWRITE) &&
	       header->hugepages <= RB_HUGE_ALWAYS && header->redeliver <= 1;
}

int rb_segment_plan(const struct rb_options *options, struct rb_header *header)
{
	*header = (struct rb_header){
		.magic = RB_MAGIC,
		.version = RB_LAYOUT_VERSION,
		.byte_order = RB_BYTE_ORDER,
		.wait_kind = RB_WAIT_KIND,
		.mode = options->mode,
		.full = options->full,
		.redeliver = options->redeliver,
		.hugepages = options->hugepages,
		.slots = options->slots,
		.participants = options->participants ? options->participants : 256,
		.page_bytes = (uint32_t)sysconf(_SC_PAGESIZE),
		.slot_bytes = options->slot_bytes,
	};
	if (!counts_are_legal(header) || (options->name && !name_is_legal(options->name)))
		return -EINVAL;
	if (options->name)
		strcpy(header->name, options->name); /* fits: its length was checked */
	return place(header);
}

/* FNV-1a, 64 bits (Fowler, Noll, Vo): notices damage, not malice; malice is met by place(). */
static uint64_t checksum(const struct rb_header *header)
{
	const unsigned char *byte = (const unsigned char *)header;
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < offsetof(struct rb_header, checksum); i++)
		sum = (sum ^ byte[i]) * UINT64_C(0x100000001b3);
	return sum;
}

/* ---- mapping ------------------------------------------------------------------------------------- */

struct rb_map rb_segment_at(unsigned char *base, const struct rb_header *header)
{
	return (struct rb_map){
		.base = base,
		.control = (struct rb_control *)(base + RB_CONTROL_AT),
		.rows = (struct rb_row *)(base + header->rows_at),
		.descs = (struct rb_desc *)(base + header->descs_at),
		.payload = base + header->payload_at,
		.header = *header,
		.seq_bits = header->mode == RB_BROADCAST ? 45 : 49,
	};
}

static int map_whole(int fd, const struct rb_header *header, struct rb_map *map)
{
	unsigned char *base;
	int rc = rb_pages_map(fd, header->total_bytes, wants_huge_pages(header), &base);

	if (rc == 0)
		*map = rb_segment_at(base, header);
	return rc;
}

void rb_segment_unmap(struct rb_map *map)
{
	munmap(map->base, map->header.total_bytes);
	map->base = NULL;
}

void rb_segment_populate(const struct rb_map *map, uint32_t slot)
{
	rb_pages_populate(rb_payload(map, slot), map->header.slot_stride);
}

/* ---- creation ------------------------------------------------------------------------------------ */

/* So few bytes come whole or not at all; a signal may be in the way while the machine starts. */
static int draw(void *out, size_t bytes)
{
	ssize_t got;

	do
		got = getrandom(out, bytes, 0);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : 0;
}

/* Plain stores: nobody else can see the segment yet. Zeroed words are FREE(0), zeroed rows are vacant. */
static int fill(struct rb_map *map)
{
	struct rb_header *header = &map->header;
	int rc;

	rc = draw(header->id, sizeof(header->id));
	if (rc < 0)
		return rc;
	header->created_ns = rb_clock_ns(CLOCK_REALTIME);
	header->checksum = checksum(header);
	memcpy(map->base, header, sizeof(*header));
	/* fill:A relaxed: nobody else can see the segment yet */
	atomic_init(&map->control->tickets, 1);
	for (int b = 0; b < (int)RB_READERS_MAX; b++)
		/* fill:B relaxed: nobody else can see the segment yet */
		atomic_init(&map->control->readers[b].start, UINT64_MAX);
	rc = rb_event_init(&map->control->ready);
	return rc < 0 ? rc : rb_event_init(&map->control->freed);
}

static int reserve_all(int fd, const struct rb_map *map)
{
	const struct rb_header *header = &map->header;

	if (wants_huge_pages(header))
		rb_pages_make_huge(fd, map->base, header->payload_at, header->total_bytes);
	return rb_pages_reserve(fd, 0, header->total_bytes);
}

static int reserve_first_pages(int fd, const struct rb_header *header)
{
	int rc = rb_pages_reserve(fd, 0, header->payload_at);

	for (uint32_t slot = 0; slot < header->slots && rc == 0; slot++)
		rc = rb_pages_reserve(fd, header->payload_at + slot * header->slot_stride, 1);
	return rc;
}

/* Only what is not there yet is asked of the system: it may have nothing left, and need nothing. */
int rb_segment_secure(const struct rb_map *map, int fd, uint32_t slot)
{
	uint64_t from = map->header.payload_at + slot * map->header.slot_stride, bytes = map->header.slot_stride;

	if (!rb_pages_are_there(fd, from, bytes)) {
		int rc = rb_pages_afford(bytes);
		if (rc < 0)
			return rc;
		if (wants_huge_pages(&map->header))
			rb_pages_make_huge(fd, map->base, from, from + bytes);
		rc = rb_pages_reserve(fd, from, bytes);
		if (rc < 0)
			return rc;
	}
	rb_segment_populate(map, slot);
	return 0;
}

/* Reserve, seal and fill a segment that is mapped; not a byte of it is touched before it is reserved. */
static int furnish(int fd, bool unsecured, struct rb_map *map)
{
	const struct rb_header *header = &map->header;
	bool named = header->name[0] != '\0';
	int rc = unsecured ? reserve_first_pages(fd, header) : reserve_all(fd, map);

	if (rc == 0 && !named && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		rc = -errno;
	RB_CRASH_POINT(create_reserved);
	return rc < 0 ? rc : fill(map);
}

int rb_segment_create(const struct rb_header *plan, bool unsecured, int *out_fd, struct rb_map *map)
{
	bool named = plan->name[0] != '\0';
	int rc = rb_pages_afford(plan->total_bytes);

	if (rc < 0)
		return rc;
	int fd = named ? open(SHM_DIR, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
		       : memfd_create("ringbuf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	RB_CRASH_POINT(create_opened);
	if (named && fchmod(fd, 0600) < 0) /* whatever the umask took away */
		rc = -errno;
	if (rc == 0 && ftruncate(fd, (off_t)plan->total_bytes) < 0)
		rc = -errno;
	if (rc == 0)
		rc = map_whole(fd, plan, map);
	if (rc == 0) {
		rc = furnish(fd, unsecured, map);
		if (rc < 0)
			rb_segment_unmap(map);
	}
	if (rc < 0) {
		close(fd);
		return rc;
	}
	RB_CRASH_POINT(create_filled);
	*out_fd = fd;
	return 0;
}

/* ---- names --------------------------------------------------------------------------------------- */

struct path {
	char text[sizeof(SHM_PREFIX) + RB_NAME_MAX];
};

static struct path path_of(const char *name)
{
	struct path path;

	snprintf(path.text, sizeof(path.text), SHM_PREFIX "%s", name);
	return path;
}

int rb_segment_publish(int fd, const char *name)
{
	char unnamed[32];

	snprintf(unnamed, sizeof(unnamed), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, unnamed, AT_FDCWD, path_of(name).text, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	RB_CRASH_POINT(create_linked);
	return 0;
}

/* Open what stands under a name, if it is a plain file of ours. O_NONBLOCK: a FIFO must not hold us up. */
static int open_own(const char *name, int *out_fd)
{
	struct stat stat;
	int fd;

	if (!name_is_legal(name))
		return -EINVAL;
	fd = open(path_of(name).text, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ELOOP ? -EACCES : -errno;
	int rc = fstat(fd, &stat) < 0 ? -errno : 0;
	if (rc == 0 && (!S_ISREG(stat.st_mode) || stat.st_uid != geteuid()))
		rc = -EACCES;
	if (rc < 0) {
		close(fd);
		return rc;
	}
	*out_fd = fd;
	return 0;
}

int rb_segment_open(const char *name, int *out_fd)
{
	struct stat stat;
	int rc = open_own(name, out_fd);

	if (rc < 0)
		return rc;
	if (fstat(*out_fd, &stat) < 0)
		rc = -errno;
	else if (stat.st_mode & 077)
		rc = -EACCES; /* others could write what we are about to trust */
	if (rc < 0)
		close(*out_fd);
	return rc;
}

int rb_segment_glimpse(const char *name, struct stat *stat, int *fd)
{
	struct path path;

	if (!name_is_legal(name))
		return -EINVAL;
	path = path_of(name);
	*fd = open(path.text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (*fd < 0)
		return (errno != EACCES && errno != ELOOP && errno != ENXIO) || lstat(path.text, stat) < 0 ? -errno : 0;
	int rc = fstat(*fd, stat) < 0 ? -errno : 0;
	if (rc < 0)
		close(*fd);
	return rc;
}

int rb_segment_unname(int fd, const char *name)
{
	struct path path = path_of(name);
	struct stat ours, theirs;

	if (fstat(fd, &ours) < 0)
		return -errno;
	if (lstat(path.text, &theirs) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino)
		return 0;
	return unlink(path.text) < 0 && errno != ENOENT ? -errno : 0;
}

int rb_segment_reclaim(const char *name)
{
	int fd;
	int rc = open_own(name, &fd);

	if (rc < 0)
		return rc;
	rc = rb_lock(fd, RB_LIFE_BYTE, F_WRLCK);
	if (rc == 0) {
		RB_CRASH_POINT(reclaim_locked);
		rc = rb_segment_unname(fd, name);
		RB_CRASH_POINT(reclaim_unlinked);
	}
	close(fd); /* and with it the lock */
	return rc == -EAGAIN ? -EBUSY : rc;
}

/* ---- attaching ----------------------------------------------------------------------------------- */

/* Is this private copy of a header one that we could have written, with `file_bytes` behind it? */
static int validate(const struct rb_header *header, uint64_t file_bytes)
{
	struct rb_header own = *header;

	if (memcmp(header->magic, RB_MAGIC, sizeof(header->magic)) != 0)
		return -EBADMSG;
	if (header->version != RB_LAYOUT_VERSION || header->byte_order != RB_BYTE_ORDER ||
	    header->wait_kind != RB_WAIT_KIND)
		return -EPROTO;
	if (header->checksum != checksum(header) || !counts_are_legal(header) || header->page_bytes < 4096 ||
	    (header->page_bytes & (header->page_bytes - 1)) != 0 || header->page_bytes > RB_HUGE_PAGE)
		return -EBADMSG;
	if (header->name[sizeof(header->name) - 1] != '\0' || (header->name[0] != '\0' && !name_is_legal(header->name)))
		return -EBADMSG;
	if (place(&own) < 0 || memcmp(&own, header, sizeof(own)) != 0 || own.total_bytes > file_bytes)
		return -EBADMSG;
	return 0;
}

static int read_header(int fd, struct rb_header *header, uint64_t *file_bytes)
{
	struct stat stat;

	if (fstat(fd, &stat) < 0)
		return -errno;
	if (!S_ISREG(stat.st_mode))
		return -EBADMSG;
	*file_bytes = (uint64_t)stat.st_size;
	ssize_t got = pread(fd, header, sizeof(*header), 0);
	if (got < 0)
		return -errno;
	return got == sizeof(*header) ? 0 : -EBADMSG;
}

int rb_segment_check(int fd, struct rb_header *header)
{
	uint64_t file_bytes = 0; /* gcc -O3 does not see that read_header() sets it or fails */
	int rc = read_header(fd, header, &file_bytes);

	if (rc == 0)
		rc = validate(header, file_bytes);
	/* An anonymous segment that can still shrink is a trap: a touch behind its end would be SIGBUS. */
	if (rc == 0 && header->name[0] == '\0') {
		int seals = fcntl(fd, F_GET_SEALS);
		if (seals < 0 || !(seals & F_SEAL_SHRINK))
			rc = -EBADMSG;
	}
	return rc;
}

int rb_segment_map(int fd, struct rb_map *map)
{
	struct rb_header header;
	int rc = rb_segment_check(fd, &header);

	return rc < 0 ? rc : map_whole(fd, &header, map);
}

void rb_segment_info(const struct rb_header *header, struct rb_info *out)
{
	*out = (struct rb_info){
		.slot_bytes = header->slot_bytes,
		.slot_stride = header->slot_stride,
		.total_bytes = header->total_bytes,
		.slots = header->slots,
		.participants = header->participants,
		.mode = (enum rb_mode)header->mode,
		.full = (enum rb_full)header->full,
		.redeliver = header->redeliver,
		.name = header->name[0] != '\0' ? header->name : NULL,
	};
}

int rb_peek_version(int fd, uint32_t *version)
{
	struct rb_header header;
	uint64_t file_bytes = 0; /* gcc -O3 does not see that read_header() sets it or fails */
	int rc = read_header(fd, &header, &file_bytes);

	if (rc < 0)
		return rc;
	if (memcmp(header.magic, RB_MAGIC, sizeof(header.magic)) != 0)
		return -EBADMSG;
	*version = header.version;
	return 0;
}
