/* Sleeping until something changes: an event count in one 32-bit word.
 *
 *     waiter                                   notifier
 *     seen = rb_event_prepare(e)               change what the waiter looks at
 *     look again; leave if it is there         rb_event_notify(e)
 *     rb_event_sleep(e, seen, until)
 *
 * Key invariant: either the waiter's second look sees the change, or the notifier sees the waiter's flag.
 * Both sides write, then fence, then read (prepare:B, notify:A); one of the two reads comes last.
 *
 * bit 0 of the word: FLAG, somebody may be asleep; bits 1-31: epoch. A notifier that sees FLAG moves the
 * epoch and clears FLAG in one CAS and wakes all; one that does not see it makes no system call. A waiter
 * sleeps only while the word is the one it saw, so a wake-up between its look and its sleep is not missed.
 *
 * Whoever looks for a while without having prepared (spin() in ringbuf.c) is nobody's concern, and costs no notifier anything.
 *
 * A notifier killed between its CAS and the kernel call loses a wake-up: no protocol over futexes avoids
 * that. So no sleep may be unbounded: callers pass an `until` at most a slice away and then look again.
 *
 * Where the kernel refuses to put anybody to sleep on the word (a sandbox), a sleep is a nap of a millisecond, which no
 * notifier ends.
 *
 * Wakes everybody, always: waking one loses wake-ups unless the epoch moves twice (found by model checking). */
#ifndef RB_WAIT_H
#define RB_WAIT_H

#include "layout.h"

/* Prepare an event in a segment that nobody else sees yet. Returns 0 or a negative errno. */
RB_PRIVATE int rb_event_init(struct rb_event *event);

/* Announce that we are about to sleep. Returns the word to sleep on; look again before sleeping. */
RB_PRIVATE uint32_t rb_event_prepare(struct rb_event *event);

/* Sleep until notified or until `until_ns` on CLOCK_MONOTONIC. Returns 0 when notified, perhaps for nothing;
 * -ETIMEDOUT; -EINTR when a signal arrived. Blocks. */
RB_PRIVATE int rb_event_sleep(struct rb_event *event, uint32_t seen, int64_t until_ns);

/* Wake everybody who saw the event before now. One fence and one load when nobody sleeps. */
RB_PRIVATE void rb_event_notify(struct rb_event *event);

#endif
