/* The ring is a set of slots; each has one word, and every step is one compare-and-swap on one word.
 *
 *          claim            commit           take             release
 *   FREE ---------> WRITING -------> READY ---------> READING --------> FREE       queue
 *     ^                |               \ take, release: each reader clears its own bit; the last one frees (broadcast)
 *     +---- abort -----+
 *
 * Key invariant: a payload is touched only by the owner that its word names, between the owner's own CAS into
 * WRITING or READING (or its bit in READY) and its own CAS out of it. Words never come back on a slot (layout.h),
 * so a CAS that expects an old word cannot succeed: no ABA.
 *
 * Nobody ever waits for a particular other process: a killed one leaves a slot that names it, or a ticket that nobody
 * needs. Every retry below means that somebody else completed a step, or that a hostile peer writes to the words without
 * a pause: so retries are bounded, by more than honest peers can cause, and whoever runs out of them says -EAGAIN.
 *
 * FIFO. A take reads the ticket counter (the horizon) before it scans, and accepts only tickets below it. Let a
 * commit of Y happen before a commit of X. Who accepts X has seen X's ticket drawn, hence Y's word READY or
 * later; READY(Y) would be older, so X could not be the oldest; later means that Y is taken already. Without the horizon
 * a scan can pass Y's slot before Y is there and then find X: one producer and one consumer suffice.
 *
 * End. A claim writes its word, then looks at `finished`; a drained-check looks at `finished`, then at the words;
 * all four are sequentially consistent. So either the claim sees the end and backs out, or the check sees its WRITING.
 *
 * Broadcast (checked exactly in the model): a commit draws its ticket, then reads who is active, then publishes with that
 * mask, then looks again and clears the bits of who left or came later than the ticket. A joining reader
 * sets its bit active, then reads its first ticket; until that stands in `start`, its bits are nobody else's to clear, and
 * those that it is not owed it clears itself. All sequentially consistent. A reader that stops while
 * it holds messages says so (`keeps`) before its bit turns inactive. From then on its bits are nobody else's to clear;
 * the sweep at its end, after `keeps` is 0 again, clears those that a late commit has added.
 *
 *   pair                              orders
 *   commit:C -> take:C, claim:C       payload, bytes, tag written before they are read
 *   release:A, abort:A -> claim:C     the last reader is done before the next writer begins
 *   commit:A -> take:A                FIFO, above
 *   claim:C, finished:A / finish:A, drained:A              the end, above
 *   commit:E, commit:F / subscribe:C, subscribe:D         broadcast, above
 */
#define _GNU_SOURCE
#include "ring.h"

#include <errno.h>

#include "crash_points.h"
#include "stats.h"

#define NONE UINT32_MAX
#define STRETCH 64u /* slots looked at together: as many as cost less than the rest of a claim */

/* A slot as one look found it. */
struct found {
	uint32_t index; /* NONE: nothing found */
	uint64_t word;
};

/* A take can come past as many bits that we are not owed as there are slots; the rest is for races lost in a row. Of n that race
 * for each message one wins: who loses 32 times n of them meets that once in e^32. */
static uint32_t most_tries(const struct rb_map *map)
{
	return map->header.slots + 1000 + 32 * map->header.participants;
}

static struct rb_row *row_of(const struct rb_self *self)
{
	return &self->map->rows[self->row];
}

uint64_t rb_ring_fresh_free(const struct rb_map *map)
{
	/* fresh_free:A relaxed: only uniqueness matters */
	uint64_t ticket = atomic_fetch_add_explicit(&map->control->tickets, 1, memory_order_relaxed);

	RB_CRASH_POINT(free_ticketed);
	return rb_word(map, RB_FREE, 0, ticket);
}

/* ---- producer ------------------------------------------------------------------------------------ */

/* FREE and READY of a queue name nobody, so their words are numbers in the order of their tickets: the first of a state is the
 * smallest of all words when they are counted from that state on. `flip` inverts tickets, for the newest to be the first. */
