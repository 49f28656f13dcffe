/* A ring made unsecured takes memory slot by slot, when rb_secure() asks; where there is none, the slot stays claimed. */
#include "t.h"

#include <sys/resource.h>

#define SLOTS 3
#define MIB (UINT64_C(1) << 20)

static uint64_t memory_of(const rb_ring *ring)
{
	struct stat stat;

	t_equal(fstat(rb_fd(ring), &stat), 0);
	return (uint64_t)stat.st_blocks * 512;
}

static rb_ring *t_attach_unsecured(const rb_ring *ring)
{
	rb_ring *other = t_attach(ring);

	rb_is_unsecured(other);
	return other;
}

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	t_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	t_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void one_slot_after_another(uint64_t slot_bytes, enum rb_hugepages hugepages)
{
	rb_ring *ring = t_create(.slots = SLOTS, .slot_bytes = slot_bytes, .hugepages = hugepages, .unsecured = true);
	struct rb_info info;

	snprintf(t_context, sizeof(t_context), "slots of %llu bytes: ", (unsigned long long)slot_bytes);
	rb_get_info(ring, &info);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), control = info.total_bytes - SLOTS * info.slot_stride;
	t_check(memory_of(ring) <= control + SLOTS * page);

	rb_ring *worker = t_attach_unsecured(ring), *other = t_attach_unsecured(ring);
	uint64_t before = memory_of(ring);
	struct rb_slot slot = t_claim(worker, 1);
	*(char *)slot.data = 7;
	t_equal(memory_of(ring), before); /* a claim alone takes nothing */

	t_equal(rb_secure(worker, &slot), 0);
	t_equal(memory_of(ring), before + info.slot_stride - page);
	t_equal(*(char *)slot.data, 7);
	memset(slot.data, 8, slot_bytes);
	t_equal(rb_secure(worker, &slot), 0);
	t_equal(rb_secure(other, &slot), -ESTALE); /* another's */
	t_equal(rb_commit(worker, &slot, slot_bytes), 0);
	struct rb_slot taken;
	t_equal(rb_take(ring, NULL, t_soon(), &taken), 0);
	t_equal(((unsigned char *)taken.data)[slot_bytes - 1], 8);
	t_equal(rb_release(ring, &taken), 0);

	/* The memory stays, also for others: no more is taken for a slot that has it. */
	before = memory_of(ring);
	slot = t_claim(other, 1);
	t_equal(slot.index, taken.index);
	t_equal(rb_secure(other, &slot), 0);
	t_equal(memory_of(ring), before);

	struct rb_slot rest[SLOTS - 1];
	for (int i = 0; i < SLOTS - 1; i++) {
		rest[i] = t_claim(worker, 1);
		t_equal(rb_secure(worker, &rest[i]), 0);
	}
	t_check(memory_of(ring) >= info.total_bytes);
	rb_detach(worker);
	rb_detach(other);
	rb_detach(ring);
}

static void no_memory_for_it(void)
{
	rb_ring *ring = t_create(.slots = SLOTS, .slot_bytes = MIB, .hugepages = RB_HUGE_NEVER, .unsecured = true);
	struct rb_slot there = t_claim(ring, 1), not_there = t_claim(ring, 2);

	*t_context = '\0';
	t_equal(rb_secure(ring, &there), 0);
	limit_files(MIB / 2);
	t_equal(rb_secure(ring, &not_there), -EFBIG);
	t_equal(rb_commit(ring, &not_there, 1), 0); /* the first page is there always */
	t_equal(rb_abort(ring, &there), 0);
	rb_ring *other = t_attach_unsecured(ring);
	struct rb_slot slot = t_claim(other, 3);
	t_equal(slot.index, there.index);
	t_equal(rb_secure(other, &slot), 0); /* what is there needs nothing of the system */

	limit_files(RLIM_INFINITY);
	struct rb_slot taken;
	t_equal(rb_take(ring, NULL, t_soon(), &taken), 0);
	t_equal(rb_release(ring, &taken), 0);
	not_there = t_claim(ring, 4);
	t_equal(not_there.index, taken.index);
	t_equal(rb_secure(ring, &not_there), 0);
	rb_detach(other);
	rb_detach(ring);
}

int main(void)
{
	one_slot_after_another(4097, RB_HUGE_NEVER);
	one_slot_after_another(10 * MIB, RB_HUGE_NEVER);
	one_slot_after_another(4 * MIB, RB_HUGE_ALWAYS);
	no_memory_for_it();
	return 0;
}
