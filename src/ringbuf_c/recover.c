/* One function per state that a death can leave (crash_points.def lists them):
 *
 *   WRITING(p)           the message is lost: bury it
 *   READING(p)           hand it on under its old ticket, or drop it
 *   reader entry of p    give up what it is owed
 *   READY with bits of departed readers, because p died before its re-check: clear them
 *   a burial that a reaper of p did not finish: finish it
 *
 * Everything below runs under the lock on p's byte: p does not run any more, nobody becomes p, nobody else reaps p. That
 * also keeps READING(p,t) unique while it may recur after a redelivery.
 *
 * A loss is counted exactly once although the reaper may die between any two steps:
 *   1 note slot, tag and the count to be, then the word (grave_word != 0: a burial is under way)
 *   2 CAS the slot from that word to FREE     a repeat finds another word there and does nothing
 *   3 write the loss to the log               a repeat lists it twice; readers tell by slot and word (stats.c)
 *   4 lost = the count to be                  a repeat stores the same number
 *   5 grave_word = 0 */
#define _GNU_SOURCE
#include "recover.h"

#include "crash_points.h"
#include "ring.h"
#include "stats.h"

static void log_loss(const struct rb_map *map, uint64_t slot, uint64_t word, uint64_t tag, uint64_t pid)
{
	/* log_loss:A acq_rel, pairs with losses:A: a place in the log of our own */
	uint64_t at = atomic_fetch_add_explicit(&map->control->losses, 1, memory_order_acq_rel);
	struct rb_loss *loss = &map->control->log[at % RB_LOST_LOG];

	RB_CRASH_POINT(log_drawn);
	/* log_loss:C relaxed: the entry is nobody's while it is written; ordered by the fence */
	atomic_store_explicit(&loss->word, 0, memory_order_relaxed);
	RB_CRASH_POINT(log_voided);
	/* log_loss:D release, pairs with losses:D: the zero before the fields */
	atomic_thread_fence(memory_order_release);
	/* log_loss:E relaxed: published by log_loss:B */
	atomic_store_explicit(&loss->slot, slot, memory_order_relaxed);
	/* log_loss:F relaxed: as log_loss:E */
	atomic_store_explicit(&loss->tag, tag, memory_order_relaxed);
	/* log_loss:G relaxed: as log_loss:E */
	atomic_store_explicit(&loss->pid, pid, memory_order_relaxed);
	/* log_loss:B release, pairs with losses:B: the fields before the word that makes the entry valid */
	atomic_store_explicit(&loss->word, word, memory_order_release);
}

/* Steps 2 to 5 for the burial noted in this row, if there is one. Returns the number of slots freed. */
static int finish_burial(const struct rb_map *map, struct rb_row *row)
{
	/* finish_burial:A acquire, pairs with bury:B, finish_burial:H: the note belongs to the word */
	uint64_t word = atomic_load_explicit(&row->grave_word, memory_order_acquire);
	/* finish_burial:B relaxed: ordered by finish_burial:A */
	uint64_t slot = atomic_load_explicit(&row->grave_slot, memory_order_relaxed);
	/* finish_burial:C relaxed: as finish_burial:B */
	uint64_t tag = atomic_load_explicit(&row->grave_tag, memory_order_relaxed);
	/* finish_burial:D relaxed: as finish_burial:B */
	uint64_t count = atomic_load_explicit(&row->grave_count, memory_order_relaxed);
	int freed = 0;

	if (word == 0)
		return 0;
	if (slot < map->header.slots) { /* else somebody scribbled on the note */
		uint64_t expected = word;
		/* finish_burial:E acq_rel, pairs with claim:C: acts as the dead producer's abort */
		freed = atomic_compare_exchange_strong_explicit(&map->descs[slot].word, &expected,
								rb_ring_fresh_free(map), memory_order_acq_rel,
								memory_order_relaxed);
		RB_CRASH_POINT(bury_freed);
		/* finish_burial:F relaxed: written by the dead holder, whom the lock has ordered before us */
		log_loss(map, slot, word, tag, atomic_load_explicit(&row->pid, memory_order_relaxed));
		RB_CRASH_POINT(bury_logged);
	}
	/* finish_burial:G relaxed: a counter; finish_burial:H keeps it before the end of the burial */
	atomic_store_explicit(&row->lost, count, memory_order_relaxed);
	RB_CRASH_POINT(bury_counted);
	/* finish_burial:H release, pairs with finish_burial:A: all of it done before the note is void */
	atomic_store_explicit(&row->grave_word, 0, memory_order_release);
	RB_CRASH_POINT(bury_closed);
	return freed;
}

