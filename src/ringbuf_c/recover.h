/* Returning what the dead held. Any process may do it, at any time; being killed while doing it harms nobody:
 * every step is one CAS, or says the same when it is repeated. */
#ifndef RB_RECOVER_H
#define RB_RECOVER_H

#include "participant.h"

/* Reap every dead participant but ourselves. Makes a few system calls for each row in use, never blocks.
 * Returns the number of slots that came back: some may be READY again, some FREE.
 * Not to be called by two threads on one member (see rb_member_seize). */
RB_PRIVATE int rb_recover_dead(const struct rb_map *map, const struct rb_member *self);

/* Return all that our own row holds, before we leave: claims are aborted, not lost. Returns their number. */
RB_PRIVATE int rb_recover_own(const struct rb_map *map, uint32_t row);

#endif