static inline uint64_t rank_of(const struct rb_map *map, uint32_t i, uint64_t base, uint64_t flip)
{
	/* find:A relaxed: a candidate only; the CAS that follows decides and orders */
	return (atomic_load_explicit(&map->descs[i].word, memory_order_relaxed) ^ flip) - base;
}

/* Without a branch, and in two halves that a processor can compare at the same time: most of a claim or a take is this loop. */
static inline struct found find_first(const struct rb_map *map, uint32_t from, uint32_t to, enum rb_state state, uint64_t flip)
{
	uint64_t none = UINT64_C(1) << RB_STATE_SHIFT; /* the ranks of other states are not below it */
	uint64_t base = rb_word(map, state, 0, 0);
	uint64_t first = none, second = none;
	uint32_t at = NONE, at_second = NONE, half = from + (to - from) / 2;

	for (uint32_t i = from, j = half; j < to; i++, j++) {
		uint64_t rank = rank_of(map, i, base, flip), other = rank_of(map, j, base, flip);

		at = rank < first ? i : at;
		first = rank < first ? rank : first;
		at_second = other < second ? j : at_second;
		second = other < second ? other : second;
	}
	if (second < first) {
		first = second;
		at = at_second;
	}
	return (struct found){ .index = at, .word = (first + base) ^ flip };
}

static struct found find_oldest_ready(const struct rb_map *map)
{
	return find_first(map, 0, map->header.slots, RB_READY, 0);
}

/* The slot that this handle claimed last, or the newest FREE one of a stretch of slots, that slot's own stretch first: of a large
 * ring not every slot need be looked at for the warmest. */
static struct found find_free(const struct rb_self *self)
{
	const struct rb_map *map = self->map;
	uint32_t slots = map->header.slots;
	uint64_t newest = rb_word_seq(map, UINT64_MAX);
	/* find_free:A relaxed: where to begin; all slots are looked at before there is none */
	uint32_t last = atomic_load_explicit(&self->claimed, memory_order_relaxed);
	uint32_t from = last / STRETCH * STRETCH;
	struct found slot = find_first(map, last, last + 1, RB_FREE, newest);

	for (uint32_t looked = 0; slot.index == NONE && looked < slots; looked += STRETCH) {
		uint32_t to = slots - from < STRETCH ? slots : from + STRETCH;

		slot = find_first(map, from, to, RB_FREE, newest);
		from = to == slots ? 0 : to;
	}
	return slot;
}

/* Overwriting takes the oldest message for the sake of the newest; queue mode only. */
static struct found find_claimable(const struct rb_self *self)
{
	struct found slot = find_free(self);

	if (slot.index == NONE && self->map->header.full == RB_OVERWRITE)
		slot = find_oldest_ready(self->map);
	return slot;
}

/* Nothing was found to claim. Is there nothing? Overwriting looks twice, and between the two looks a quick consumer can free all
 * that was READY. */
static bool nothing_to_claim(const struct rb_map *map)
{
	if (map->header.full != RB_OVERWRITE)
		return true;
	for (uint32_t i = 0; i < map->header.slots; i++) {
		/* nothing:A relaxed: who finds something looks again */
		enum rb_state state = rb_word_state(atomic_load_explicit(&map->descs[i].word, memory_order_relaxed));

		if (state != RB_WRITING && state != RB_READING)
			return false;
	}
	return true;
}

static bool is_finished(const struct rb_map *map)
{
	/* finished:A seq_cst, pairs with finish:A: a claim asks after its word, a drained-check before the words: see
	 * "End" above. Tickets that run out finish a ring too; the margin in rb_last_ticket() covers claims under way. */
	if (atomic_load_explicit(&map->control->finished, memory_order_seq_cst))
		return true;
	/* finished:B relaxed: the margin makes exactness needless */
	return atomic_load_explicit(&map->control->tickets, memory_order_relaxed) > rb_last_ticket(map);
}

