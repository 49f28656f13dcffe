/* In every schedule of producers and consumers that call the library as a program does, and sleep, nobody sleeps on when there
 * is something for him to do; only after a death may it take a slice of time. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "world.h"

enum option { FINISH = 1, ABORT = 2, TWO_EACH = 4, TWO_SLOTS = 8 };

#define SLICES_MAX 3 /* to be waited out after a death */

static struct {
	uint64_t taken;  /* set of messages */
	uint64_t slices;
} past;

static bool has(enum option option)
{
	return sched_case->option & option;
}

static void prepare(void)
{
	int fibers = 0;

	while (fibers < SCHED_FIBERS_MAX && sched_case->fibers[fibers].run)
		fibers++;
	world_prepare(has(TWO_SLOTS) ? 2 : 1, (uint32_t)fibers + 1, RB_QUEUE, RB_BLOCK, true);
	memset(&past, 0, sizeof(past));
	sched_remember(&past, sizeof(past));
}

static void producer(int me)
{
	int each = has(TWO_EACH) ? 2 : 1;

	for (int k = 0; k < each; k++) {
		struct rb_slot slot;

		sched_mark((uint64_t)k);
		int rc = rb_claim(&world.rings[me], (uint64_t)(me * each + k + 1), RB_ANY, RB_FOREVER, &slot);
		if (rc == -EPIPE)
			return;
		sched_check(rc == 0, "claim says %d", rc);
		sched_mark((uint64_t)k << 32 | slot.index);
		rc = has(ABORT) ? rb_abort(&world.rings[me], &slot) : rb_commit(&world.rings[me], &slot, 16);
		sched_check(rc == 0, "commit says %d", rc);
	}
}

static void consumer(int me)
{
	for (int k = 0; has(FINISH) || k < (has(TWO_EACH) ? 2 : 1); k++) {
		struct rb_slot slot;

		sched_mark(has(FINISH) ? 0 : (uint64_t)k);
		int rc = rb_take(&world.rings[me], NULL, RB_FOREVER, &slot);
		if (rc == -EPIPE)
			return;
		sched_check(rc == 0, "take says %d", rc);
		past.taken |= UINT64_C(1) << slot.tag;
		sched_mark((uint64_t)k << 32 | slot.index);
		rc = rb_release(&world.rings[me], &slot);
		sched_check(rc == 0, "release says %d", rc);
	}
}

static void finisher(int me)
{
	rb_finish(&world.rings[me]);
}

bool check_holds(int me, uint64_t word, uint64_t held)
{
	(void)me;
	return word == held;
}

void check_wrote(volatile void *at, uint64_t old, uint64_t new)
{
	int slot = world_slot_of(at);

	if (slot >= 0)
		world_check_word(slot, old, new);
}

static bool anybody_died(void)
{
	bool any = false;

	for (int f = 0; f < SCHED_FIBERS_MAX; f++)
		any |= sched_is_dead(f);
	return any;
}

bool check_settle(void)
{
	if (!anybody_died() || past.slices >= SLICES_MAX)
		return false;
	past.slices++;
	bool reaped = world_reap();
	return world_slice() || reaped;
}

void check_end(void)
{
	bool died = anybody_died(), free = false, ready = false, consumers = false;

	for (uint32_t i = 0; i < world_map.header.slots; i++) {
		free |= rb_word_state(world.descs[i].word) == RB_FREE;
		ready |= rb_word_state(world.descs[i].word) == RB_READY;
	}
	for (int f = 0; f < SCHED_FIBERS_MAX && sched_case->fibers[f].run; f++)
		consumers |= sched_case->fibers[f].run == consumer && !sched_is_dead(f) && !sched_is_done(f);
	for (int f = 0; f < SCHED_FIBERS_MAX && sched_case->fibers[f].run; f++) {
		if (sched_is_dead(f) || sched_is_done(f))
			continue;
		sched_check(died, "%s sleeps for ever", sched_case->fibers[f].name);
		sched_check(!world.control.finished, "%s sleeps, and the ring is finished", sched_case->fibers[f].name);
		if (sched_case->fibers[f].run == producer)
			sched_check(!free && !consumers, "%s sleeps, and a slot is free or will be", sched_case->fibers[f].name);
		else
			sched_check(!ready, "%s sleeps, and a message is ready", sched_case->fibers[f].name);
	}
}

#define PRODUCER(n) { "producer " #n, producer, true }
#define CONSUMER(n) { "consumer " #n, consumer, true }
#define FINISHER { "finisher", finisher, true }
#define USUAL { { 2, 0, 0, 0 }, { 1, 1, 1, 0 } }
#define THOROUGH { { 3, 0, 1, 0 }, { 2, 1, 0, 0 }, { 1, 2, 2, 200000 } }

static const struct sched_case cases[] = {
	{ "one-each", prepare, { PRODUCER(1), PRODUCER(2), CONSUMER(1), CONSUMER(2) }, 0, USUAL, THOROUGH },
	{ "two-each", prepare, { PRODUCER(1), CONSUMER(1) }, TWO_EACH, { { 3, 1, 1, 0 } }, { { 5, 1, 1, 0 } } },
	{ "two-slots", prepare, { PRODUCER(1), PRODUCER(2), CONSUMER(1), CONSUMER(2) }, TWO_EACH | TWO_SLOTS,
	  { { 1, 1, 0, 0 } }, { { 2, 0, 1, 0 }, { 1, 1, 1, 0 } } },
	{ "finish", prepare, { PRODUCER(1), CONSUMER(1), CONSUMER(2), FINISHER }, FINISH, USUAL, THOROUGH },
	{ "abort", prepare, { PRODUCER(1), CONSUMER(1), CONSUMER(2), FINISHER }, FINISH | ABORT, USUAL, THOROUGH },
};

int main(int argc, char **argv)
{
	return sched_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
