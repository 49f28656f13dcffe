/* Where the kernel can make huge pages of shared memory, a claimed slot of a ring that asks for them lies in one. */
#include "t.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define HUGE_PAGE ((size_t)2 << 20)

/* Kilobytes of shared memory that this process has mapped by huge pages. */
static long huge_kib(void)
{
	FILE *smaps = fopen("/proc/self/smaps", "re");
	char line[256];
	long kib, sum = 0;

	if (!smaps)
		t_skip("no /proc/self/smaps");
	while (fgets(line, sizeof(line), smaps))
		if (sscanf(line, "ShmemPmdMapped: %ld", &kib) == 1)
			sum += kib;
	fclose(smaps);
	return sum;
}

static void skip_without_huge_pages(void)
{
	int fd = memfd_create("probe", MFD_CLOEXEC);
	unsigned char *reserved = mmap(NULL, 2 * HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *at = reserved + (-(uintptr_t)reserved & (HUGE_PAGE - 1));

	t_check(fd >= 0 && reserved != MAP_FAILED);
	t_equal(posix_fallocate(fd, 0, HUGE_PAGE), 0);
	t_check(mmap(at, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at);
	if (madvise(at, HUGE_PAGE, MADV_COLLAPSE) < 0 || huge_kib() == 0)
		t_skip("this kernel makes no huge pages of shared memory, or has none left");
	munmap(reserved, 2 * HUGE_PAGE);
	close(fd);
}

int main(void)
{
	skip_without_huge_pages();
	long before = huge_kib();
	rb_ring *ring = t_create(.slots = 2, .slot_bytes = HUGE_PAGE, .hugepages = RB_HUGE_ALWAYS);
	rb_ring *other = t_attach(ring);
	struct rb_slot slot = t_claim(ring, 1);
	t_equal((uintptr_t)slot.data % HUGE_PAGE, 0);
	t_check(huge_kib() - before >= (long)(HUGE_PAGE / 1024));
	memset(slot.data, 7, HUGE_PAGE);
	t_commit(ring, slot);

	/* Another mapping of the same memory is aligned as well, and can use the page. */
	struct rb_slot taken;
	t_equal(rb_take(other, NULL, t_soon(), &taken), 0);
	t_equal((uintptr_t)taken.data % HUGE_PAGE, 0);
	t_equal(((unsigned char *)taken.data)[HUGE_PAGE - 1], 7);
	t_equal(rb_release(other, &taken), 0);
	rb_detach(other);
	rb_detach(ring);
	return 0;
}