int rb_ring_claim(struct rb_self *self, uint64_t tag, uint32_t target, struct rb_slot *out)
{
	const struct rb_map *map = self->map;

	for (uint32_t tries = most_tries(map); tries > 0; tries--) {
		if (is_finished(map))
			return -EPIPE;
		struct found slot = find_claimable(self);
		if (slot.index == NONE) {
			if (nothing_to_claim(map))
				return -EAGAIN;
			continue;
		}

		struct rb_desc *desc = &map->descs[slot.index];
		uint64_t mine = rb_word(map, RB_WRITING, self->row + 1, rb_word_seq(map, slot.word));
		bool overwritten = rb_word_state(slot.word) == RB_READY;

		/* claim:C seq_cst, pairs with release:A, abort:A, commit:C, drained:A, clear:B, look:D,
		 * finish_burial:E, hand_on:A, abandon:A: what was done with the old
		 * bytes is done, and our word stands before finished:A looks for the end.
		 * The same CAS writes our name: at no instant is a slot taken and nobody's.
		 * claim:B relaxed on failure: somebody else has it, look again. */
		if (!atomic_compare_exchange_strong_explicit(&desc->word, &slot.word, mine, memory_order_seq_cst,
							     memory_order_relaxed))
			continue;
		RB_CRASH_POINT(claim_owned);
		/* claim:I relaxed: where to begin next time */
		atomic_store_explicit(&self->claimed, slot.index, memory_order_relaxed);
		/* claim:F relaxed: the word publishes them; atomic because a filtering take may look at them early */
		atomic_store_explicit(&desc->tag, tag, memory_order_relaxed);
		/* claim:G relaxed: as claim:F */
		atomic_store_explicit(&desc->target, target, memory_order_relaxed);
		RB_CRASH_POINT(claim_labelled);
		/* claim:H release, pairs with bury:A, look:B: a burial that finds our word here finds our tag */
		atomic_store_explicit(&desc->claimed, mine, memory_order_release);
		RB_CRASH_POINT(claim_tagged);
		if (overwritten) {
			rb_count(&row_of(self)->dropped, 1);
			RB_CRASH_POINT(claim_counted);
		}
		*out = (struct rb_slot){
			.data = rb_payload(map, slot.index),
			.bytes = map->header.slot_bytes,
			.tag = tag,
			.target = target,
			.index = slot.index,
			.word = mine,
			.who = self->row + 1,
		};
		if (!is_finished(map))
			return 0;
		rb_ring_abort(self, out);
		return -EPIPE;
	}
	return -EAGAIN;
}

/* Clear one reader's bit in one READY message. Returns true when that freed the slot. */
static bool clear_bit(const struct rb_map *map, uint32_t index, uint64_t ticket, uint32_t bit, bool *cleared)
{
	struct rb_desc *desc = &map->descs[index];
	/* clear:A relaxed: a first guess for the CAS */
	uint64_t word = atomic_load_explicit(&desc->word, memory_order_relaxed);

	*cleared = false;
	/* Each failure is another reader that has cleared its bit of this message: there are only so many. */
	for (uint32_t tries = RB_READERS_MAX; tries > 0; tries--) {
		if (rb_word_state(word) != RB_READY || rb_word_seq(map, word) != ticket || !(rb_word_who(map, word) & bit))
			return false;
		uint32_t others = rb_word_who(map, word) & ~bit;
		uint64_t less = others ? rb_word(map, RB_READY, others, ticket) : rb_word(map, RB_FREE, 0, ticket);

		/* clear:B seq_cst, pairs with claim:C: our reads are done; the readers' CASes form one release
		 * sequence, so the next writer acquires from all of them.
		 * clear:C relaxed on failure: another reader cleared its own bit, look again */
		if (atomic_compare_exchange_strong_explicit(&desc->word, &word, less, memory_order_seq_cst,
							    memory_order_relaxed)) {
			RB_CRASH_POINT(bit_cleared);
			*cleared = true;
			return others == 0;
		}
	}
	return false;
}

