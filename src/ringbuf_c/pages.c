/* See pages.h. */
#define _GNU_SOURCE
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ /* Linux 5.14; unknown to glibc 2.36 */
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

#define STRIDE_BYTES (4 * RB_HUGE_PAGE)
/* Making huge pages stops when it is slower than this, a fifth of the usual speed. */
#define LEAST_BYTES_PER_NS 1                 /* 1 GB/s */
#define GRACE_NS INT64_C(20000000)

/* What the machine could still give, memory and swap; UINT64_MAX where the kernel does not say. */
static uint64_t available_bytes(void)
{
	FILE *meminfo = fopen("/proc/meminfo", "re");
	char line[128];
	uint64_t kib, memory = UINT64_MAX, swap = 0;

	if (!meminfo)
		return UINT64_MAX;
	while (fgets(line, sizeof(line), meminfo)) {
		if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
			memory = kib * 1024;
		else if (sscanf(line, "SwapFree: %" SCNu64, &kib) == 1)
			swap = kib * 1024;
	}
	fclose(meminfo);
	return memory == UINT64_MAX ? memory : memory + swap;
}

int rb_pages_afford(uint64_t bytes)
{
	struct rlimit limit;

	if (bytes > available_bytes())
		return -ENOMEM;
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
		return -EFBIG;
	return 0;
}

/* File offset and address of a huge page agree modulo its size, so take more address space than needed, map at the
 * first fitting address in it, and give back what is left over at both ends. */
static unsigned char *map_aligned(int fd, uint64_t bytes)
{
	uint64_t reserved_bytes = bytes + RB_HUGE_PAGE;
	unsigned char *reserved = mmap(NULL, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (reserved == MAP_FAILED)
		return MAP_FAILED;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	unsigned char *base = reserved + (-(uintptr_t)reserved & (RB_HUGE_PAGE - 1));
	unsigned char *base_end = base + (bytes + page - 1) / page * page;
	unsigned char *end = reserved + reserved_bytes;

	if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int why = errno;
		munmap(reserved, reserved_bytes);
		errno = why;
		return MAP_FAILED;
	}
	if (base > reserved)
		munmap(reserved, (size_t)(base - reserved));
	if (end > base_end)
		munmap(base_end, (size_t)(end - base_end));
	return base;
}

int rb_pages_map(int fd, uint64_t bytes, bool huge, unsigned char **base)
{
	*base = huge ? map_aligned(fd, bytes) : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return *base == MAP_FAILED ? -errno : 0;
}

static int reserve(int fd, uint64_t from, uint64_t bytes)
{
	int rc;

	do
		rc = posix_fallocate(fd, (off_t)from, (off_t)bytes);
	while (rc == EINTR);
	return -rc;
}

/* In strides: a signal makes the kernel give up a reservation and undo it, and one that takes longer than the time
 * between two signals (a profiler's timer) would never be done. */
int rb_pages_reserve(int fd, uint64_t from, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += STRIDE_BYTES) {
		int rc = reserve(fd, from + at, bytes - at < STRIDE_BYTES ? bytes - at : STRIDE_BYTES);
		if (rc < 0)
			return rc;
	}
	return 0;
}

bool rb_pages_are_there(int fd, uint64_t from, uint64_t bytes)
{
	return lseek(fd, (off_t)from, SEEK_HOLE) >= (off_t)(from + bytes);
}

/* One small page is reserved where a huge one shall be, then the kernel is asked to collapse the range around it: it
 * zeroes a huge page at once, in a fraction of the time of reserving 512 small ones, and has next to nothing to
 * move. (MADV_HUGEPAGE would be simpler; by default the kernel grants it to private memory only.) */
static int make_huge(int fd, unsigned char *base, uint64_t from, uint64_t to)
{
	for (uint64_t at = from; at < to; at += RB_HUGE_PAGE) {
		int rc = reserve(fd, at, 1);
		if (rc < 0)
			return rc;
	}
	return madvise(base + from, to - from, MADV_COLLAPSE);
}

/* In strides, because each call has a price of its own; and no further once it is slow: where memory is fragmented the
 * kernel has to move others' pages to make room, which can take seconds. */
void rb_pages_make_huge(int fd, unsigned char *base, uint64_t from, uint64_t to)
{
	int64_t slow_ns = rb_clock_ns(CLOCK_MONOTONIC) + GRACE_NS;

	for (uint64_t at = from; at < to; at += STRIDE_BYTES) {
		uint64_t end = to - at < STRIDE_BYTES ? to : at + STRIDE_BYTES;
		if (make_huge(fd, base, at, end) < 0)
			return;
		slow_ns += (int64_t)((end - at) / LEAST_BYTES_PER_NS);
		if (rb_clock_ns(CLOCK_MONOTONIC) > slow_ns)
			return;
	}
}

/* Reading maps a page as writable as writing would, and sixteen small ones to a fault. */
void rb_pages_populate(unsigned char *at, uint64_t bytes)
{
	madvise(at, bytes, MADV_POPULATE_READ);
}
