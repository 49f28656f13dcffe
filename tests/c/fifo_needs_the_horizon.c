/* A take that is overtaken in the middle of its scan, by two commits one after the other, still gets the first of the two.
 *
 * The scan is stopped where the second page of slot words begins: that page is made inaccessible in this
 * mapping, and the signal handler commits through another one, first to a slot that the scan has passed. */
#include "t.h"

#define SLOTS 256 /* 64 words to a page */

static rb_ring *ring, *other;
static struct rb_slot passed, ahead;
static void *guarded;
static long page;
static volatile sig_atomic_t stops;

static void commit_both(int signal_number, siginfo_t *info, void *context)
{
	(void)signal_number;
	(void)context;
	if (stops++ > 0 || info->si_addr < guarded || (char *)info->si_addr >= (char *)guarded + page)
		_exit(2);
	rb_commit(other, &passed, 16);
	rb_commit(other, &ahead, 16);
	mprotect(guarded, (size_t)page, PROT_READ | PROT_WRITE);
}

/* Where the page of descriptors that holds `index` lies in the mapping of a handle, known by one of its payloads. */
static void *page_of_desc(const struct rb_map *map, const struct rb_slot *anchor, uint32_t index)
{
	unsigned char *base = (unsigned char *)anchor->data - anchor->index * map->header.slot_stride - map->header.payload_at;

	return base + (map->header.descs_at + index * sizeof(struct rb_desc)) / (uint64_t)page * (uint64_t)page;
}

int main(void)
{
	struct rb_slot slots[SLOTS], anchor;
	struct sigaction action = { .sa_sigaction = commit_both, .sa_flags = SA_SIGINFO };

	page = sysconf(_SC_PAGESIZE);
	if (page > 4096)
		t_skip("pages are so large that all slot words lie on one");
	ring = t_queue(SLOTS);
	other = t_attach(ring);
	struct rb_map map = t_map(ring);

	anchor = t_claim(ring, 0);
	t_equal(rb_abort(ring, &anchor), 0);
	for (int i = 0; i < SLOTS; i++) {
		struct rb_slot slot = t_claim(other, (uint64_t)i);
		slots[slot.index] = slot;
	}
	passed = slots[0];
	ahead = slots[SLOTS - 1];
	t_fill(&passed);
	t_fill(&ahead);

	guarded = page_of_desc(&map, &anchor, SLOTS - 1);
	t_check(page_of_desc(&map, &anchor, 0) != guarded);
	t_equal(sigaction(SIGSEGV, &action, NULL), 0);
	t_equal(mprotect(guarded, (size_t)page, PROT_NONE), 0);
	struct rb_slot slot = t_take(ring);
	t_equal(stops, 1);
	t_equal(slot.tag, passed.tag);
	t_equal(t_get(ring), ahead.tag);
	t_unmap(&map);
	rb_detach(other);
	rb_detach(ring);
	return 0;
}