/* Is reader b owed the message with this ticket? */
static bool entitled(const struct rb_map *map, int b, uint64_t ticket)
{
	/* entitled:A seq_cst, pairs with subscribe:C, unsubscribe:A: after our READY, who is there now? */
	if (!(atomic_load_explicit(&map->control->active, memory_order_seq_cst) & 1u << b))
		/* entitled:C seq_cst, pairs with unsubscribe:F: it may be looking at this one. If not, the reader's last
		 * sweep, which comes after this, clears the bit */
		return atomic_load_explicit(&map->control->readers[b].keeps, memory_order_seq_cst) != 0;
	/* entitled:B seq_cst, pairs with subscribe:B, subscribe:D: 0 until it has its first ticket, and looks itself */
	return atomic_load_explicit(&map->control->readers[b].start, memory_order_seq_cst) <= ticket;
}

static int clear_unentitled(const struct rb_map *map, uint32_t index, uint64_t ticket, uint32_t mask)
{
	bool cleared;
	int freed = 0;

	for (int b = 0; b < (int)RB_READERS_MAX; b++)
		if (mask & 1u << b && !entitled(map, b, ticket))
			freed += clear_bit(map, index, ticket, 1u << b, &cleared);
	return freed;
}

static int commit_to_queue(const struct rb_self *self, const struct rb_slot *slot)
{
	const struct rb_map *map = self->map;
	uint64_t expected = slot->word;
	/* commit:A acq_rel, pairs with take:A, future:A: who sees this ticket drawn sees the commits that came before it */
	uint64_t ticket = atomic_fetch_add_explicit(&map->control->tickets, 1, memory_order_acq_rel);

	RB_CRASH_POINT(commit_ticketed);
	/* commit:C release, pairs with take:C, claim:C, return_slots:A, look:A, take:H, ready:A: payload and record before the word that publishes them.
	 * commit:D relaxed on failure: it is not ours, nothing was read */
	if (!atomic_compare_exchange_strong_explicit(&map->descs[slot->index].word, &expected,
						     rb_word(map, RB_READY, 0, ticket), memory_order_release,
						     memory_order_relaxed))
		return -ESTALE;
	RB_CRASH_POINT(commit_published);
	return 0;
}

static int commit_to_readers(const struct rb_self *self, const struct rb_slot *slot)
{
	const struct rb_map *map = self->map;
	uint64_t expected = slot->word;
	/* commit:E seq_cst, pairs with subscribe:D, subscribe:F: the ticket first; a reader that starts later is not owed it */
	uint64_t ticket = atomic_fetch_add_explicit(&map->control->tickets, 1, memory_order_seq_cst);

	RB_CRASH_POINT(commit_ticketed);
	/* commit:F seq_cst, pairs with subscribe:C: then who is there */
	uint32_t mask = atomic_load_explicit(&map->control->active, memory_order_seq_cst) & 0xffffu;
	uint64_t word = mask ? rb_word(map, RB_READY, mask, ticket) : rb_word(map, RB_FREE, 0, ticket);

	/* commit:G seq_cst, pairs with take:D, unsubscribe:B, sweep:A, ready:A: published before entitled() looks again; acts as commit:C.
	 * commit:H relaxed on failure: it is not ours, nothing was read */
	if (!atomic_compare_exchange_strong_explicit(&map->descs[slot->index].word, &expected, word,
						     memory_order_seq_cst, memory_order_relaxed))
		return -ESTALE;
	RB_CRASH_POINT(commit_published);
	clear_unentitled(map, slot->index, ticket, mask);
	RB_CRASH_POINT(commit_rechecked);
	if (mask == 0)
		rb_count(&row_of(self)->dropped, 1);
	return 0;
}

