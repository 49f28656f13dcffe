/* Counters: each row counts what its participant did; a ring's total is the sum over its rows. */
#ifndef RB_STATS_H
#define RB_STATS_H

#include "layout.h"

/* Threads share their handle's row, so counting is a read-modify-write; the line is this process's own. */
static inline void rb_count(_Atomic uint64_t *counter, uint64_t amount)
{
	/* count:A relaxed: counters order nothing */
	atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

/* Sum up the rows and look at every slot once. Never blocks; others go on meanwhile. */
RB_PRIVATE void rb_stats_collect(const struct rb_map *map, struct rb_stats *out);

/* Everybody in the table: what their rows count, and what they have in hand. `out` has room for all rows; nobody is known to be alive.
 * Returns how many there are. */
RB_PRIVATE uint32_t rb_stats_peers(const struct rb_map *map, struct rb_peer *out);

/* Bytes of the latest message of each slot, on average; 0: there was none. */
RB_PRIVATE uint64_t rb_stats_message_bytes(const struct rb_map *map);

/* The most recent losses, newest first, each once. Returns how many were filled in. */
RB_PRIVATE int rb_stats_losses(const struct rb_map *map, struct rb_lost *out, uint32_t most);

/* One slot, its record as it belongs to its word. -EAGAIN: others changed it at each of several looks. */
RB_PRIVATE int rb_stats_look(const struct rb_map *map, uint32_t index, struct rb_view *out);

#endif
