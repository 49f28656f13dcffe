/* A small ring in a chosen state, a ledger of what became of each message, and what must hold after somebody died in the middle
 * of something. The ledger is kept outside the ring, by those who put and get, so that the two can be compared.
 * After t.h. */
#ifndef SCENE_H
#define SCENE_H

#include <dirent.h>

#include "crash_points.h"
#include "legal.h"

#define SLOTS 4
#define TAGS 512
/* Tags say whose a message is: up to 89 the victim's. */
#define TAG_WAKE 50      /* a partner sleeps until these come */
#define TAG_NEVER 89     /* nobody commits this */
#define TAG_CORPSE 90    /* of somebody who is dead before it begins */
#define TAG_FILL 100     /* those that make up the state */
#define TAG_OTHERS 150   /* of the living, during and after */

enum state { EMPTY, HALF, FULL, WRAPPING, STATES };

static const char *const scene_states[] = { "empty", "half full", "full", "gone round" };

/* How far a message has come with its producer, and with a consumer that may die. */
enum fate { UNKNOWN, CLAIMING, CLAIMED, COMMITTING, COMMITTED, ABORTING, ABORTED };
enum hand { UNTOUCHED, HOLDING, RELEASING, RELEASED };

struct ledger {
	_Atomic int hits[RB_CRASH_POINT_COUNT];
	_Atomic int fate[TAGS];
	_Atomic int hand[TAGS]; /* those of the mortal */
	_Atomic int seen[TAGS]; /* by the living, in broadcast by the one reader that stays */
	_Atomic int partner, corpse; /* steps of those processes */
	_Atomic int filled, open, gone, over;
};

static rb_ring *ring;
static struct rb_map map;
static struct ledger *ledger;
static bool mortal; /* this process is to die, or may */

/* ---- messages --------------------------------------------------------------------------------------- */

static inline bool claim(uint64_t tag, int64_t deadline_ns, struct rb_slot *slot)
{
	ledger->fate[tag] = CLAIMING;
	if (rb_claim(ring, tag, RB_ANY, deadline_ns, slot) < 0) {
		ledger->fate[tag] = UNKNOWN;
		return false;
	}
	ledger->fate[tag] = CLAIMED;
	return true;
}

static inline void commit(struct rb_slot slot)
{
	t_fill(&slot);
	ledger->fate[slot.tag] = COMMITTING;
	t_equal(rb_commit(ring, &slot, 16), 0);
	ledger->fate[slot.tag] = COMMITTED;
}

static inline void abandon(struct rb_slot slot)
{
	ledger->fate[slot.tag] = ABORTING;
	t_equal(rb_abort(ring, &slot), 0);
	ledger->fate[slot.tag] = ABORTED;
}

static inline bool put(uint64_t tag, int64_t deadline_ns)
{
	struct rb_slot slot;

	if (!claim(tag, deadline_ns, &slot))
		return false;
	commit(slot);
	return true;
}

static inline bool hold(const struct rb_filter *filter, int64_t deadline_ns, struct rb_slot *slot)
{
	if (rb_take(ring, filter, deadline_ns, slot) < 0)
		return false;
	t_verify(slot);
	if (mortal)
		ledger->hand[slot->tag] = HOLDING;
	else
		ledger->seen[slot->tag]++;
	return true;
}

static inline void let_go(struct rb_slot slot)
{
	if (mortal)
		ledger->hand[slot.tag] = RELEASING;
	t_equal(rb_release(ring, &slot), 0);
	if (mortal)
		ledger->hand[slot.tag] = RELEASED;
}

static inline bool get(const struct rb_filter *filter, int64_t deadline_ns)
{
	struct rb_slot slot;

	if (!hold(filter, deadline_ns, &slot))
		return false;
	let_go(slot);
	return true;
}

/* ---- states ------------------------------------------------------------------------------------------- */

/* Messages that the one consumer or reader has to get before the state is reached. */
static inline int scene_rounds(enum state state)
{
	return state == WRAPPING ? 2 * SLOTS + 1 : 0;
}

/* All slots at once, so that each of them is used. */
static inline void scene_put_together(uint64_t first, int n)
{
	struct rb_slot slots[SLOTS];

	for (int i = 0; i < n; i++)
		t_check(claim(first + (uint64_t)i, t_soon(), &slots[i]));
	for (int i = 0; i < n; i++)
		commit(slots[i]);
}

/* `caught_up` returns when the other side has got this many. */
static inline void scene_fill(enum state state, void (*caught_up)(int n))
{
	uint64_t tag = TAG_FILL;
	int ready = state == FULL ? SLOTS : state == EMPTY ? 0 : SLOTS / 2;

	for (int n = scene_rounds(state), done = 0; done < n; caught_up(done)) {
		int some = n - done < SLOTS ? n - done : SLOTS;

		scene_put_together(tag, some);
		tag += (uint64_t)some;
		done += some;
	}
	scene_put_together(tag, ready);
}

/* ---- afterwards --------------------------------------------------------------------------------------- */