int rb_ring_commit(const struct rb_self *self, const struct rb_slot *slot, uint64_t bytes)
{
	struct rb_desc *desc = &self->map->descs[slot->index];
	int rc;

	/* commit:B relaxed: only to keep a stale caller from writing `bytes` of a slot that is somebody else's */
	if (atomic_load_explicit(&desc->word, memory_order_relaxed) != slot->word)
		return -ESTALE;
	/* commit:I relaxed: the word publishes it; atomic so that a hostile peer cannot change it between two reads */
	atomic_store_explicit(&desc->bytes, bytes, memory_order_relaxed);
	RB_CRASH_POINT(commit_sized);
	rc = self->map->header.mode == RB_BROADCAST ? commit_to_readers(self, slot) : commit_to_queue(self, slot);
	if (rc < 0)
		return rc;
	rb_count(&row_of(self)->published, 1);
	RB_CRASH_POINT(commit_counted);
	return 0;
}

int rb_ring_abort(const struct rb_self *self, const struct rb_slot *slot)
{
	const struct rb_map *map = self->map;
	uint64_t expected = slot->word;

	/* abort:A release, pairs with claim:C: our writes are done before the next owner's begin.
	 * abort:B relaxed on failure: it is not ours, nothing was read */
	if (!atomic_compare_exchange_strong_explicit(&map->descs[slot->index].word, &expected, rb_ring_fresh_free(map),
						     memory_order_release, memory_order_relaxed))
		return -ESTALE;
	RB_CRASH_POINT(abort_freed);
	return 0;
}

void rb_ring_finish(const struct rb_map *map)
{
	/* finish:A seq_cst, pairs with finished:A: see "End" above */
	atomic_store_explicit(&map->control->finished, 1, memory_order_seq_cst);
	RB_CRASH_POINT(finish_set);
}

/* ---- consumer ------------------------------------------------------------------------------------ */

static bool accepts(const struct rb_filter *filter, const struct rb_desc *desc)
{
	if (!filter)
		return true;
	/* accepts:A relaxed: at least as new as the READY word it was found under; counts only if the CAS succeeds */
	if (filter->by_tag && atomic_load_explicit(&desc->tag, memory_order_relaxed) != filter->tag)
		return false;
	if (!filter->by_target)
		return true;
	/* accepts:B relaxed: as accepts:A */
	uint32_t target = atomic_load_explicit(&desc->target, memory_order_relaxed);
	return target == RB_ANY || target == filter->target;
}

static int our_reader(const struct rb_self *self)
{
	/* reader:A acquire, pairs with subscribe:E: another thread of this process subscribed us */
	return atomic_load_explicit(&self->reader, memory_order_acquire);
}

/* Is this message, found READY in slot i, waiting for us? In broadcast, READY stays READY while we hold it. */
static bool awaits_us(const struct rb_self *self, int reader, uint32_t i, uint64_t word)
{
	const struct rb_map *map = self->map;

	if (rb_word_state(word) != RB_READY)
		return false;
	if (map->header.mode == RB_QUEUE)
		return true;
	if (reader == RB_NO_READER || !(rb_word_who(map, word) & 1u << reader))
		return false;
	/* awaits:A relaxed: private to this process; hold:A decides between its threads */
	return atomic_load_explicit(&self->held[i], memory_order_relaxed) < rb_word_seq(map, word);
}

static struct found find_oldest_that(const struct rb_self *self, const struct rb_filter *filter, int reader)
{
	const struct rb_map *map = self->map;
	struct found best = { .index = NONE };
	uint64_t best_seq = UINT64_MAX;

	for (uint32_t i = 0; i < map->header.slots; i++) {
		/* take:D acquire, pairs with commit:G: the tag and target that we filter by belong to this word */
		uint64_t word = atomic_load_explicit(&map->descs[i].word, memory_order_acquire);

		if (!awaits_us(self, reader, i, word) || !accepts(filter, &map->descs[i]))
			continue;
		uint64_t seq = rb_word_seq(map, word);
		if (seq < best_seq) {
			best = (struct found){ .index = i, .word = word };
			best_seq = seq;
		}
	}
	return best;
}

/* The oldest acceptable message, if it is below the horizon: it is then the oldest of those that are. Else all are beyond it,
 * and *beyond is one of them. */
