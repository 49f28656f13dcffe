/* A ring for fibers to share: the bytes of a segment without the kernel around them, a participant for each fiber, and
 * one more, the last row, for the checks. Record locks and futexes are simulated (world.c): a fiber's locks go when it dies. */
#ifndef WORLD_H
#define WORLD_H

#include "scheduler.h"

#include "handle.h"
#include "participant.h"
#include "recover.h"
#include "ring.h"
#include "stats.h"

#define WORLD_SLOTS_MAX 3
#define WORLD_ROWS_MAX (SCHED_FIBERS_MAX + 1)
#define WORLD_MESSAGES_MAX 7

#define WORLD_CHANGE 2u /* event: a slot's word has changed, or the ring is finished */

/* All that steps may touch. */
extern struct world {
	struct rb_control control;
	struct rb_row rows[WORLD_ROWS_MAX];
	struct rb_desc descs[WORLD_SLOTS_MAX];
	uint64_t payload[WORLD_SLOTS_MAX][2];
	uint64_t locks[WORLD_ROWS_MAX];        /* who holds each row's byte, plus one; 0: nobody */
	uint64_t asleep[SCHED_FIBERS_MAX];     /* address of the futex that the fiber sleeps on; 0: it does not */
	struct rb_self selves[SCHED_FIBERS_MAX];
	struct rb_ring rings[SCHED_FIBERS_MAX]; /* handles, for the calls of ringbuf.h */
	uint64_t populated;
	_Atomic uint64_t held[SCHED_FIBERS_MAX][WORLD_SLOTS_MAX];
} world;

extern struct rb_map world_map;
extern struct rb_member world_members[WORLD_ROWS_MAX]; /* by fiber; the last is the checks' */

/* An empty ring. `rows`: one for each fiber, and one. */
void world_prepare(uint32_t slots, uint32_t rows, enum rb_mode mode, enum rb_full full, bool redeliver);

/* Which slot's word is this; -1: none. */
int world_slot_of(const volatile void *at);

/* Of any write to a slot's word: it names a participant that is there, and a ticket that was drawn, not an older one. */
void world_check_word(int slot, uint64_t old, uint64_t new);

/* Of any other write: nobody gives up a row that a slot names; no loss is counted or listed that is none. */
void world_check_rest(const volatile void *at, uint64_t lost);

/* May the one whose step this is act for the dead `fiber`? */
bool world_reaps(int fiber);

/* Reap in the checks' name. Returns whether there was somebody to reap. */
bool world_reap(void);

/* A slice of time has passed: whoever sleeps on a futex looks again. Returns whether anybody slept. */
bool world_slice(void);

/* At the end: the dead are reaped, and exactly these losses are counted and listed: `lost` messages, by tag or not. */
void world_check_losses(uint32_t lost, uint32_t tagged);

/* A fiber that reaps once at any time, and again whenever somebody has died. */
void world_reaper(int me);

/* The message in a slot: its tag, then the same inverted, in a step each. `word` is under what the fiber holds the slot. */
void world_fill(int slot, uint64_t tag, uint64_t word);
void world_verify(int slot, uint64_t tag, uint64_t word);

/* The program says whether this word still lets the fiber touch the slot that it holds under `held`. */
bool check_holds(int me, uint64_t word, uint64_t held);

#endif