static inline int scene_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int n = 0;

	t_check(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* With nobody else left: what is there is taken, and then all slots at once are to be had: by asking again and again, or by
 * sleeping until they are there. */
static inline void scene_reach_every_slot(bool asleep)
{
	struct rb_slot slots[SLOTS];
	int held = 0;

	for (int64_t end = t_soon(); held < SLOTS;) {
		if (rb_now_ns() > end)
			t_die(__FILE__, __LINE__, "of %d slots only %d are to be had", SLOTS, held);
		if (asleep && map.header.redeliver && t_stats(ring).reading > 0)
			t_check(get(NULL, end)); /* in dead hands as yet */
		while (map.header.mode == RB_QUEUE && get(NULL, RB_NOW))
			;
		held += rb_claim(ring, 0, RB_ANY, asleep ? end : RB_NOW, &slots[held]) == 0;
	}
	for (int i = 0; i < SLOTS; i++)
		t_equal(rb_abort(ring, &slots[i]), 0);
}

static inline int scene_times_lost(const struct rb_lost *lost, int n, uint64_t tag)
{
	int times = 0;

	for (int i = 0; i < n; i++)
		times += lost[i].tag == tag;
	return times;
}

#define scene_fail(tag, ...) (fprintf(stderr, "message %d: ", (int)(tag)), t_die(__FILE__, __LINE__, __VA_ARGS__))

/* The ring's counters against the ledger. Where somebody died, its last act may not be counted. */
struct tally {
	int published, maybe_published, consumed, maybe_consumed, vanished, maybe_vanished, claiming;
};

static inline void scene_check_message(uint64_t tag, int gone, struct tally *tally)
{
	int fate = ledger->fate[tag], hand = ledger->hand[tag], seen = ledger->seen[tag];
	bool queue = map.header.mode == RB_QUEUE;
	int had = queue && hand == RELEASED; /* in broadcast the mortal reader is one more, and counts for itself */
	bool maybe_had = queue && hand == RELEASING;
	int all = seen + had + gone;
	bool may_vanish = queue && (map.header.full == RB_OVERWRITE || (!map.header.redeliver && hand != UNTOUCHED));

	if (queue && !map.header.redeliver && fate == COMMITTED && hand == UNTOUCHED && seen == 0)
		may_vanish = true; /* taken, and its taker died before it could say so: the tally knows how many there may be */
	tally->published += fate == COMMITTED;
	tally->maybe_published += fate == COMMITTING && !gone;
	tally->consumed += seen + (hand == RELEASED);
	tally->maybe_consumed += hand == RELEASING;
	tally->claiming += fate == CLAIMING;
	if (fate == COMMITTED || fate == COMMITTING) {
		if (gone && fate == COMMITTED)
			scene_fail(tag, "it was committed, and is reported lost");
		if (all > 1)
			scene_fail(tag, "seen %d times, by the dead one %d times, lost %d times", seen, had, gone);
		if (all == 0 && !may_vanish && !maybe_had)
			scene_fail(tag, "it was committed (%d), and has vanished", fate);
		tally->vanished += all == 0 && fate == COMMITTED && !maybe_had;
		tally->maybe_vanished += all == 0 && (fate == COMMITTING || maybe_had);
	} else if (seen + had > 0) {
		scene_fail(tag, "seen %d times, and was never committed (%d)", seen + had, fate);
	} else if (fate == CLAIMED ? gone != 1 : gone > (fate == CLAIMING || fate == ABORTING)) {
		scene_fail(tag, "lost %d times (%d)", gone, fate);
	}
}

/* `deaths`: of how many processes the last act may be uncounted. */
static inline void scene_check_fates(int deaths)
{
	struct rb_stats stats = t_stats(ring);
	struct rb_lost lost[RB_LOST_LOG];
	struct tally tally = { 0 };
	int n = rb_get_lost(ring, lost, RB_LOST_LOG), known = 0;

	for (uint64_t tag = 1; tag < TAGS; tag++) {
		int gone = scene_times_lost(lost, n, tag);

		known += gone;
		scene_check_message(tag, gone, &tally);
	}
	t_equal(stats.lost, n);
	t_equal(n - known, scene_times_lost(lost, n, RB_TAG_UNKNOWN));
	t_check(n - known <= tally.claiming);
	t_check(stats.published >= (uint64_t)tally.published);
	t_check(stats.published <= (uint64_t)(tally.published + tally.maybe_published));
	t_check(stats.consumed >= (uint64_t)tally.consumed);
	t_check(stats.consumed <= (uint64_t)(tally.consumed + tally.maybe_consumed));
	if (map.header.mode == RB_QUEUE) {
		t_check(stats.dropped + (uint64_t)deaths >= (uint64_t)tally.vanished);
		t_check(stats.dropped <= (uint64_t)(tally.vanished + tally.maybe_vanished));
	}
}

/* Nobody is left but us: nothing belongs to anybody else, and every slot is free. */
static inline void scene_check_whole(void)
{
	rb_recover(ring); /* who died without holding anything was in nobody's way */
	struct rb_stats stats = t_stats(ring);
	legal_owners(&map, rb_fd(ring));
	t_equal(stats.free, SLOTS);
	t_equal(stats.writing + stats.ready + stats.reading, 0);
	t_equal(stats.readers, 0);
	t_equal(stats.participants, 1);
}

#endif