static struct found find_oldest(const struct rb_self *self, const struct rb_filter *filter, int reader,
				struct found *beyond)
{
	const struct rb_map *map = self->map;
	/* take:A acquire, pairs with commit:A: the horizon, before the scan: see "FIFO" above */
	uint64_t horizon = atomic_load_explicit(&map->control->tickets, memory_order_acquire);
	struct found none = { .index = NONE };
	struct found best = map->header.mode == RB_QUEUE && !filter ? find_oldest_ready(map)
								     : find_oldest_that(self, filter, reader);

	/* take:H acquire, pairs with commit:C: who has seen a word, by find:A too, sees its ticket drawn: is_from_the_future() asks */
	atomic_thread_fence(memory_order_acquire);
	*beyond = none;
	if (best.index != NONE && rb_word_seq(map, best.word) >= horizon) {
		*beyond = best;
		return none;
	}
	return best;
}

/* Make the found message ours. Returns the word under which we hold it, or 0: somebody else was faster. */
static uint64_t hold(const struct rb_self *self, struct found slot)
{
	const struct rb_map *map = self->map;
	uint64_t ticket = rb_word_seq(map, slot.word);

	if (map->header.mode == RB_BROADCAST) {
		/* hold:B relaxed: private to this process */
		uint64_t last = atomic_load_explicit(&self->held[slot.index], memory_order_relaxed);

		/* hold:A relaxed: only our own threads compete here, and the message stays until our bit is cleared.
		 * A slot's tickets only grow: `last` beyond ours means that we looked long ago. */
		return last < ticket && atomic_compare_exchange_strong_explicit(&self->held[slot.index], &last, ticket,
										 memory_order_relaxed,
										 memory_order_relaxed)
			       ? slot.word : 0;
	}
	uint64_t mine = rb_word(map, RB_READING, self->row + 1, ticket);
	/* take:C acquire, pairs with commit:C, hand_on:A: payload and record are as committed.
	 * take:B relaxed on failure: another consumer has it, look again */
	return atomic_compare_exchange_strong_explicit(&map->descs[slot.index].word, &slot.word, mine,
						       memory_order_acquire, memory_order_relaxed)
		       ? mine : 0;
}

/* No ticket is on a word before it is drawn from the counter: if this one is, somebody scribbled. Waiting for the
 * counter to reach it would be waiting for ever; free the slot instead. */
static bool is_from_the_future(const struct rb_map *map, struct found slot)
{
	/* future:A acquire, pairs with commit:A: we have seen the word, so we see its ticket drawn */
	if (rb_word_seq(map, slot.word) < atomic_load_explicit(&map->control->tickets, memory_order_acquire))
		return false;
	/* future:B relaxed: nothing of it can be trusted */
	return atomic_compare_exchange_strong_explicit(&map->descs[slot.index].word, &slot.word, rb_ring_fresh_free(map),
						       memory_order_relaxed, memory_order_relaxed);
}

int rb_ring_take(const struct rb_self *self, const struct rb_filter *filter, struct rb_slot *out, bool *freed)
{
	const struct rb_map *map = self->map;

	*freed = false;
	for (uint32_t tries = most_tries(map); tries > 0; tries--) {
		int reader = our_reader(self);
		struct found beyond;
		struct found slot = find_oldest(self, filter, reader, &beyond);

		if (slot.index == NONE && beyond.index == NONE)
			return -EAGAIN;
		if (slot.index == NONE) {
			/* Committed during the scan: with a new horizon it counts. */
			if (!is_from_the_future(map, beyond))
				continue;
			*freed = true;
			return -EBADMSG;
		}
		if (map->header.mode == RB_BROADCAST && !entitled(map, reader, rb_word_seq(map, slot.word))) {
			*freed |= clear_unentitled(map, slot.index, rb_word_seq(map, slot.word), 1u << reader) > 0;
			continue;
		}
		uint64_t word = hold(self, slot);
		if (word == 0)
			continue;
		RB_CRASH_POINT(take_owned);

		const struct rb_desc *desc = &map->descs[slot.index];
		*out = (struct rb_slot){
			.data = rb_payload(map, slot.index),
			/* take:G relaxed: read once, then checked; ordered by the word we hold */
			.bytes = atomic_load_explicit(&desc->bytes, memory_order_relaxed),
			/* take:E relaxed: ordered by the word we hold */
			.tag = atomic_load_explicit(&desc->tag, memory_order_relaxed),
			.ticket = rb_word_seq(map, slot.word),
			/* take:F relaxed: as take:E */
			.target = atomic_load_explicit(&desc->target, memory_order_relaxed),
			.index = slot.index,
			.word = word,
			.who = self->row + 1,
		};
		if (out->bytes <= map->header.slot_bytes)
			return 0;
		/* No commit of ours writes such a length; somebody scribbled. Nothing of it can be trusted. */
		*freed |= rb_ring_release(self, out) == 0;
		return -EBADMSG;
	}
	return -EAGAIN;
}