static int bury(const struct rb_map *map, struct rb_row *row, uint32_t slot, uint64_t word)
{
	struct rb_desc *desc = &map->descs[slot];
	/* bury:A acquire, pairs with claim:H: if the tag was written for this word, read that tag */
	bool tagged = atomic_load_explicit(&desc->claimed, memory_order_acquire) == word;
	/* bury:C relaxed: ordered by bury:A */
	uint64_t tag = tagged ? atomic_load_explicit(&desc->tag, memory_order_relaxed) : RB_TAG_UNKNOWN;
	/* bury:D relaxed: only the holder of this row's byte changes it */
	uint64_t lost = atomic_load_explicit(&row->lost, memory_order_relaxed);

	/* bury:E relaxed: published by bury:B */
	atomic_store_explicit(&row->grave_slot, slot, memory_order_relaxed);
	/* bury:F relaxed: as bury:E */
	atomic_store_explicit(&row->grave_tag, tag, memory_order_relaxed);
	/* bury:G relaxed: as bury:E */
	atomic_store_explicit(&row->grave_count, lost + 1, memory_order_relaxed);
	RB_CRASH_POINT(bury_drafted);
	/* bury:B release, pairs with finish_burial:A: the note before the word that makes it valid */
	atomic_store_explicit(&row->grave_word, word, memory_order_release);
	RB_CRASH_POINT(bury_noted);
	return finish_burial(map, row);
}

/* A message whose consumer is gone: back to its place in the order, or dropped. Returns 1 if it was still there. */
static int hand_on(const struct rb_map *map, struct rb_row *row, uint32_t slot, uint64_t word)
{
	uint64_t next = map->header.redeliver ? rb_word(map, RB_READY, 0, rb_word_seq(map, word))
					      : rb_ring_fresh_free(map);

	/* hand_on:A acq_rel, pairs with take:C, claim:C: acts as the commit, or as the dead consumer's release */
	if (!atomic_compare_exchange_strong_explicit(&map->descs[slot].word, &word, next, memory_order_acq_rel,
						     memory_order_relaxed))
		return 0;
	if (!map->header.redeliver) {
		RB_CRASH_POINT(reap_dropped);
		rb_count(&row->dropped, 1);
	}
	return 1;
}

static int abandon(const struct rb_map *map, uint32_t slot, uint64_t word)
{
	/* abandon:A acq_rel, pairs with claim:C: acts as an abort */
	return atomic_compare_exchange_strong_explicit(&map->descs[slot].word, &word, rb_ring_fresh_free(map),
						       memory_order_acq_rel, memory_order_relaxed);
}

static int return_slots(const struct rb_map *map, uint32_t p, bool dead)
{
	struct rb_row *row = &map->rows[p];
	int returned = 0;

	for (uint32_t i = 0; i < map->header.slots; i++) {
		/* return_slots:A acquire, pairs with commit:C: a word that is not the dead one's any more is left alone */
		uint64_t word = atomic_load_explicit(&map->descs[i].word, memory_order_acquire);

		/* State and name: in broadcast, READY carries a mask in the same bits. */
		if (rb_word_who(map, word) != p + 1)
			continue;
		if (rb_word_state(word) == RB_WRITING)
			returned += dead ? bury(map, row, i, word) : abandon(map, i, word);
		else if (rb_word_state(word) == RB_READING)
			returned += hand_on(map, row, i, word);
		else
			continue;
		RB_CRASH_POINT(reap_returned);
	}
	return returned;
}

static int end_readers(const struct rb_map *map, uint32_t p)
{
	int freed = 0;

	for (int b = 0; b < (int)RB_READERS_MAX; b++)
		/* end_readers:A acquire, pairs with subscribe:A: p's entry, as far as p came */
		if (atomic_load_explicit(&map->control->readers[b].owner, memory_order_acquire) == p + 1)
			freed += rb_ring_unsubscribe(map, b);
	return freed;
}

static int return_all(const struct rb_map *map, uint32_t p, bool dead)
{
	int returned = finish_burial(map, &map->rows[p]);

	returned += return_slots(map, p, dead);
	if (map->header.mode == RB_BROADCAST)
		returned += end_readers(map, p);
	if (map->header.mode == RB_BROADCAST && dead)
		returned += rb_ring_clear_unentitled(map); /* who lives has looked again after each commit himself */
	return returned;
}

int rb_recover_dead(const struct rb_map *map, const struct rb_member *self)
{
	int returned = 0;

	for (uint32_t p = 0; p < map->header.participants; p++) {
		if (!rb_member_seize(map, self, p))
			continue;
		returned += return_all(map, p, true);
		rb_member_vacate(map, self, p);
	}
	return returned;
}

int rb_recover_own(const struct rb_map *map, uint32_t row)
{
	return return_all(map, row, false);
}
