/* Every schedule of a few fibers, and every death in it, within bounds.
 *
 * The fibers run library code whose shared accesses are steps (step_atomics.h). Before each step the scheduler decides who
 * makes the next one, or that somebody dies instead; it tries all decisions, depth first. Bounds:
 *
 *     preemptions   how often somebody is interrupted who could go on. Who waits, ends or dies gives way for free, to anybody.
 *     deaths        how many die; before any step of their own
 *     failures      how many weak compare-and-swaps fail for no reason
 *
 * A state that was seen before, with as many preemptions left, is not tried again: what would follow has been seen to be
 * well. Two states are the same when all shared bytes are, everything that the checks remember, and for each fiber all that
 * it has read since its last sched_mark() (from which everything on its stack follows). States are told apart by 60 bits
 * of a hash. A state is left by copying back the stacks and undoing the writes.
 *
 * A fiber may change only its own stack, shared memory through steps, and what sched_remember() was told of. */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHED_FIBERS_MAX 7

#define SCHED_BOUNDS_MAX 4

struct sched_bounds {
	int preemptions, deaths, failures;
	uint64_t random; /* not all, but so many at random, interrupted at will */
};

struct sched_fiber {
	const char *name;
	void (*run)(int me);
	bool mortal;
};

struct sched_case {
	const char *name;
	void (*prepare)(void);                      /* from nothing; sched_memory() and sched_remember() say what there is */
	struct sched_fiber fibers[SCHED_FIBERS_MAX];
	uint64_t option;                            /* for prepare() */
	struct sched_bounds usual[SCHED_BOUNDS_MAX], thorough[SCHED_BOUNDS_MAX]; /* each tried by itself; up to an empty one */
};

/* ---- what the programs are made of ------------------------------------------------------------------- */

/* main() of a sweep: [--thorough] [--bounds P,D,F,R] [CASE] [--replay SCHEDULE]. Prints figures, or the schedule that failed. */
int sched_main(int argc, char **argv, const struct sched_case *cases, int count);

extern const struct sched_case *sched_case; /* the one that is tried */

void sched_memory(void *base, size_t bytes);   /* all that steps may touch */
void sched_remember(void *base, size_t bytes); /* what the checks remember; no padding that differs */

/* In a fiber: its future depends only on `place` and `local` from here on, and on what is remembered and shared. */
#define sched_mark(local) sched_mark_at(__LINE__, (local))
void sched_mark_at(uint64_t place, uint64_t local);

/* In a fiber: look() before a try, wait() after it was in vain. Waits until one of `events` came since the look(), from somebody
 * else. The programs number their events, by bits; a death is one of them. */
#define SCHED_DEATH 1u
void sched_look(void);
void sched_wait(unsigned events);
void sched_event(unsigned events);

/* Who makes the step at hand; -1: nobody, the checks themselves do, and it is none. */
int sched_me(void);
bool sched_is_dead(int fiber);
bool sched_is_done(int fiber);

/* Steps beside those of the library: an access, or the attempt at a lock: *holder is the fiber that has it, plus one. */
void sched_step(const char *where);
void sched_step_at_lock(const uint64_t *holder, const char *where);
void sched_saw(uint64_t value);
uint64_t sched_get(const volatile void *at, unsigned bytes);
void sched_put(volatile void *at, unsigned bytes, uint64_t value);

/* What goes wrong is told with the schedule that led there, and ends the program. */
_Noreturn void sched_fail(const char *format, ...);
#define sched_check(condition, ...) ((condition) ? (void)0 : sched_fail(__VA_ARGS__))

/* ---- what a program defines ------------------------------------------------------------------------- */

bool check_is_private(const volatile void *at);   /* nobody else ever looks there: not a step */
bool check_is_quiet(const volatile void *at);     /* nobody who lives looks there while its owner does: one may die there, but need
                                                     not be interrupted */
void check_wrote(volatile void *at, uint64_t old, uint64_t new); /* after each write to shared memory */
void check_died(int fiber);                        /* its locks go */
bool check_settle(void);                           /* nobody can go on: true if something was done about it */
void check_end(void);                              /* nor now: judge what is left */

#endif