int rb_ring_release(const struct rb_self *self, const struct rb_slot *slot)
{
	const struct rb_map *map = self->map;
	uint64_t expected = slot->word;
	bool ours;

	if (map->header.mode == RB_BROADCAST) {
		int reader = our_reader(self);
		if (reader == RB_NO_READER)
			return -ESTALE;
		clear_bit(map, slot->index, slot->ticket, 1u << reader, &ours);
	} else {
		/* release:A release, pairs with claim:C: our reads are done before the next writer begins.
		 * release:B relaxed on failure: it is not ours, nothing was read */
		ours = atomic_compare_exchange_strong_explicit(&map->descs[slot->index].word, &expected,
							       rb_word(map, RB_FREE, 0, slot->ticket),
							       memory_order_release, memory_order_relaxed);
	}
	if (!ours)
		return -ESTALE;
	RB_CRASH_POINT(release_freed);
	rb_count(&row_of(self)->consumed, 1);
	RB_CRASH_POINT(release_counted);
	return 0;
}

bool rb_ring_drained(const struct rb_self *self, const struct rb_filter *filter)
{
	const struct rb_map *map = self->map;
	int reader = our_reader(self);

	if (!is_finished(map))
		return false;
	for (uint32_t i = 0; i < map->header.slots; i++) {
		/* drained:A seq_cst, pairs with claim:C: see "End" above */
		uint64_t word = atomic_load_explicit(&map->descs[i].word, memory_order_seq_cst);

		if (rb_word_state(word) == RB_WRITING)
			return false; /* claimed before the end, may still be committed, as anything */
		if (awaits_us(self, reader, i, word) && accepts(filter, &map->descs[i]))
			return false;
	}
	return true;
}

int rb_ring_ready(const struct rb_self *self, const struct rb_filter *filter)
{
	int reader = our_reader(self);
	int n = 0;

	for (uint32_t i = 0; i < self->map->header.slots; i++) {
		/* ready:A acquire, pairs with commit:C, commit:G: the tag and target that we filter by belong to this word */
		uint64_t word = atomic_load_explicit(&self->map->descs[i].word, memory_order_acquire);
		n += awaits_us(self, reader, i, word) && accepts(filter, &self->map->descs[i]);
	}
	return n;
}

bool rb_ring_claimable(const struct rb_self *self)
{
	return is_finished(self->map) || find_claimable(self).index != NONE;
}

/* ---- broadcast: coming and going ------------------------------------------------------------------ */

