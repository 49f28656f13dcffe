/* See world.h. */
#define _GNU_SOURCE
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <linux/futex.h>
#include <sys/syscall.h>

#define FD 1000 /* the first fiber's "descriptor" */

struct world world;
struct rb_map world_map;
struct rb_member world_members[WORLD_ROWS_MAX];

void world_prepare(uint32_t slots, uint32_t rows, enum rb_mode mode, enum rb_full full, bool redeliver)
{
	memset(&world, 0, sizeof(world));
	world_map = (struct rb_map){
		.base = (unsigned char *)&world,
		.control = &world.control,
		.rows = world.rows,
		.descs = world.descs,
		.payload = (unsigned char *)world.payload,
		.header = { .slots = slots, .participants = rows, .mode = mode, .full = full, .redeliver = redeliver,
			    .slot_bytes = sizeof(world.payload[0]), .slot_stride = sizeof(world.payload[0]) },
		.seq_bits = mode == RB_BROADCAST ? 45 : 49,
	};
	world.control.tickets = 1;
	for (uint32_t r = 0; r < rows; r++) {
		world.rows[r].joined = 1;
		world.rows[r].pid = 100 + r;
		world.locks[r] = r + 1;
		world_members[r] = (struct rb_member){ .live = FD + (int)r, .row = r };
	}
	for (uint32_t f = 0; f < SCHED_FIBERS_MAX; f++) {
		world.selves[f] = (struct rb_self){ .map = &world_map, .row = f, .reader = RB_NO_READER };
		if (mode == RB_BROADCAST)
			world.selves[f].held = world.held[f];
	}
	world.populated = UINT64_MAX; /* nothing to fault in */
	for (uint32_t f = 0; f < SCHED_FIBERS_MAX; f++)
		world.rings[f] = (struct rb_ring){ .self = world.selves[f], .map = world_map, .member = world_members[f], .joined = 1,
						   .populated = (_Atomic uint64_t *)&world.populated };
	sched_memory(&world, sizeof(world));
}

/* ---- the kernel's part ------------------------------------------------------------------------------------ */

static int checks_row(void)
{
	return (int)world_map.header.participants - 1;
}

int step_fcntl(int fd, int command, ...);
pid_t step_getpid(void);
int step_clock_gettime(clockid_t clock, struct timespec *now);
long step_syscall(long number, ...);

int step_fcntl(int fd, int command, ...)
{
	va_list args;

	va_start(args, command);
	const struct flock *wish = va_arg(args, const struct flock *);
	va_end(args);
	int64_t row = wish->l_start - RB_LOCKS;
	uint64_t us = (uint64_t)(fd - FD) + 1;

	sched_check(command == F_OFD_SETLK && row >= 0 && row < world_map.header.participants && wish->l_len == 1,
		    "a lock that nobody knows");
	uint64_t *holder = &world.locks[row];
	sched_step_at_lock(holder, wish->l_type == F_UNLCK ? "unlock" : "lock");
	bool granted = *holder == 0 || *holder == us;
	sched_saw(granted);
	if (!granted) {
		errno = EAGAIN;
		return wish->l_type == F_UNLCK ? 0 : -1;
	}
	sched_put(holder, sizeof(*holder), wish->l_type == F_UNLCK ? 0 : us);
	return 0;
}

void check_died(int fiber)
{
	for (uint32_t r = 0; r < world_map.header.participants; r++)
		if (world.locks[r] == (uint64_t)fiber + 1)
			sched_put(&world.locks[r], sizeof(world.locks[r]), 0);
	if (world.asleep[fiber])
		sched_put(&world.asleep[fiber], sizeof(world.asleep[fiber]), 0);
}

pid_t step_getpid(void)
{
	return 100 + sched_me();
}

int step_clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	*now = (struct timespec){ .tv_sec = 1000 }; /* time stands still: whoever sleeps waits to be woken */
	return 0;
}

#define WOKEN(fiber) (4u << (fiber)) /* event */

