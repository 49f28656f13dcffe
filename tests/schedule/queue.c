/* In every schedule of producers, consumers and a reaper on a queue, each of which may die at any step, no message is lost,
 * doubled, torn or out of order but as the mode says, losses are counted once, and everybody who lives comes to his end. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "world.h"

#define SLOTS 2
#define EACH 2 /* messages of each producer */

enum option { REDELIVER = 1, OVERWRITE = 2, FINISH = 4, ABORT = 8, ONE_EACH = 16,
	      TWICE = 32 }; /* they commit and release again what is not theirs any more */

enum fate { NOTHING, WRITING, READY, READING, RELEASED, DROPPED, LOST, ABORTED };

/* What has happened; a message is a number from 1, also its tag, and its bit in a set. */
static struct {
	uint32_t fate[WORLD_MESSAGES_MAX + 1];
	uint32_t before[WORLD_MESSAGES_MAX + 1]; /* those whose commit was over when this one's began */
	uint32_t takes[WORLD_MESSAGES_MAX + 1], redeliveries[WORLD_MESSAGES_MAX + 1];
	uint32_t message[WORLD_SLOTS_MAX];       /* that a slot is used for */
	uint32_t claiming[SCHED_FIBERS_MAX];     /* that a producer is at */
	uint32_t committed, tagged;              /* sets */
	uint64_t tickets;                        /* set of those that were on a READY word */
	uint32_t drained, unused;                /* somebody was told that nothing comes any more */
} past;

static bool has(enum option option)
{
	return sched_case->option & option;
}

static uint32_t with_fate(enum fate fate)
{
	uint32_t set = 0;

	for (int m = 1; m <= WORLD_MESSAGES_MAX; m++)
		set |= past.fate[m] == fate ? 1u << m : 0;
	return set;
}

static void prepare(void)
{
	int fibers = 0;

	while (fibers < SCHED_FIBERS_MAX && sched_case->fibers[fibers].run)
		fibers++;
	world_prepare(SLOTS, (uint32_t)fibers + 1, RB_QUEUE, has(OVERWRITE) ? RB_OVERWRITE : RB_BLOCK, has(REDELIVER));
	memset(&past, 0, sizeof(past));
	sched_remember(&past, sizeof(past));
}

/* ---- what they do ---------------------------------------------------------------------------------------- */

static void producer(int me)
{
	struct rb_self *self = &world.selves[me];
	int each = has(ONE_EACH) ? 1 : EACH;

	for (int k = 0; k < each; k++) {
		uint32_t m = (uint32_t)(me * each + k + 1);
		struct rb_slot slot;
		int rc;

		sched_mark((uint64_t)k);
		past.claiming[me] = m;
		for (;;) {
			sched_look();
			rc = rb_ring_claim(self, m, RB_ANY, &slot);
			if (rc != -EAGAIN)
				break;
			sched_mark((uint64_t)k);
			sched_wait(WORLD_CHANGE);
		}
		past.claiming[me] = 0;
		if (rc == -EPIPE) {
			sched_check(world.control.finished, "the ring is not finished");
			return;
		}
		sched_check(rc == 0, "claim says %d", rc);
		sched_mark((uint64_t)k << 32 | slot.index);
		world_fill((int)slot.index, m, slot.word);
		if (has(ABORT) && k == 0) {
			rc = rb_ring_abort(self, &slot);
			sched_check(rc == 0, "abort says %d", rc);
			continue;
		}
		past.before[m] = past.committed;
		sched_mark((uint64_t)k << 32 | slot.index);
		rc = rb_ring_commit(self, &slot, 16);
		sched_check(rc == 0, "commit says %d", rc);
		past.committed |= 1u << m;
		sched_check(!has(TWICE) || rb_ring_commit(self, &slot, 16) == -ESTALE, "message %u is committed twice", m);
	}
}

/* As rb_take() has it: who finds nothing asks for the end, and before it ends looks for the dead. */
static int take(int me, struct rb_slot *slot)
{
	bool freed;
	int rc;

	do {
		rc = rb_ring_take(&world.selves[me], NULL, slot, &freed);
		sched_check(!freed, "a message is taken for damaged");
		if (rc != -EAGAIN || !has(FINISH) || !rb_ring_drained(&world.selves[me], NULL))
			return rc;
		past.drained = 1;
		uint32_t left = with_fate(READY);
		for (int m = 1; m <= WORLD_MESSAGES_MAX; m++)
			sched_check(!(left & 1u << m) || past.redeliveries[m], "drained, but message %d is left", m);
	} while (rb_recover_dead(&world_map, &world_members[me]) > 0);
	return -EPIPE;
}

