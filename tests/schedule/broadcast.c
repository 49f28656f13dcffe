/* In every schedule of producers and readers on a broadcast ring, of whom one stays, one leaves (also with a message in hand) and
 * one joins, each of which may die at any step, each reader gets what it is owed, once and in order, keeps what it
 * looks at, and leaves nothing behind. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "world.h"

#define SLOTS 2

enum option { KEEP = 1, TWO_EACH = 2, ABORT = 4 }; /* KEEP: who leaves has a message in hand, if there is one */

enum fate { NOTHING, WRITING, READY, OVER, LOST };

/* What has happened. Messages are numbers from 1, also tags, and bits in sets; readers are fibers, and bits in sets. */
static struct {
	uint32_t fate[WORLD_MESSAGES_MAX + 1];
	uint32_t before[WORLD_MESSAGES_MAX + 1]; /* messages whose commit was over when this one's began */
	uint32_t owed[WORLD_MESSAGES_MAX + 1];   /* readers who had subscribed when its commit began */
	uint32_t message[WORLD_SLOTS_MAX];       /* that a slot is used for */
	uint32_t claiming[SCHED_FIBERS_MAX];
	uint32_t too_old[SCHED_FIBERS_MAX];      /* messages committed before the reader began to subscribe */
	uint32_t got[SCHED_FIBERS_MAX];
	uint32_t viewing[SCHED_FIBERS_MAX];      /* slot plus one */
	uint32_t staying;                        /* readers subscribed, and not about to leave */
	uint32_t committed, tagged, aborting;
	uint64_t tickets;
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

/* ---- what they do ---------------------------------------------------------------------------------------- */

static void producer(int me)
{
	struct rb_self *self = &world.selves[me];
	int each = has(TWO_EACH) ? 2 : 1;

	for (int k = 0; k < each; k++) {
		uint32_t m = (uint32_t)(me * each + k + 1);
		struct rb_slot slot;
		int rc;

		for (;;) {
			sched_mark((uint64_t)k);
			past.claiming[me] = m;
			sched_look();
			rc = rb_ring_claim(self, m, RB_ANY, &slot);
			if (rc != -EAGAIN)
				break;
			sched_mark((uint64_t)k);
			sched_wait(WORLD_CHANGE);
		}
		sched_check(rc == 0, "claim says %d", rc);
		past.claiming[me] = 0;
		sched_mark((uint64_t)k << 32 | slot.index);
		world_fill((int)slot.index, m, slot.word);
		if (has(ABORT) && k == 0) {
			past.aborting = m;
			rc = rb_ring_abort(self, &slot);
			sched_check(rc == 0, "abort says %d", rc);
			past.aborting = 0;
			continue;
		}
		past.before[m] = past.committed;
		past.owed[m] = past.staying;
		sched_mark((uint64_t)k << 32 | slot.index);
		rc = rb_ring_commit(self, &slot, 16);
		sched_check(rc == 0, "commit says %d", rc);
		past.committed |= 1u << m;
	}
}

static bool take(int me, struct rb_slot *slot)
{
	bool freed;
	int rc = rb_ring_take(&world.selves[me], NULL, slot, &freed);

	if (rc == -EAGAIN)
		return false;
	sched_check(rc == 0, "take says %d", rc);
	uint32_t m = (uint32_t)slot->tag;
	sched_check(m == past.message[slot->index] && slot->bytes == 16, "message %u is taken as %u",
		    past.message[slot->index], m);
	sched_check(!(past.got[me] & 1u << m), "message %u is delivered twice", m);
	sched_check(!(past.too_old[me] & 1u << m), "message %u is delivered to one who came later", m);
	for (int other = 1; other <= WORLD_MESSAGES_MAX; other++)
		sched_check(!(past.before[m] & 1u << other) || !(past.owed[other] & 1u << me) || past.got[me] & 1u << other,
			    "message %u is taken before %d, which was committed before it", m, other);
	past.got[me] |= 1u << m;
	past.viewing[me] = slot->index + 1;
	return true;
}

static void give_back(int me, const struct rb_slot *slot)
{
	int rc = rb_ring_release(&world.selves[me], slot);

	past.viewing[me] = 0;
	sched_check(rc == 0, "release says %d", rc);
}

static void read_all(int me)
{
	for (;;) {
		struct rb_slot slot;

		sched_mark(0);
		sched_look();
		if (!take(me, &slot)) {
			sched_mark(0);
			sched_wait(WORLD_CHANGE);
			continue;
		}
		sched_mark(slot.index);
		world_verify((int)slot.index, slot.tag, slot.word);
		give_back(me, &slot);
	}
}

/* As rb_subscribe() has it. */
static void subscribe(int me)
{
	past.too_old[me] = past.committed;
	int rc = rb_ring_subscribe(&world.selves[me]);
	sched_check(rc == 0, "subscribe says %d", rc);
	rb_ring_clear_unentitled(&world_map);
	past.staying |= 1u << me;
}

/* As rb_unsubscribe() and rb_release() have it. */
static void unsubscribe(int me)
{
	int reader = world.selves[me].reader;

	sched_put(&world.selves[me].reader, sizeof(int), (uint32_t)RB_NO_READER);
	rb_ring_unsubscribe(&world_map, reader);
}

static void stay(int me)
{
	read_all(me);
}

static void leave(int me)
{
	struct rb_slot slot;

	sched_mark(0);
	bool any = take(me, &slot);
	sched_mark(any ? slot.index + 1 : 0);
	if (any && !has(KEEP)) {
		world_verify((int)slot.index, slot.tag, slot.word);
		give_back(me, &slot);
		any = false;
	}
	past.staying &= ~(1u << me);
	if (any) {
		rb_ring_withdraw(&world_map, world.selves[me].reader, world.selves[me].held);
		world_verify((int)slot.index, slot.tag, slot.word);
		give_back(me, &slot);
	}
	sched_mark(0);
	unsubscribe(me);
}

static void join(int me)
{
	sched_step("about to subscribe");
	subscribe(me);
	read_all(me);
}

static void prepare(void)
{
	int fibers = 0;

	while (fibers < SCHED_FIBERS_MAX && sched_case->fibers[fibers].run)
		fibers++;
	world_prepare(SLOTS, (uint32_t)fibers + 1, RB_BROADCAST, RB_BLOCK, false);
	memset(&past, 0, sizeof(past));
	sched_remember(&past, sizeof(past));
	for (int f = 0; f < fibers; f++)
		if (sched_case->fibers[f].run == stay || sched_case->fibers[f].run == leave)
			subscribe(f);
}

/* ---- what may happen to a slot's word --------------------------------------------------------------------- */

bool check_holds(int me, uint64_t word, uint64_t held)
{
	int reader = world.selves[me].reader;

	if (rb_word_state(held) == RB_WRITING)
		return word == held;
	return rb_word_state(word) == RB_READY && rb_word_seq(&world_map, word) == rb_word_seq(&world_map, held) &&
	       reader != RB_NO_READER && rb_word_who(&world_map, word) & 1u << reader;
}

static bool is_viewed(int slot, int but)
{
	for (int f = 0; f < SCHED_FIBERS_MAX; f++)
		if (f != but && past.viewing[f] == (uint32_t)slot + 1 && !sched_is_dead(f))
			return true;
	return false;
}

static void published(int slot, uint32_t m, int owner, uint64_t ticket, uint32_t mask)
{
	bool free = mask == 0;

	if (free && world_reaps(owner)) {
		past.fate[m] = LOST;
		past.message[slot] = 0;
		return;
	}
	sched_check(owner == sched_me(), "message %u is committed or freed by another", m);
	sched_check(ticket < 64 && !(past.tickets & UINT64_C(1) << ticket), "ticket %d comes twice", (int)ticket);
	past.tickets |= UINT64_C(1) << ticket;
	past.fate[m] = free ? OVER : READY;
	for (int b = 0; b < (int)RB_READERS_MAX && past.aborting != m; b++) {
		uint64_t start = world.control.readers[b].start; /* 0: joining */
		sched_check(!(world.control.active & 1u << b) || start == 0 || start > ticket || mask & 1u << b,
			    "message %u is not for reader entry %d, which starts before it", m, b);
	}
	if (!free)
		return;
	for (int f = 0; f < SCHED_FIBERS_MAX; f++)
		sched_check(!(past.owed[m] & past.staying & 1u << f) || sched_is_dead(f), "message %u is for nobody", m);
	past.message[slot] = 0;
}

/* One reader's bit goes: by itself, who has read; or it was not owed this message, or is not there any more. */
static void cleared(int slot, uint32_t m, uint32_t bit, bool free)
{
	int b = __builtin_ctz(bit), reader = (int)world.control.readers[b].owner - 1;
	bool releases = reader >= 0 && reader == sched_me() && past.viewing[reader] == (uint32_t)slot + 1;

	if (reader >= 0 && !releases && !sched_is_dead(reader)) {
		sched_check(past.viewing[reader] != (uint32_t)slot + 1, "message %u is taken from under its reader", m);
		sched_check(!(past.owed[m] & past.staying & 1u << reader) || past.got[reader] & 1u << m,
			    "message %u is taken from a reader who is owed it", m);
	}
	if (!free)
		return;
	sched_check(!is_viewed(slot, releases ? reader : -1), "slot %d is freed under a reader", slot);
	past.fate[m] = OVER;
	past.message[slot] = 0;
}

static void changed(int slot, uint64_t old, uint64_t new)
{
	enum rb_state from = rb_word_state(old), to = rb_word_state(new);
	uint32_t who = rb_word_who(&world_map, old), next = rb_word_who(&world_map, new), gone = who & ~next;
	uint64_t before = rb_word_seq(&world_map, old), ticket = rb_word_seq(&world_map, new);
	uint32_t m = past.message[slot];

	world_check_word(slot, old, new);
	if (from == RB_FREE && to == RB_WRITING && ticket == before) {
		sched_check((int)next - 1 == sched_me(), "slot %d is claimed for another", slot);
		sched_check(!is_viewed(slot, -1), "slot %d is claimed under a reader", slot);
		m = past.message[slot] = past.claiming[sched_me()];
		past.fate[m] = WRITING;
	} else if (from == RB_WRITING && (to == RB_READY || to == RB_FREE) && ticket > before) {
		published(slot, m, (int)who - 1, ticket, next);
	} else if (from == RB_READY && (to == RB_READY || to == RB_FREE) && ticket == before && !(next & ~who) &&
		   (to == RB_READY) == (next != 0) && __builtin_popcount(gone) == 1) {
		cleared(slot, m, gone, to == RB_FREE);
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
	if (old != new && slot >= 0)
		sched_event(WORLD_CHANGE);
}

/* ---- the end ----------------------------------------------------------------------------------------------- */

bool check_settle(void)
{
	return world_reap();
}

void check_end(void)
{
	for (int i = 0; i < SLOTS; i++)
		sched_check(rb_word_state(world.descs[i].word) == RB_FREE, "slot %d never comes back", i);
	for (int f = 0; f < SCHED_FIBERS_MAX && sched_case->fibers[f].run; f++) {
		sched_check(sched_case->fibers[f].run != producer || sched_is_dead(f) || sched_is_done(f),
			    "a producer waits, and all slots are free");
		if (sched_is_dead(f) || !(past.staying & 1u << f))
			continue;
		for (int m = 1; m <= WORLD_MESSAGES_MAX; m++)
			sched_check(past.fate[m] != OVER || !(past.owed[m] & 1u << f) || past.got[f] & 1u << m ||
				    !(past.committed & 1u << m), "%s did not get message %d", sched_case->fibers[f].name, m);
	}
	for (int b = 0; b < (int)RB_READERS_MAX; b++) {
		int reader = (int)world.control.readers[b].owner - 1;
		bool active = world.control.active & 1u << b;

		sched_check(reader < 0 || (!sched_is_dead(reader) && past.staying & 1u << reader),
			    "reader entry %d belongs to one who is gone", b);
		sched_check(active == (reader >= 0), "reader entry %d is %sactive", b, active ? "" : "not ");
		sched_check(world.control.readers[b].keeps == 0, "reader entry %d keeps something", b);
	}
	sched_check(!(with_fate(WRITING) | with_fate(READY)), "a message is neither here nor there");
	world_check_losses(with_fate(LOST), past.tagged);
}

#define PRODUCER(n) { "producer " #n, producer, true }
#define STAYS { "stays", stay, true }
#define LEAVES { "leaves", leave, true }
#define JOINS { "joins", join, true }
#define REAPER { "reaper", world_reaper, true }

static const struct sched_case cases[] = {
	{ "leave", prepare, { PRODUCER(1), STAYS, LEAVES, JOINS, REAPER }, TWO_EACH, { { 1, 1, 0, 0 } },
	  { { 2, 1, 0, 0 }, { 1, 2, 1, 200000 } } },
	{ "keep", prepare, { PRODUCER(1), PRODUCER(2), STAYS, LEAVES, JOINS, REAPER }, KEEP, { { 2, 0, 0, 0 } },
	  { { 2, 0, 0, 0 }, { 1, 1, 1, 0 }, { 1, 2, 2, 200000 } } },
	{ "join", prepare, { PRODUCER(1), JOINS, REAPER }, TWO_EACH, { { 4, 0, 0, 0 }, { 2, 1, 0, 0 } }, { { 4, 1, 1, 0 } } },
	{ "two-each", prepare, { PRODUCER(1), PRODUCER(2), STAYS, LEAVES }, KEEP | TWO_EACH, { { 2, 0, 1, 0 }, { 1, 1, 1, 0 } },
	  { { 2, 1, 1, 0 } } },
	{ "nobody-stays", prepare, { PRODUCER(1), LEAVES, JOINS, REAPER }, KEEP | TWO_EACH, { { 2, 1, 0, 0 } },
	  { { 2, 1, 1, 0 }, { 1, 2, 0, 0 } } },
	{ "abort", prepare, { PRODUCER(1), STAYS, LEAVES, JOINS }, ABORT | TWO_EACH, { { 2, 1, 0, 0 } }, { { 3, 1, 1, 0 } } },
	/* Few, interrupted often. */
	{ "withdraw", prepare, { PRODUCER(1), LEAVES }, KEEP | TWO_EACH, { { 8, 1, 1, 0 } }, { { 12, 2, 2, 0 } } },
};

int main(int argc, char **argv)
{
	return sched_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