/* FUTEX_WAIT_BITSET looks at the word and falls asleep in one step; FUTEX_WAKE wakes all. */
long step_syscall(long number, ...)
{
	va_list args;

	va_start(args, number);
	uint32_t *word = va_arg(args, uint32_t *);
	int what = va_arg(args, int);
	uint32_t value = va_arg(args, uint32_t);
	va_end(args);
	int me = sched_me();

	sched_check(number == SYS_futex, "a system call that nobody knows");
	if (what == FUTEX_WAKE) {
		sched_step("futex wake");
		for (int f = 0; f < SCHED_FIBERS_MAX; f++) {
			if (world.asleep[f] != (uint64_t)((unsigned char *)word - (unsigned char *)&world) + 1)
				continue;
			sched_put(&world.asleep[f], sizeof(world.asleep[f]), 0);
			sched_event(WOKEN(f));
		}
		return 0;
	}
	sched_check(what == FUTEX_WAIT_BITSET && me >= 0, "a futex call that nobody knows");
	sched_step("futex wait");
	uint64_t found = sched_get(word, sizeof(*word));
	sched_saw(found);
	if (found != value) {
		errno = EAGAIN;
		return -1;
	}
	sched_look();
	sched_put(&world.asleep[me], sizeof(world.asleep[me]), (uint64_t)((unsigned char *)word - (unsigned char *)&world) + 1);
	sched_wait(WOKEN(me));
	return 0;
}

bool world_slice(void)
{
	bool any = false;

	for (int f = 0; f < SCHED_FIBERS_MAX; f++) {
		if (!world.asleep[f])
			continue;
		any = true;
		sched_put(&world.asleep[f], sizeof(world.asleep[f]), 0);
		sched_event(WOKEN(f));
	}
	return any;
}

/* ---- checks ------------------------------------------------------------------------------------------------ */

#define WITHIN(at, first, last) \
	((uintptr_t)(at) >= (uintptr_t)&(first) && (uintptr_t)(at) < (uintptr_t)(&(last) + 1))

bool check_is_private(const volatile void *at)
{
	if (WITHIN(at, world.selves[0], world.held[SCHED_FIBERS_MAX - 1]))
		return true;
	for (uint32_t r = 0; r < world_map.header.participants; r++)
		if (WITHIN(at, world.rows[r].published, world.rows[r].wait_ns))
			return true;
	return false;
}

/* A slot's record is its owner's, and its reaper's; filtering takes, which look early, are not among our cases. */
bool check_is_quiet(const volatile void *at)
{
	if (!WITHIN(at, world.descs[0], world.descs[WORLD_SLOTS_MAX - 1]))
		return false;
	return ((uintptr_t)at - (uintptr_t)world.descs) % sizeof(world.descs[0]) != 0;
}

int world_slot_of(const volatile void *at)
{
	for (uint32_t i = 0; i < world_map.header.slots; i++)
		if (at == &world.descs[i].word)
			return (int)i;
	return -1;
}

static bool names_row(uint64_t word, uint32_t row)
{
	bool named = rb_word_state(word) == RB_WRITING || rb_word_state(word) == RB_READING;

	return named && rb_word_who(&world_map, word) == row + 1;
}

void world_check_word(int slot, uint64_t old, uint64_t new)
{
	uint64_t seq = rb_word_seq(&world_map, new);
	uint32_t who = rb_word_who(&world_map, new);

	sched_check(seq < world.control.tickets, "slot %d: ticket %d was never drawn", slot, (int)seq);
	sched_check(seq >= rb_word_seq(&world_map, old), "slot %d: an old word comes back", slot);
	switch (rb_word_state(new)) {
	case RB_FREE:
		sched_check(who == 0, "slot %d: free, yet somebody's", slot);
		break;
	case RB_READY:
		sched_check((who != 0) == (world_map.header.mode == RB_BROADCAST), "slot %d: ready for %x", slot, who);
		break;
	case RB_WRITING:
	case RB_READING:
		sched_check(who > 0 && who <= world_map.header.participants && world.rows[who - 1].joined,
			    "slot %d: its owner %u is not there", slot, who);
		break;
	default:
		sched_fail("slot %d: no such state", slot);
	}
}

