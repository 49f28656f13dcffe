/* See stats.h. */
#define _GNU_SOURCE
#include "stats.h"

#include <errno.h>
#include <stdbool.h>

#define LOOKS 16 /* at a slot that changes hands meanwhile */

static uint64_t value(const _Atomic uint64_t *counter)
{
	/* value:A relaxed: counters order nothing */
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void count_slots(const struct rb_map *map, struct rb_stats *out)
{
	for (uint32_t i = 0; i < map->header.slots; i++) {
		/* count_slots:A relaxed: a picture for people, old when it is printed */
		uint64_t word = atomic_load_explicit(&map->descs[i].word, memory_order_relaxed);

		switch (rb_word_state(word)) {
		case RB_FREE: out->free++; break;
		case RB_WRITING: out->writing++; break;
		case RB_READY: out->ready++; break;
		case RB_READING: out->reading++; break;
		}
	}
}

void rb_stats_collect(const struct rb_map *map, struct rb_stats *out)
{
	*out = (struct rb_stats){ 0 };
	for (uint32_t p = 0; p < map->header.participants; p++) {
		const struct rb_row *row = &map->rows[p];

		out->published += value(&row->published);
		out->consumed += value(&row->consumed);
		out->dropped += value(&row->dropped);
		out->lost += value(&row->lost);
		out->waits += value(&row->waits);
		out->wait_ns += value(&row->wait_ns);
		/* collect:A relaxed: a picture for people */
		out->participants += atomic_load_explicit(&row->joined, memory_order_relaxed) != 0;
	}
	count_slots(map, out);
	/* collect:B relaxed: a picture for people */
	out->readers = (uint32_t)__builtin_popcount(atomic_load_explicit(&map->control->active, memory_order_relaxed));
	/* collect:C relaxed: a picture for people */
	out->finished = atomic_load_explicit(&map->control->finished, memory_order_relaxed) != 0;
}

/* Which row a reader's entry of a broadcast belongs to, plus one; 0: nobody's, or not of one that there is. */
static uint32_t reader_row(const struct rb_map *map, uint32_t reader)
{
	/* reader_row:A relaxed: a picture for people */
	uint32_t owner = atomic_load_explicit(&map->control->readers[reader].owner, memory_order_relaxed);

	return owner <= map->header.participants ? owner : 0;
}

/* What one slot adds to what its owner, or in broadcast its readers, have in hand. by_row: by row, NULL where nobody is. */
static void add_slot(const struct rb_map *map, uint64_t word, const uint32_t *reader_rows, struct rb_peer **by_row)
{
	enum rb_state state = rb_word_state(word);
	uint32_t who = rb_word_who(map, word);

	if (state == RB_WRITING || state == RB_READING) {
		struct rb_peer *owner = who >= 1 && who <= map->header.participants ? by_row[who - 1] : NULL;
		if (owner)
			*(state == RB_WRITING ? &owner->writing : &owner->reading) += 1;
	} else if (state == RB_READY && map->header.mode == RB_BROADCAST) {
		for (uint32_t b = 0; b < RB_READERS_MAX; b++)
			if (who >> b & 1 && reader_rows[b] && by_row[reader_rows[b] - 1])
				by_row[reader_rows[b] - 1]->owed++;
	}
}

uint32_t rb_stats_peers(const struct rb_map *map, struct rb_peer *out)
{
	struct rb_peer *by_row[RB_PARTICIPANTS_MAX];
	uint32_t reader_rows[RB_READERS_MAX], n = 0;

	for (uint32_t p = 0; p < map->header.participants; p++) {
		const struct rb_row *row = &map->rows[p];

		by_row[p] = NULL;
		/* peers:A acquire, pairs with join:D: the pid is of who joined */
		if (!atomic_load_explicit(&row->joined, memory_order_acquire))
			continue;
		by_row[p] = &out[n++];
		*by_row[p] = (struct rb_peer){
			.pid = value(&row->pid),
			.joined_ns = (int64_t)value(&row->joined_ns),
			.published = value(&row->published),
			.consumed = value(&row->consumed),
			.waits = value(&row->waits),
			.wait_ns = value(&row->wait_ns),
			.row = p,
		};
	}
	for (uint32_t b = 0; b < RB_READERS_MAX; b++)
		reader_rows[b] = reader_row(map, b);
	for (uint32_t i = 0; i < map->header.slots; i++)
		add_slot(map, value(&map->descs[i].word), reader_rows, by_row);
	return n;
}

uint64_t rb_stats_message_bytes(const struct rb_map *map)
{
	uint64_t slots = 0, bytes = 0;

	for (uint32_t i = 0; i < map->header.slots; i++) {
		uint64_t sent = value(&map->descs[i].bytes);

		if (sent == 0 || sent > map->header.slot_bytes)
			continue; /* none yet, or not written by one of ours */
		bytes += sent; /* all of them are no more than the segment */
		slots++;
	}
	return slots ? bytes / slots : 0;
}

/* A reaper that died between logging a loss and counting it is followed by one that logs it again. */
static bool listed(uint64_t (*seen)[2], int n, uint64_t slot, uint64_t word)
{
	for (int i = 0; i < n; i++)
		if (seen[i][0] == slot && seen[i][1] == word)
			return true;
	return false;
}

int rb_stats_losses(const struct rb_map *map, struct rb_lost *out, uint32_t most)
{
	uint64_t seen[RB_LOST_LOG][2];
	/* losses:A acquire, pairs with log_loss:A: entries below it were at least begun */
	uint64_t end = atomic_load_explicit(&map->control->losses, memory_order_acquire);
	int n = 0;

	for (uint64_t k = 0; k < RB_LOST_LOG && k < end && (uint32_t)n < most; k++) {
		const struct rb_loss *loss = &map->control->log[(end - 1 - k) % RB_LOST_LOG];
		/* losses:B acquire, pairs with log_loss:B: the entry belongs to this word */
		uint64_t word = atomic_load_explicit(&loss->word, memory_order_acquire);
		uint64_t slot = value(&loss->slot);
		struct rb_lost lost = { .tag = value(&loss->tag), .pid = value(&loss->pid) };

		/* losses:D acquire, pairs with log_loss:D: if a newer entry showed through above, its zero shows here */
		atomic_thread_fence(memory_order_acquire);
		/* losses:C relaxed: ordered by the fence */
		if (word == 0 || atomic_load_explicit(&loss->word, memory_order_relaxed) != word)
			continue; /* being written, or written over, at this moment */
		if (listed(seen, n, slot, word))
			continue;
		seen[n][0] = slot;
		seen[n][1] = word;
		out[n++] = lost;
	}
	return n;
}

/* Who has this slot in hand, if its word names a process; the word of a hostile peer may name none that there is. */
static uint64_t holder(const struct rb_map *map, uint64_t word)
{
	uint32_t who = rb_word_who(map, word);

	if (rb_word_state(word) != RB_WRITING && rb_word_state(word) != RB_READING)
		return 0;
	if (who == 0 || who > map->header.participants)
		return 0;
	/* holder:A acquire, pairs with join:D: the pid is of who joined, also while his death is being seen to */
	if (!atomic_load_explicit(&map->rows[who - 1].joined, memory_order_acquire))
		return 0;
	return value(&map->rows[who - 1].pid);
}

int rb_stats_look(const struct rb_map *map, uint32_t index, struct rb_view *out)
{
	const struct rb_desc *desc = &map->descs[index];

	for (int looks = LOOKS; looks > 0; looks--) {
		/* look:A acquire, pairs with commit:C: tag and target of a message belong to this word or to a later one */
		uint64_t word = atomic_load_explicit(&desc->word, memory_order_acquire);
		enum rb_state state = rb_word_state(word);
		bool sent = state == RB_READY || state == RB_READING;
		/* look:B acquire, pairs with claim:H: of a claim, the tag that was written for it, or none */
		bool tagged = sent || (state == RB_WRITING &&
				       atomic_load_explicit(&desc->claimed, memory_order_acquire) == word);

		*out = (struct rb_view){
			.tag = tagged ? value(&desc->tag) : RB_TAG_UNKNOWN,
			.ticket = sent ? rb_word_seq(map, word) : 0,
			.word = word,
			.pid = holder(map, word),
			/* look:C relaxed: as the tag */
			.target = tagged ? atomic_load_explicit(&desc->target, memory_order_relaxed) : RB_ANY,
			.state = state,
		};
		/* look:D acquire, pairs with claim:C: who wrote a newer record has changed the word before */
		atomic_thread_fence(memory_order_acquire);
		/* look:E relaxed: ordered by the fence */
		if (atomic_load_explicit(&desc->word, memory_order_relaxed) == word)
			return 0;
	}
	return -EAGAIN;
}
