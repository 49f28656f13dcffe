/* The event count of wait.c: prepare, look again, sleep; change something, notify.
 *
 * WAITERS waiters each want one of the items that NOTIFIERS notifiers make, one each; IDLE more notifiers make nothing and
 * notify all the same. With KINDS 2 every other waiter wants, and every other notifier makes, another kind, as
 * with filters. A waiter that looked in vain sleeps. Each STEP is one access to shared memory, or one system
 * call, and names its label in wait.c. BELLS: the semaphore build, with a doorbell for each parity of the epoch; otherwise the
 * futex build, where the kernel's comparison and its queueing are one step.
 *
 * Shown: nobody sleeps while there is something for him and every notifier is through: that would be an invalid end state (a
 * waiter for whom nothing is left may sleep). With KILLS that holds only because no sleep is longer than a
 * slice: SLICES lets a sleep end at any time. Without, a notifier killed between moving the epoch and waking loses a
 * wake-up: that is the reason for slices in wait.h. Likewise with bells when one sleeper is slow and
 * others are fast: it may lose its post to a sleeper of the epoch after next that wants another kind (KINDS 2, IDLE 1),
 * and sleep out its slice.
 * Left out: weaker memory than sequential consistency (store_buffer.pml, sleep.cpp), deadlines, wrap-around of the epoch,
 * that after a thousand lost races (only a hostile peer causes so many) prepare and notify give up.
 *
 * WAITERS_ONLY: only they die, which costs nobody a wake-up, slices or not.
 * Mutants: each is marked at its place. */

#ifndef WAITERS
#define WAITERS 2
#endif
#ifndef NOTIFIERS
#define NOTIFIERS 2
#endif
#ifndef IDLE
#define IDLE 0
#endif
#ifndef KINDS
#define KINDS 1
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifdef SLICES
#define OR_A_SLICE_IS_OVER || true
#else
#define OR_A_SLICE_IS_OVER
#endif

#ifdef ONE_BELL /* mutant: all epochs ring the same bell */
#define PARITY(epoch) 0
#else
#define PARITY(epoch) ((epoch) & 1)
#endif

#define NOTIFYING (NOTIFIERS + IDLE)

byte items[KINDS];
byte epoch;
bool flag;             /* with `epoch` the event's word, read and written as a whole */
bool asleep[WAITERS];  /* in futex_wait() */
byte sleepers[2];
byte bell[2];
byte kills = KILLS;
hidden byte x, nobody_sleeps_beside_it;

#if KILLS
#define STEP(...) if :: d_step { __VA_ARGS__ } :: d_step { MAY_DIE -> kills-- } goto dead fi
#else
#define STEP(...) d_step { __VA_ARGS__ }
#endif
#ifdef WAITERS_ONLY /* die */
#define MAY_DIE (kills > 0 && _pid <= WAITERS)
#else
#define MAY_DIE (kills > 0)
#endif
#define IF(condition, ...) if :: condition -> __VA_ARGS__ :: else fi

/* What a waiter wants; take: it has it. */
#define look(yes) STEP(yes = (items[me % KINDS] > 0); IF(yes, items[me % KINDS]--))

/* Leaves seen: the epoch that we would sleep in, flagged. */
inline prepare()
{
	STEP(seen = epoch; flagged = flag);                                     /* prepare:A */
	do
	:: !flagged ->
		STEP(flagged = (epoch == seen && !flag);                        /* prepare:C */
			IF(flagged, flag = true);
			IF(!flagged, seen = epoch; flagged = flag))
	:: flagged -> break
	od;
	flagged = 0
}

inline sleep()
{
#ifdef BELLS
	STEP(sleepers[PARITY(seen)]++);                                         /* sleep:A */
	STEP(same = (epoch == seen && flag));                                   /* sleep:B */
	if
	:: same ->
		same = 0;
		if /* sem_clockwait() */
		:: d_step { bell[PARITY(seen)] > 0 -> bell[PARITY(seen)]-- }
#ifdef SLICES
		:: true
#endif
#if KILLS
		:: d_step { MAY_DIE -> kills-- } goto dead
#endif
		fi
	:: else
	fi;
	STEP(sleepers[PARITY(seen)]--)                                          /* sleep:C */
#else
#ifdef CARELESS_SLEEP /* mutant: sleeps whatever the word says */
	STEP(asleep[me] = true);
#else
	STEP(asleep[me] = (epoch == seen && flag));                             /* FUTEX_WAIT_BITSET */
#endif
	if
	:: d_step { !asleep[me] OR_A_SLICE_IS_OVER -> asleep[me] = false }
#if KILLS
	:: d_step { MAY_DIE -> kills--; asleep[me] = false } goto dead
#endif
	fi
#endif
}

proctype waiter(byte me)
{
	byte seen;
	bit flagged, has, same;

	do
	:: look(has);
		if
		:: has -> break
		:: else
		fi;
		prepare();
#ifndef NO_SECOND_LOOK /* mutant: sleeps without another look */
		look(has);
		if
		:: has -> break
		:: else
		fi;
#endif
		sleep(); /* for ever, if nothing is left for us */
		seen = 0
	od;
dead:	skip
}

inline wake_all()
{
#ifdef BELLS
	STEP(count = sleepers[PARITY(seen)]);                                   /* ring_bell:A */
	STEP(posted = bell[PARITY(seen)]);                                      /* sem_getvalue() */
	do
	:: posted < count -> STEP(bell[PARITY(seen)]++); posted++               /* sem_post() */
	:: else -> break
	od;
	count = 0; posted = 0
#else
	STEP(x = 0;                                                             /* FUTEX_WAKE */
#ifdef WAKE_ONE /* mutant: wakes one, though the flag is gone */
		do
		:: x < WAITERS -> IF(asleep[x], asleep[x] = false; x = WAITERS - 1); x++
		:: else -> break
		od;
#else
		do
		:: x < WAITERS -> asleep[x] = false; x++
		:: else -> break
		od;
#endif
		x = 0)
#endif
}

inline notify()
{
	STEP(seen = epoch; flagged = flag);                                     /* notify:A, notify:B */
	do
	:: flagged ->
#ifdef EPOCH_STAYS /* mutant: clears the flag, the epoch stays */
		STEP(same = (epoch == seen && flag); IF(same, flag = false));
#else
		STEP(same = (epoch == seen && flag);                            /* notify:C */
			IF(same, epoch++; flag = false);
			IF(!same, seen = epoch; flagged = flag));
#endif
		if
		:: same -> wake_all(); break
		:: else
		fi
	:: !flagged -> break
	od;
	seen = 0; flagged = 0; same = 0
}

proctype notifier(byte me)
{
	byte seen, count, posted;
	bit flagged, same;

#ifdef NOTIFY_FIRST /* mutant: notifies, then makes it */
	notify();
#endif
	if
	:: me < NOTIFIERS -> STEP(items[me % KINDS]++)
	:: else
	fi;
#ifndef NOTIFY_FIRST
	notify();
#endif
dead:	skip
}

init
{
	byte i;

	atomic {
		do
		:: i < WAITERS -> run waiter(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < NOTIFYING -> run notifier(i); i++
		:: else -> break
		od;
		i = 0
	}
	/* When nothing moves any more: what is still there is wanted by nobody alive. */
	d_step { timeout -> nobody_sleeps_beside_it = (items[0] + items[KINDS - 1] == 0 || _nr_pr == 1) }
	assert(nobody_sleeps_beside_it)
}