static uint32_t lost_in_rows(void)
{
	uint64_t lost = 0;

	for (uint32_t r = 0; r < world_map.header.participants; r++)
		lost += world.rows[r].lost;
	return (uint32_t)lost;
}

void world_check_rest(const volatile void *at, uint64_t lost)
{
	struct rb_lost list[RB_LOST_LOG];

	for (uint32_t r = 0; r < world_map.header.participants; r++) {
		if (at == &world.rows[r].joined && !world.rows[r].joined)
			for (uint32_t i = 0; i < world_map.header.slots; i++)
				sched_check(!names_row(world.descs[i].word, r), "row %u is given up, slot %u names it", r, i);
		if (at == &world.rows[r].lost)
			sched_check(lost_in_rows() <= lost, "%u losses are counted, there were %d", lost_in_rows(), (int)lost);
	}
	if (WITHIN(at, world.control.log[0], world.control.log[RB_LOST_LOG - 1]))
		sched_check(rb_stats_losses(&world_map, list, RB_LOST_LOG) <= (int)lost,
			    "more losses are listed than there were (%d)", (int)lost);
}

bool world_reaps(int fiber)
{
	int me = sched_me() < 0 ? checks_row() : sched_me();

	return fiber < checks_row() && fiber >= 0 && sched_is_dead(fiber) && world.locks[fiber] == (uint64_t)me + 1;
}

bool world_reap(void)
{
	bool any = false;

	for (int f = 0; f < checks_row(); f++)
		any |= sched_is_dead(f) && world.rows[f].joined;
	if (any)
		rb_recover_dead(&world_map, &world_members[checks_row()]);
	return any;
}

void world_check_losses(uint32_t lost, uint32_t tagged)
{
	struct rb_lost list[RB_LOST_LOG];
	int count = rb_stats_losses(&world_map, list, RB_LOST_LOG);
	int unknown = __builtin_popcount(lost & ~tagged);

	for (int f = 0; f < checks_row(); f++) {
		sched_check(!sched_is_dead(f) || !world.rows[f].joined, "a dead one is not reaped");
		sched_check(world.rows[f].grave_word == 0, "a burial is not finished");
	}
	sched_check((int)lost_in_rows() == __builtin_popcount(lost), "%u losses are counted, there were %d", lost_in_rows(),
		    __builtin_popcount(lost));
	sched_check(count == __builtin_popcount(lost), "%d losses are listed, there were %d", count, __builtin_popcount(lost));
	for (int i = 0; i < count; i++) {
		uint64_t tag = list[i].tag;

		if (tag == RB_TAG_UNKNOWN) {
			sched_check(unknown-- > 0, "a lost message's tag is not known, though it was written");
			continue;
		}
		sched_check(tag <= WORLD_MESSAGES_MAX && lost & tagged & 1u << tag, "message %d is listed as lost", (int)tag);
		lost &= ~(1u << tag);
	}
}

/* ---- what all programs do ------------------------------------------------------------------------------ */

void world_reaper(int me)
{
	for (;;) {
		sched_mark(0);
		sched_look();
		rb_recover_dead(&world_map, &world_members[me]);
		sched_mark(0);
		sched_wait(SCHED_DEATH);
	}
}

static uint64_t *touch(int slot, int part, uint64_t word)
{
	sched_check(check_holds(sched_me(), world.descs[slot].word, word), "slot %d is touched by one who does not hold it", slot);
	return &world.payload[slot][part];
}

void world_fill(int slot, uint64_t tag, uint64_t word)
{
	for (int part = 0; part < 2; part++) {
		sched_step("filling");
		sched_put(touch(slot, part, word), sizeof(uint64_t), part ? ~tag : tag);
	}
}

void world_verify(int slot, uint64_t tag, uint64_t word)
{
	for (int part = 0; part < 2; part++) {
		sched_step("reading");
		uint64_t value = *touch(slot, part, word);
		sched_saw(value);
		sched_check(value == (part ? ~tag : tag), "message %d is torn or another", (int)tag);
	}
}
