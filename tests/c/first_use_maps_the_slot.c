/* Claiming a slot maps its pages, all at once and writable, in each process that does; what nobody writes to stays unmapped. */
#include "t.h"

#include <sys/resource.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#define PAGES 64
#define MANY 66 /* slots: more than one word has bits for */

static rb_ring *ring;
static size_t page;

/* How many pages at this address are in our page tables? */
static int present(const void *data)
{
	uint64_t entries[PAGES];
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), n = 0;

	if (fd < 0)
		t_skip("no /proc/self/pagemap");
	t_equal(pread(fd, entries, sizeof(entries), (off_t)((uintptr_t)data / page * 8)), sizeof(entries));
	close(fd);
	for (int i = 0; i < PAGES; i++)
		n += (int)(entries[i] >> 63);
	return n;
}

#ifndef __SANITIZE_THREAD__
static long minor_faults(void)
{
	struct rusage usage;

	t_equal(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_minflt;
}
#endif

static void claim_in_a_child(void *arg)
{
	const struct rb_slot *parents = arg;

	t_equal(present(parents->data), 0); /* shared memory is not inherited page by page */
	struct rb_slot slot = t_claim(ring, 1);
	t_equal(slot.index, parents->index);
	t_equal(present(slot.data), PAGES);
	t_equal(rb_commit(ring, &slot, 0), 0);
	rb_detach(ring);
}

static void each_of_many(void)
{
	ring = t_create(.slots = MANY, .slot_bytes = PAGES * page, .hugepages = RB_HUGE_NEVER);
	for (int i = 0; i < MANY; i++)
		t_equal(present(t_claim(ring, 1).data), PAGES);
	rb_detach(ring);
}

int main(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	void *probe = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (madvise(probe, page, MADV_POPULATE_READ) < 0)
		t_skip("this kernel cannot populate pages");

	ring = t_create(.slots = 2, .slot_bytes = PAGES * page, .hugepages = RB_HUGE_NEVER);
	rb_ring *consumer = t_attach(ring);
	struct rb_slot slot = t_claim(ring, 1), taken;
	t_equal(present(slot.data), PAGES);
#ifndef __SANITIZE_THREAD__ /* its shadow memory faults as well */
	long faults = minor_faults();
	memset(slot.data, 1, PAGES * page);
	t_check(minor_faults() - faults < PAGES / 2); /* mapped for writing too: otherwise a fault per page */
#endif
	const unsigned char *other = (const unsigned char *)slot.data + (slot.index == 0 ? 1 : -1) * (ptrdiff_t)(PAGES * page);
	t_equal(present(other), 0);
	t_equal(rb_abort(ring, &slot), 0);

	t_ends_well(t_child(claim_in_a_child, &slot));
	t_equal(rb_take(consumer, NULL, t_soon(), &taken), 0);
	t_check(present(taken.data) < PAGES / 2); /* a fault on the descriptors before it may take in some */
	t_equal(rb_release(consumer, &taken), 0);
	rb_detach(consumer);
	rb_detach(ring);
	each_of_many();
	return 0;
}