int rb_ring_subscribe(struct rb_self *self)
{
	struct rb_control *control = self->map->control;

	for (int b = 0; b < (int)RB_READERS_MAX; b++) {
		struct rb_reader *reader = &control->readers[b];
		uint32_t nobody = 0;

		/* subscribe:A acq_rel, pairs with unsubscribe:D, end_readers:A: the last owner's bits are all cleared.
		 * The same CAS writes our name: if we die now, our reaper finds the entry. */
		if (!atomic_compare_exchange_strong_explicit(&reader->owner, &nobody, self->row + 1, memory_order_acq_rel,
							     memory_order_relaxed))
			continue;
		RB_CRASH_POINT(subscribe_owned);
		/* subscribe:B seq_cst, pairs with entitled:B: until our first ticket stands there, nobody else can tell what we
		 * are owed: a commit that looks between subscribe:F and subscribe:D may be owed to us, and must not clear our bit */
		atomic_store_explicit(&reader->start, 0, memory_order_seq_cst);
		/* subscribe:C seq_cst, pairs with commit:F, entitled:A: active first ... */
		atomic_fetch_or_explicit(&control->active, 1u << b, memory_order_seq_cst);
		RB_CRASH_POINT(subscribe_active);
		/* subscribe:F seq_cst, pairs with commit:E: ... then the first ticket: a commit that draws it or a later one sees us */
		uint64_t first = atomic_load_explicit(&control->tickets, memory_order_seq_cst);
		/* subscribe:D seq_cst, pairs with entitled:B, commit:E: as subscribe:F */
		atomic_store_explicit(&reader->start, first, memory_order_seq_cst);
		RB_CRASH_POINT(subscribe_started);
		/* subscribe:E release, pairs with reader:A, enter_reader:A: for the other threads of this process */
		atomic_store_explicit(&self->reader, b, memory_order_release);
		return 0;
	}
	return -EUSERS;
}

int rb_ring_withdraw(const struct rb_map *map, int b, const _Atomic uint64_t *held)
{
	int freed = 0;

	/* unsubscribe:F seq_cst, pairs with entitled:C: who sees us inactive sees this */
	atomic_store_explicit(&map->control->readers[b].keeps, held != NULL, memory_order_seq_cst);
	RB_CRASH_POINT(unsubscribe_announced);
	/* unsubscribe:A seq_cst, pairs with entitled:A: inactive first: a commit that still saw us looks again after
	 * it has published, and clears our bit; one that had published before is found by the sweep */
	atomic_fetch_and_explicit(&map->control->active, ~(1u << b), memory_order_seq_cst);
	RB_CRASH_POINT(unsubscribe_inactive);
	for (uint32_t i = 0; i < map->header.slots; i++) {
		/* unsubscribe:B seq_cst, pairs with commit:G: see unsubscribe:A */
		uint64_t word = atomic_load_explicit(&map->descs[i].word, memory_order_seq_cst);
		uint64_t ticket = rb_word_seq(map, word);
		bool cleared;

		/* unsubscribe:E relaxed: private to this process, whose takes are over */
		if (held && atomic_load_explicit(&held[i], memory_order_relaxed) == ticket)
			continue; /* in our hands: rb_ring_release() will clear it */
		if (rb_word_state(word) == RB_READY)
			freed += clear_bit(map, i, ticket, 1u << b, &cleared);
	}
	return freed;
}

int rb_ring_unsubscribe(const struct rb_map *map, int b)
{
	struct rb_control *control = map->control;
	int freed = rb_ring_withdraw(map, b, NULL);

	RB_CRASH_POINT(unsubscribe_swept);
	/* unsubscribe:C relaxed: the next owner writes it again before it is active */
	atomic_store_explicit(&control->readers[b].start, UINT64_MAX, memory_order_relaxed);
	/* unsubscribe:D release, pairs with subscribe:A: all our bits are cleared before the entry is somebody else's */
	atomic_store_explicit(&control->readers[b].owner, 0, memory_order_release);
	RB_CRASH_POINT(unsubscribe_ended);
	return freed;
}

int rb_ring_clear_unentitled(const struct rb_map *map)
{
	int freed = 0;

	for (uint32_t i = 0; i < map->header.slots; i++) {
		/* sweep:A seq_cst, pairs with commit:G: a word that turns READY later has a living producer, who looks himself */
		uint64_t word = atomic_load_explicit(&map->descs[i].word, memory_order_seq_cst);

		if (rb_word_state(word) == RB_READY)
			freed += clear_unentitled(map, i, rb_word_seq(map, word), rb_word_who(map, word));
	}
	return freed;
}