static void consumer(int me)
{
	for (;;) {
		struct rb_slot slot;

		sched_mark(0);
		sched_look();
		int rc = take(me, &slot);
		if (rc == -EPIPE)
			return;
		if (rc == -EAGAIN) {
			sched_mark(0);
			sched_wait(WORLD_CHANGE);
			continue;
		}
		sched_check(rc == 0, "take says %d", rc);
		sched_check(slot.tag == past.message[slot.index] && slot.bytes == 16, "message %u is taken as %d",
			    past.message[slot.index], (int)slot.tag);
		sched_mark(slot.index);
		world_verify((int)slot.index, slot.tag, slot.word);
		rc = rb_ring_release(&world.selves[me], &slot);
		sched_check(rc == 0, "release says %d", rc);
		sched_check(!has(TWICE) || rb_ring_release(&world.selves[me], &slot) == -ESTALE, "message %d is released twice",
			    (int)slot.tag);
	}
}

static void finisher(int me)
{
	(void)me;
	rb_ring_finish(&world_map);
}

/* ---- what may happen to a slot's word --------------------------------------------------------------------- */

bool check_holds(int me, uint64_t word, uint64_t held)
{
	return word == held && rb_word_who(&world_map, word) == (uint32_t)me + 1;
}

static void claimed(int slot, int owner, uint32_t overwritten)
{
	sched_check(owner == sched_me(), "slot %d is claimed for another", slot);
	if (overwritten) {
		sched_check(has(OVERWRITE), "message %u is overwritten", overwritten);
		past.fate[overwritten] = DROPPED;
	}
	past.message[slot] = past.claiming[owner];
	past.fate[past.message[slot]] = WRITING;
}

static void committed(int slot, uint32_t m, int owner, uint64_t ticket)
{
	sched_check(owner == sched_me(), "message %u is committed by another", m);
	sched_check(ticket < 64 && !(past.tickets & UINT64_C(1) << ticket), "ticket %d comes twice", (int)ticket);
	sched_check(!past.drained, "message %u comes after the end", m);
	past.tickets |= UINT64_C(1) << ticket;
	past.fate[m] = READY;
	(void)slot;
}

static void taken(uint32_t m, int owner)
{
	uint32_t passed_over = past.before[m] & with_fate(READY);

	sched_check(owner == sched_me(), "message %u is taken for another", m);
	sched_check(past.takes[m]++ == past.redeliveries[m], "message %u is delivered twice", m);
	for (int other = 1; other <= WORLD_MESSAGES_MAX; other++)
		sched_check(!(passed_over & 1u << other) || past.redeliveries[other],
			    "message %u is taken before %d, which was committed before it", m, other);
	past.fate[m] = READING;
}

static void given_back(int slot, uint32_t m, enum rb_state was, int owner)
{
	if (owner == sched_me())
		past.fate[m] = was == RB_WRITING ? ABORTED : RELEASED;
	else if (world_reaps(owner))
		past.fate[m] = was == RB_WRITING ? LOST : DROPPED;
	else
		sched_fail("slot %d is freed under its owner", slot);
	sched_check(past.fate[m] != DROPPED || !has(REDELIVER), "message %u is dropped", m);
	past.message[slot] = 0;
}

static void changed(int slot, uint64_t old, uint64_t new)
{
	enum rb_state from = rb_word_state(old), to = rb_word_state(new);
	int owner = (int)rb_word_who(&world_map, old) - 1, next = (int)rb_word_who(&world_map, new) - 1;
	uint64_t before = rb_word_seq(&world_map, old), ticket = rb_word_seq(&world_map, new);
	uint32_t m = past.message[slot];

	world_check_word(slot, old, new);
	if ((from == RB_FREE || from == RB_READY) && to == RB_WRITING && ticket == before) {
		claimed(slot, next, m);
	} else if (from == RB_WRITING && to == RB_READY && ticket > before) {
		committed(slot, m, owner, ticket);
	} else if (from == RB_READY && to == RB_READING && ticket == before) {
		taken(m, next);
	} else if ((from == RB_WRITING && to == RB_FREE && ticket > before) || (from == RB_READING && to == RB_FREE)) {
		given_back(slot, m, from, owner);
	} else if (from == RB_READING && to == RB_READY && ticket == before) {
		sched_check(world_reaps(owner) && has(REDELIVER), "message %u goes back under its consumer", m);
		past.redeliveries[m]++;
		past.fate[m] = READY;
	} else {
		sched_fail("slot %d goes from %d to %d, ticket %d to %d", slot, from, to, (int)before, (int)ticket);
	}
}

