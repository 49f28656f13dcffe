/* The algorithm: who may touch which slot when. It only tries: no system call, clock, pid or sleep in here,
 * so a test can run every step of it under a schedule of its own. See ring.c for the orderings. */
#ifndef RB_RING_H
#define RB_RING_H

#include <stdbool.h>

#include "layout.h"

#define RB_NO_READER (-1)

/* On whose behalf a step is taken. One per handle, shared by its threads. */
struct rb_self {
	const struct rb_map *map;
	uint32_t row;              /* our index in the table of participants; words carry it plus one */
	_Atomic int reader;        /* broadcast: our entry among the readers, or RB_NO_READER */
	_Atomic uint32_t claimed;  /* our last slot: a claim looks there first; below map->header.slots */
	_Atomic uint64_t *held;    /* broadcast, [slots]: the last ticket taken from each slot, private to this process */
};

/* Claim a free slot: our last one, else of those near it the most recently used. Its lines are the likeliest to be in cache.
 * An overwriting ring gives up its oldest READY message when none is free.
 * Fills in everything but `life`. -EAGAIN: every slot is in use; -EPIPE: finished. */
RB_PRIVATE int rb_ring_claim(struct rb_self *self, uint64_t tag, uint32_t target, struct rb_slot *out);

/* Publish a claimed slot. -ESTALE: it is not ours. */
RB_PRIVATE int rb_ring_commit(const struct rb_self *self, const struct rb_slot *slot, uint64_t bytes);

/* Free a claimed slot unpublished. -ESTALE: it is not ours. */
RB_PRIVATE int rb_ring_abort(const struct rb_self *self, const struct rb_slot *slot);

/* Take the oldest message that the filter accepts. Fills in everything but `life`.
 * *freed is set when a slot became free on the way. -EAGAIN: none; -EBADMSG: its record was damaged, and is gone. */
RB_PRIVATE int rb_ring_take(const struct rb_self *self, const struct rb_filter *filter, struct rb_slot *out, bool *freed);

/* Give a taken slot back. -ESTALE: it is not ours. */
RB_PRIVATE int rb_ring_release(const struct rb_self *self, const struct rb_slot *slot);

/* Refuse claims from now on. */
RB_PRIVATE void rb_ring_finish(const struct rb_map *map);

/* Finished, with nothing left, nor under way, that the filter accepts? */
RB_PRIVATE bool rb_ring_drained(const struct rb_self *self, const struct rb_filter *filter);

/* Messages that a take with this filter would find now. */
RB_PRIVATE int rb_ring_ready(const struct rb_self *self, const struct rb_filter *filter);

/* Would a claim do anything but find every slot in use? */
RB_PRIVATE bool rb_ring_claimable(const struct rb_self *self);

/* Broadcast: become a reader. -EUSERS: all entries are in use. Words may carry our bit for messages older than our first
 * ticket, which commits made while we joined have left: takes clear them, rb_ring_clear_unentitled() does so at once. */
RB_PRIVATE int rb_ring_subscribe(struct rb_self *self);

/* Broadcast: entry `reader` is owed nothing any more. With `held` it keeps what it has taken and not released.
 * Returns the number of slots that became free. */
RB_PRIVATE int rb_ring_withdraw(const struct rb_map *map, int reader, const _Atomic uint64_t *held);

/* Broadcast: end entry `reader`, whoever owned it, and give up what it was owed. Idempotent.
 * Returns the number of slots that became free. */
RB_PRIVATE int rb_ring_unsubscribe(const struct rb_map *map, int reader);

/* Broadcast: clear, in every READY word, the bits of readers that are not entitled to it: a producer that died
 * before its own re-check leaves such bits. Returns the number of slots that became free. */
RB_PRIVATE int rb_ring_clear_unentitled(const struct rb_map *map);

/* A word that no slot has carried before: FREE under a fresh ticket. */
RB_PRIVATE uint64_t rb_ring_fresh_free(const struct rb_map *map);

#endif
