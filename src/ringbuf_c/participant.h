/* Who is attached, and who is alive.
 *
 * A participant is a row of the table and the lock on its byte, held through an open file description that
 * belongs to this handle alone. It is alive while that byte cannot be locked by others. Nothing else counts: not a pid
 * (they repeat, and differ between namespaces), not a clock (a stopped process is not dead), not a heartbeat.
 *
 * A forked child shares the description and would keep its dead parent looking alive; the handle's atfork
 * handler closes the child's copy (ringbuf.c). */
#ifndef RB_PARTICIPANT_H
#define RB_PARTICIPANT_H

#include <stdbool.h>

#include "layout.h"

struct rb_member {
	int live;      /* the description that holds our locks; -1: none */
	uint32_t row;  /* ours once joined */
};

/* Open a description of our own on the segment behind `fd` and hold its life byte, if it has a name.
 * -ENOENT: we came by name, and the segment has lost it, or is losing it now. After a failure nothing is held. */
RB_PRIVATE int rb_member_open(const struct rb_map *map, int fd, bool by_name, struct rb_member *member);

/* Take a vacant row. -EUSERS: there is none; those of the dead are not vacant before they are reaped. Others as from the
 * system, when it gives no locks. */
RB_PRIVATE int rb_member_join(const struct rb_map *map, struct rb_member *member);

/* Give up the row; its slots have been returned. Returns true when the segment has a name and nobody else is
 * attached: the life byte is then held exclusively until rb_member_close(). */
RB_PRIVATE bool rb_member_leave(const struct rb_map *map, struct rb_member *member);

/* Drop the description and with it every lock. Safe on a member that is closed already. */
RB_PRIVATE void rb_member_close(struct rb_member *member);

/* Hold the byte of another row whose participant is dead. While we hold it nobody becomes that participant and
 * nobody else reaps it. Returns false when it is alive, vacant or being reaped by somebody else.
 * Not to be called by two threads on one member: locks of one description do not exclude each other. */
RB_PRIVATE bool rb_member_seize(const struct rb_map *map, const struct rb_member *self, uint32_t row);

/* Is somebody alive who holds a row, or anything at all, of the segment behind `fd`? Takes no lock: a descriptor for reading will do.
 * Returns 1, 0, or a negative errno. */
RB_PRIVATE int rb_member_is_alive(int fd, uint32_t row);
RB_PRIVATE int rb_member_anybody_alive(int fd);

/* Let go of a seized row, vacant from now on. */
RB_PRIVATE void rb_member_vacate(const struct rb_map *map, const struct rb_member *self, uint32_t row);

#endif