void check_wrote(volatile void *at, uint64_t old, uint64_t new)
{
	int slot = world_slot_of(at);

	if (slot >= 0)
		changed(slot, old, new);
	else
		world_check_rest(at, (uint64_t)__builtin_popcount(with_fate(LOST)));
	for (int i = 0; i < SLOTS; i++)
		if (at == &world.descs[i].claimed && new == world.descs[i].word)
			past.tagged |= 1u << past.message[i];
	if (old != new && (slot >= 0 || at == &world.control.finished))
		sched_event(WORLD_CHANGE);
}

/* ---- the end ----------------------------------------------------------------------------------------------- */

bool check_settle(void)
{
	return world_reap();
}

void check_end(void)
{
	bool consumers = false, free = false, ready = false;

	for (int f = 0; f < SCHED_FIBERS_MAX && sched_case->fibers[f].run; f++)
		consumers |= sched_case->fibers[f].run == consumer && !sched_is_dead(f) && !sched_is_done(f);
	for (int i = 0; i < SLOTS; i++) {
		enum rb_state state = rb_word_state(world.descs[i].word);

		sched_check(state == RB_FREE || state == RB_READY, "slot %d never comes back", i);
		free |= state == RB_FREE;
		ready |= state == RB_READY;
	}
	sched_check(!ready || !consumers, "a message waits, and a consumer");
	for (int f = 0; f < SCHED_FIBERS_MAX && sched_case->fibers[f].run; f++) {
		if (sched_is_dead(f) || sched_is_done(f))
			continue;
		if (sched_case->fibers[f].run == producer)
			sched_check(!free && !has(OVERWRITE), "a producer waits, and a slot is free");
		if (sched_case->fibers[f].run == consumer)
			sched_check(!world.control.finished, "a consumer waits, and nothing will come");
	}
	sched_check(!(with_fate(WRITING) | with_fate(READING)), "a message is neither here nor there");
	world_check_losses(with_fate(LOST), past.tagged);
}

#define PRODUCER(n) { "producer " #n, producer, true }
#define CONSUMER(n) { "consumer " #n, consumer, true }
#define REAPER { "reaper", world_reaper, true }

#define TWO_AND_TWO PRODUCER(1), PRODUCER(2), CONSUMER(1), CONSUMER(2)
#define USUAL { { 2, 0, 0, 0 }, { 1, 1, 0, 0 } }
#define THOROUGH { { 2, 1, 0, 0 }, { 1, 2, 0, 0 }, { 1, 2, 0, 200000 } }

static const struct sched_case cases[] = {
	{ "redeliver", prepare, { TWO_AND_TWO, REAPER }, REDELIVER, USUAL, THOROUGH },
	{ "drop", prepare, { TWO_AND_TWO, REAPER }, 0, { { 1, 1, 0, 0 } }, { { 2, 1, 0, 0 } } },
	{ "overwrite", prepare, { TWO_AND_TWO, REAPER }, OVERWRITE, USUAL, { { 2, 1, 0, 0 }, { 1, 2, 0, 200000 } } },
	{ "abort", prepare, { TWO_AND_TWO, REAPER }, REDELIVER | ABORT, USUAL, { { 2, 1, 0, 0 } } },
	{ "finish", prepare, { TWO_AND_TWO, { "finisher", finisher, true } }, REDELIVER | FINISH, USUAL,
	  { { 2, 1, 0, 0 }, { 1, 2, 0, 200000 } } },
	{ "twice", prepare, { TWO_AND_TWO }, REDELIVER | ONE_EACH | TWICE, { { 2, 0, 0, 0 } }, { { 3, 1, 0, 0 } } },
	{ "small", prepare, { TWO_AND_TWO, REAPER }, REDELIVER | ONE_EACH, { { 1, 1, 0, 0 } }, { { 2, 1, 0, 0 }, { 1, 2, 0, 0 } } },
	/* Few, interrupted often. */
	{ "pair", prepare, { PRODUCER(1), CONSUMER(1) }, REDELIVER, { { 8, 1, 0, 0 } }, { { 12, 2, 0, 0 } } },
	{ "reapers", prepare, { PRODUCER(1), CONSUMER(1), REAPER, { "reaper 2", world_reaper, true } }, REDELIVER | ONE_EACH,
	  { { 2, 1, 0, 0 }, { 1, 2, 0, 0 } }, { { 2, 2, 0, 0 }, { 3, 1, 0, 0 } } },
};

int main(int argc, char **argv)
{
	return sched_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
