/* A ring in queue mode: ring.c, recover.c and the rows of participant.c, step for step, with SIGKILL at any step.
 *
 * Every STEP is one access to shared memory, or several of which no other process can tell the order; its comment names
 * the label in ring.c, recover.c or participant.c. What lies between two steps touches nothing that is shared.
 * Memory is sequentially consistent here: what weaker orders could change is left to the relacy programs beside this file.
 *
 * Shown: no word is changed under its owner; a payload is neither torn nor overwritten while it is read; each committed
 * message is consumed (or overwritten, or dropped) exactly once; one producer's messages come in order, a redelivered one in
 * its old place; a death in WRITING is counted once and logged under its own tag or none, whatever reapers die on the way;
 * who is told "finished, nothing left" has missed nothing; in the end every slot is free and every row vacant. A state in which
 * a living process waits for ever is an invalid end state.
 * Left out: bytes, target, filters, statistics that are not crash-safe (published, consumed, dropped), the end by
 * exhausted tickets; a wait is "until something it looks for may be there" (event.pml shows that sleeping keeps that).
 *
 *   PRODUCERS, CONSUMERS, REAPERS, MESSAGES (of each producer), SLOTS
 *   KILLS      how many processes may die; MORTAL: which, one bit each, producers first, then consumers, then reapers
 *   LATE       the last LATE producers and consumers do not start in a row of their own: they join when they like, and
 *              find a row only if somebody leaves or is reaped
 *   REDELIVER  0 or 1; OVERWRITE, ABORTS (a producer may also abort); ANY_END: finish comes at any moment
 *   DAMAGE     slot 0 starts with a message whose ticket nobody has drawn
 * Mutants: each is marked at its place. */

#ifndef PRODUCERS
#define PRODUCERS 1
#endif
#ifndef CONSUMERS
#define CONSUMERS 1
#endif
#ifndef REAPERS
#define REAPERS 0
#endif
#ifndef MESSAGES
#define MESSAGES 1
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef MORTAL
#define MORTAL (BIT(ACTORS) - 1)
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef REDELIVER
#define REDELIVER 1
#endif

#define ACTORS (PRODUCERS + CONSUMERS + REAPERS)
#define ROWS (ACTORS - LATE)
#define STARTS_LATE(actor) ((actor) < PRODUCERS + CONSUMERS && (actor) >= PRODUCERS + CONSUMERS - LATE)
#define NONE 255

/* A slot word: state, the owner's row plus one, ticket. */
#define FREE 0
#define WRITING 1
#define READY 2
#define READING 3
#define WORD(state, who, seq) ((state) << 9 | (who) << 6 | (seq))
#define STATE(word) ((word) >> 9)
#define WHO(word) ((word) >> 6 & 7)
#define SEQ(word) ((word) & 63)

short word[SLOTS];
byte data[SLOTS];      /* the payload: which message */
byte tickets = 1;
bool finished;
byte lock[ROWS];       /* row's lock byte: the actor that holds it, plus one */
bool joined[ROWS];
#if KILLS
byte tag[SLOTS];       /* message plus one */
short claimed[SLOTS];
short grave_word[ROWS];
byte grave_slot[ROWS], grave_tag[ROWS], grave_count[ROWS], lost[ROWS];
#define UNKNOWN 0
#endif

/* What really happened; no step decides by it. One bit for each message, or each actor. */
byte committed, taken, gone; /* gone: consumed, overwritten or dropped */
byte ended;                  /* actors that are through, or dead */
byte producing = PRODUCERS;  /* producers that may still commit */
byte handed_on;              /* by somebody who may not take: it may come after the last consumer was told "nothing left" */
byte stable[CONSUMERS];      /* READY since before the horizon that this consumer goes by */
#if KILLS
byte kills = KILLS;
byte deaths;                 /* in WRITING */
short died_word[KILLS];
byte died_slot[KILLS], died_tag[KILLS], logged[KILLS];
#endif
hidden byte x, y;            /* of use within one step only */

/* What must hold; the names are what a failing run prints. */
hidden byte still_ours, untorn, committed_once, gone_once, committed_and_not_gone, in_order, honest_is_not_damage;
hidden byte it_is_a_loss, tag_is_true, each_committed_is_gone, every_slot_is_free, every_row_is_vacant, each_loss_counted_once;
hidden byte each_loss_listed, nothing_left_with_the_dead;
#define DEMAND(name, condition) name = (condition); assert(name)

#define BIT(n) (1 << (n))

/* One step; or death before it. */
#if KILLS
#define STEP(...) if :: d_step { __VA_ARGS__ } :: d_step { kills > 0 && (MORTAL & BIT(me)) -> kills-- } goto dead fi
#else
#define STEP(...) d_step { __VA_ARGS__ }
#endif
#define IF(condition, ...) if :: condition -> __VA_ARGS__ :: else fi

#if SLOTS == 1
#define EACH_SLOT(step) step(0)
#define ANY_SLOT(test) (test(0))
#elif SLOTS == 2
#define EACH_SLOT(step) step(0); step(1)
#define ANY_SLOT(test) (test(0) || test(1))
#else
#define EACH_SLOT(step) step(0); step(1); step(2)
#define ANY_SLOT(test) (test(0) || test(1) || test(2))
#endif
#define IS_FREE(i) (STATE(word[i]) == FREE)
#define IS_WRITING(i) (STATE(word[i]) == WRITING)
#define IS_READY(i) (STATE(word[i]) == READY)

inline forget(m)
{
	x = 0;
	do
	:: x < CONSUMERS -> stable[x] = stable[x] & ~BIT(m); x++
	:: else -> break
	od;
	x = 0
}

/* After SIGKILL: words stay as they are, and some time later the kernel drops the locks. */
inline die()
{
	ended = ended | BIT(me);
	IF(me < PRODUCERS, producing--);
	IF(me >= PRODUCERS && me < PRODUCERS + CONSUMERS, stable[me - PRODUCERS] = 0);
	x = 0;
	do
	:: x < ROWS -> IF(lock[x] == me + 1, lock[x] = 0); x++
	:: else -> break
	od;
	x = 0;
	do
	:: x < SLOTS ->
		IF(row != NONE && STATE(word[x]) == WRITING && WHO(word[x]) == row + 1,
			died_word[deaths] = word[x]; died_slot[deaths] = x;
			died_tag[deaths] = (tagged -> message + 1 : UNKNOWN); deaths++);
		x++
	:: else -> break
	od;
	x = 0
}

#if KILLS
#define DEAD goto over; dead: w = 0; d_step { die() } over: skip
#else
#define DEAD
#endif

/* ---- participant.c ---- */

#define ROWS_TO_REAP(p) (joined[p] && lock[p] == 0)
#define VACANT(p) (!joined[p] && lock[p] == 0)
#if ROWS == 1
#define SOMEBODY_DIED ROWS_TO_REAP(0)
#define SOME_ROW_VACANT VACANT(0)
#elif ROWS == 2
#define SOMEBODY_DIED (ROWS_TO_REAP(0) || ROWS_TO_REAP(1))
#define SOME_ROW_VACANT (VACANT(0) || VACANT(1))
#elif ROWS == 3
#define SOMEBODY_DIED (ROWS_TO_REAP(0) || ROWS_TO_REAP(1) || ROWS_TO_REAP(2))
#define SOME_ROW_VACANT (VACANT(0) || VACANT(1) || VACANT(2))
#else
#define SOMEBODY_DIED (ROWS_TO_REAP(0) || ROWS_TO_REAP(1) || ROWS_TO_REAP(2) || ROWS_TO_REAP(3))
#define SOME_ROW_VACANT (VACANT(0) || VACANT(1) || VACANT(2) || VACANT(3))
#endif

inline join()
{
	p = 0;
	do
	:: p < ROWS ->
		STEP(w = joined[p]);                                            /* join:A */
		if
		:: w -> p++
		:: else ->
			STEP(w = (lock[p] == 0); IF(w, lock[p] = me + 1));
			if
			:: !w -> p++
			:: else ->
#ifdef JOIN_BLIND /* mutant: does not look again once it has the lock */
				w = 0;
#else
				STEP(w = joined[p]);                            /* join:B */
#endif
				if
				:: w -> STEP(lock[p] = 0); p++
				:: else -> STEP(joined[p] = true; row = p); break   /* join:D */
				fi
			fi
		fi
	:: else -> /* -EUSERS: reap, and try again */
		(SOME_ROW_VACANT || SOMEBODY_DIED);
		recover_dead();
		p = 0
	od;
	p = 0; w = 0
}

/* After its slots are back: leave:A, then the lock. */
inline leave()
{
	STEP(joined[row] = false);
	STEP(lock[row] = 0);
	d_step { row = NONE }
}

/* ---- recover.c, under the lock on row p ---- */

#if KILLS
inline log_loss()
{
	y = 0;
	x = 0;
	do
	:: x < deaths -> IF(died_word[x] == grave_word[p] && died_slot[x] == grave_slot[p], y = 1; logged[x] = 1;
				DEMAND(tag_is_true, grave_tag[p] == died_tag[x])); x++
	:: else -> break
	od;
	DEMAND(it_is_a_loss, y)
}

inline finish_burial()
{
	STEP(w = grave_word[p]);                                                /* finish_burial:A-D */
	if
	:: w != 0 ->
#ifdef COUNT_WITHOUT_NOTE /* mutant: counts up, instead of to what the note says */
		STEP(lost[p]++);
#endif
		STEP(IF(word[grave_slot[p]] == w,
			IF(WHO(w) == p + 1, returned = 1); word[grave_slot[p]] = WORD(FREE, 0, tickets); tickets++)); /* finish_burial:E */
		STEP(log_loss());                                               /* log_loss:A-G */
#ifndef COUNT_WITHOUT_NOTE
		STEP(lost[p] = grave_count[p]);                                 /* finish_burial:G */
#endif
		STEP(grave_word[p] = 0)                                         /* finish_burial:H */
	:: else
	fi;
	w = 0
}

/* w: the word found in slot i */
inline bury(i)
{
#ifdef NOTE_AFTER_FREE /* mutant: frees first, notes then */
	STEP(IF(word[i] == w, word[i] = WORD(FREE, 0, tickets); tickets++; returned = 1));
#endif
#ifdef COUNT_BEFORE_NOTE /* mutant: counts, then notes what to free */
	STEP(lost[p]++);
#endif
	/* bury:A, bury:C-G: nobody reads the note before its word */
	STEP(grave_slot[p] = i;
#ifdef ANY_TAG /* mutant: reports the slot's tag, whoever wrote it */
		grave_tag[p] = tag[i];
#else
		grave_tag[p] = (claimed[i] == w -> tag[i] : UNKNOWN);
#endif
#ifdef COUNT_BEFORE_NOTE
		grave_count[p] = lost[p]);
#else
		grave_count[p] = lost[p] + 1);
#endif
	STEP(grave_word[p] = w);                                                /* bury:B */
	finish_burial()
}

inline hand_on(i)
{
	STEP(IF(word[i] == w,                                                   /* hand_on:A */
		returned = 1;
#if REDELIVER
#ifdef FRESH_TICKET /* mutant: a redelivered message goes to the end of the queue */
		word[i] = WORD(READY, 0, tickets); tickets++;
#else
		word[i] = WORD(READY, 0, SEQ(w));
#endif
		IF(me >= PRODUCERS + CONSUMERS || me < PRODUCERS || MORTAL & BIT(me), handed_on = handed_on | BIT(data[i]))
#else
		word[i] = WORD(FREE, 0, tickets); tickets++;
		DEMAND(gone_once, !(gone & BIT(data[i]))); gone = gone | BIT(data[i])
#endif
	))
}

#define return_slot(i) \
	STEP(w = word[i]; IF(WHO(w) != p + 1, w = 0));                          /* return_slots:A */ \
	if \
	:: w != 0 && STATE(w) == WRITING -> bury(i) \
	:: w != 0 && STATE(w) == READING -> hand_on(i) \
	:: else \
	fi; \
	w = 0

inline vacate()
{
	STEP(joined[p] = false);                                                /* vacate:A */
	STEP(lock[p] = 0)
}

/* Sets `returned` when a slot came back. */
inline recover_dead()
{
	returned = 0;
	p = 0;
	do
	:: p < ROWS && (p == row || !joined[p]) -> p++                          /* seize:B */
	:: p < ROWS && p != row && joined[p] ->
#ifdef NO_LOCK /* mutant: reaps whoever is there */
		STEP(w = 1);
#else
		STEP(w = (lock[p] == 0); IF(w, lock[p] = me + 1));
#endif
		if
		:: !w -> skip
		:: else ->
			STEP(w = joined[p]);                                    /* seize:A */
			if
			:: w ->
#ifdef EARLY_UNLOCK /* mutant: lets go of the row before its slots are back */
				vacate();
#endif
				finish_burial();
				EACH_SLOT(return_slot);
#ifndef EARLY_UNLOCK
				vacate()
#endif
			:: else -> STEP(lock[p] = 0)
			fi
		fi;
		p++; w = 0
	:: p == ROWS -> break
	od;
	p = 0; w = 0
}
#else
inline recover_dead() { returned = 0 }
#endif

/* ---- ring.c: producer ---- */

#define look_for_free(i) \
	STEP(w = word[i]; IF(STATE(w) == FREE && (best == NONE || SEQ(w) > SEQ(found)), best = i; found = w); w = 0) /* find:A */
#define look_for_oldest(i) \
	STEP(w = word[i]; IF(STATE(w) == READY && (best == NONE || SEQ(w) < SEQ(found)), best = i; found = w); w = 0) /* find:A */

inline back_out()
{
	STEP(DEMAND(still_ours, word[best] == found); word[best] = WORD(FREE, 0, /* fresh_free:A, abort:A */
#ifdef STALE_FREE /* mutant: an abort leaves the slot's old ticket */
		SEQ(found)));
#else
		tickets); tickets++);
#endif
	best = NONE; found = 0; tagged = 0
}

/* Leaves best: the slot, and found: our word there; or best == NONE: finished. */
inline claim()
{
	do
	:: skip;
#ifdef ANY_END
		STEP(w = finished);                                             /* finished:A */
		if
		:: w -> w = 0; best = NONE; break
		:: else
		fi;
#endif
		best = NONE; found = 0;
		EACH_SLOT(look_for_free);
#ifdef OVERWRITE
		if
		:: best == NONE -> EACH_SLOT(look_for_oldest)
		:: else
		fi;
#endif
		if
		:: best == NONE -> /* -EAGAIN */
#ifdef OVERWRITE
			(ANY_SLOT(IS_FREE) || ANY_SLOT(IS_READY) || finished || SOMEBODY_DIED);
#else
			(ANY_SLOT(IS_FREE) || finished || SOMEBODY_DIED);
#endif
			recover_dead()
		:: else ->
#ifdef OWNER_LATER /* mutant: state first, name later */
			STEP(w = (word[best] == found); IF(w, word[best] = WORD(WRITING, 0, SEQ(found))));
			if
			:: w -> STEP(w = 1; found = WORD(WRITING, row + 1, SEQ(found)); word[best] = found)
			:: else
			fi;
#elif defined(PLAIN_CLAIM) /* mutant: stores, where it should compare and swap */
			STEP(w = 1; found = WORD(WRITING, row + 1, SEQ(found)); word[best] = found);
#else
			STEP(w = (word[best] == found);                         /* claim:C */
				IF(w,
					IF(STATE(found) == READY,
						DEMAND(gone_once, !(gone & BIT(data[best]))); gone = gone | BIT(data[best]);
						forget(data[best]));
					found = WORD(WRITING, row + 1, SEQ(found)); word[best] = found));
#endif
			if
			:: !w -> skip                                           /* claim:B */
			:: else ->
				w = 0;
#if KILLS
				STEP(tag[best] = message + 1);                  /* claim:F, claim:G */
				STEP(claimed[best] = found; tagged = 1);        /* claim:H */
#endif
#if defined(ANY_END) && !defined(NO_SECOND_LOOK) /* mutant: does not ask after its word */
				STEP(w = finished);                             /* finished:A */
				if
				:: w -> back_out(); w = 0
				:: else
				fi;
#endif
				break
			fi;
			w = 0
		fi
	od
}

inline commit()
{
	STEP(data[best] = message);                                             /* the payload */
	STEP(ticket = tickets; tickets++);                                      /* commit:A */
	STEP(DEMAND(still_ours, word[best] == found); DEMAND(untorn, data[best] == message); /* commit:C */
		tagged = 0;
		word[best] = WORD(READY, 0, ticket);
		DEMAND(committed_once, !(committed & BIT(message))); committed = committed | BIT(message));
	best = NONE; found = 0; ticket = 0
}

proctype producer(byte me)
{
	byte row = (STARTS_LATE(me) -> NONE : me), best = NONE, message = me * MESSAGES, ticket, p;
	short found, w;
	bit returned, tagged;

#if LATE
	if
	:: row == NONE -> join()
	:: else
	fi;
#endif
	do
	:: message < (me + 1) * MESSAGES ->
		claim();
		if
		:: best == NONE -> break /* -EPIPE */
		:: best != NONE -> commit()
#ifdef ABORTS
		:: best != NONE -> back_out()
#endif
		fi;
		message++
	:: else -> break
	od;
	message = 0;
#if KILLS
	leave();
#endif
	d_step { producing--; ended = ended | BIT(me) }
	DEAD
}

/* ---- ring.c: consumer ---- */

/* Is there, in slot i, an older message of the same producer that a take of message y should have taken first? It should
 * unless somebody took it and gave it back while we were looking. */
#define OLDER_READY(i) (STATE(word[i]) == READY && data[i] < y && data[i] / MESSAGES == y / MESSAGES && \
			(!(taken & BIT(data[i])) || stable[me - PRODUCERS] & BIT(data[i])))

#define note_ready(i) IF(STATE(word[i]) == READY, stable[me - PRODUCERS] = stable[me - PRODUCERS] | BIT(data[i]))

#ifdef NO_HORIZON /* mutant: accepts any ticket */
#define BELOW(seq) (true)
#else
#define BELOW(seq) ((seq) < horizon)
#endif

#define look_for_message(i) \
	STEP(w = word[i]; IF(STATE(w) == READY,                                 /* take:D */ \
		if \
		:: !BELOW(SEQ(w)) -> beyond = i; beyond_word = w \
		:: else -> IF(best == NONE || SEQ(w) < SEQ(found), best = i; found = w) \
		fi); w = 0)

/* Leaves best: the slot, and found: our word there; or best == NONE: -EAGAIN. */
inline take()
{
	do
	:: best = NONE; found = 0; beyond = NONE; beyond_word = 0;
		STEP(horizon = tickets;                                         /* take:A */
			stable[me - PRODUCERS] = 0; EACH_SLOT(note_ready));
		EACH_SLOT(look_for_message);
		if
		:: best == NONE && beyond == NONE -> break
		:: best == NONE && beyond != NONE ->
#ifdef OLD_HORIZON /* mutant: goes by the horizon before the scan */
			STEP(w = (SEQ(beyond_word) < horizon));
#else
			STEP(w = (SEQ(beyond_word) < tickets));                 /* future:A */
#endif
			if
			:: !w ->
#ifndef DAMAGE
				STEP(DEMAND(honest_is_not_damage, false));
#endif
				STEP(IF(word[beyond] == beyond_word, word[beyond] = WORD(FREE, 0, tickets); tickets++)) /* future:B */
			:: else
			fi;
			w = 0
		:: best != NONE ->
			STEP(w = (word[best] == found);                         /* take:C */
				IF(w,
					y = data[best];
					DEMAND(committed_and_not_gone, committed & BIT(y) && !(gone & BIT(y)));
					DEMAND(in_order, !ANY_SLOT(OLDER_READY));
					taken = taken | BIT(y);
					forget(y);
					found = WORD(READING, row + 1, SEQ(found)); word[best] = found));
			if
			:: w -> break
			:: else                                                 /* take:B */
			fi;
			w = 0
		fi
	od;
	w = 0;
	d_step { stable[me - PRODUCERS] = 0; horizon = 0; beyond = NONE; beyond_word = 0 }
}

inline release()
{
	STEP(DEMAND(still_ours, word[best] == found); DEMAND(untorn, data[best] == message); /* release:A */
		word[best] = WORD(FREE, 0, SEQ(found));
		DEMAND(gone_once, !(gone & BIT(message))); gone = gone | BIT(message));
	best = NONE; found = 0; message = 0
}

#define find_undrained(i) \
	if \
	:: drained -> STEP(IF(STATE(word[i]) == WRITING || STATE(word[i]) == READY, drained = 0)) /* drained:A */ \
	:: else \
	fi

/* Only where nobody else may be reaping. */
#define WITH_THE_DEAD(i) (STATE(word[i]) == READING && joined[WHO(word[i]) - 1] && lock[WHO(word[i]) - 1] == 0)
#define note_left_with_the_dead(i) IF(WITH_THE_DEAD(i), left_with_the_dead = left_with_the_dead | BIT(i))
#define is_still_there(i) DEMAND(nothing_left_with_the_dead, !(left_with_the_dead & BIT(i) && WITH_THE_DEAD(i)))

/* Leaves drained. */
inline is_drained()
{
#ifdef WORDS_FIRST /* mutant: looks at the words, then at the end */
	drained = 1;
	EACH_SLOT(find_undrained);
	if
	:: drained -> STEP(drained = finished)
	:: else
	fi
#else
	STEP(drained = finished; left_with_the_dead = 0; EACH_SLOT(note_left_with_the_dead)); /* finished:A */
	if
	:: drained -> EACH_SLOT(find_undrained)
	:: else
	fi
#endif
}

proctype consumer(byte me)
{
	byte row = (STARTS_LATE(me) -> NONE : me), best = NONE, beyond = NONE, message, horizon, p;
	short found, beyond_word, w;
	byte left_with_the_dead; /* what really is; no step decides by it */
	bit drained, returned, tagged; /* this one writes nothing */

#if LATE
	if
	:: row == NONE -> join()
	:: else
	fi;
#endif
	do
	:: take();
		if
		:: best != NONE ->
			STEP(message = data[best]);
			release()
		:: else ->
			is_drained();
			/* until there is something to take, or nothing can come any more */
			(drained || ANY_SLOT(IS_READY) || SOMEBODY_DIED || (finished && !ANY_SLOT(IS_WRITING)));
#ifdef NO_LAST_REAP /* mutant: ends without a look for the dead */
			if
			:: drained -> returned = 0
			:: else -> recover_dead()
			fi;
#else
			recover_dead();
#endif
			if
			:: drained && !returned -> STEP(EACH_SLOT(is_still_there)); break /* -EPIPE */
			:: else
			fi
		fi;
		drained = 0; returned = 0; left_with_the_dead = 0
	od;
	drained = 0; left_with_the_dead = 0;
#if KILLS
	leave();
#endif
	d_step { ended = ended | BIT(me) }
	DEAD
}

/* ---- the rest ---- */

#define WORKERS (BIT(PRODUCERS + CONSUMERS) - 1)

#if REAPERS
proctype reaper(byte me)
{
	byte row = me - LATE, p;
	short w;
	bit returned, tagged;
	byte message;

	do
#ifdef NO_LOCK
	:: true -> recover_dead()
#else
	:: SOMEBODY_DIED -> recover_dead()
#endif
	:: (ended & WORKERS) == WORKERS && !SOMEBODY_DIED -> break
	od;
	p = 0;
	leave();
	d_step { ended = ended | BIT(me) }
	DEAD
}
#endif

#define is_free(i) DEMAND(every_slot_is_free, STATE(word[i]) == FREE || \
			  (STATE(word[i]) == READY && handed_on & BIT(data[i])))
#define count_left(i) IF(STATE(word[i]) == READY, gone = gone | BIT(data[i]))

init
{
	byte me = ACTORS, row = NONE, p;
	short w;
	bit returned, tagged;
	byte message;

	atomic {
		x = 0;
		do
		:: p < ACTORS ->
			if
			:: STARTS_LATE(p)
			:: else -> lock[x] = p + 1; joined[x] = true; x++
			fi;
			p++
		:: else -> break
		od;
#ifdef DAMAGE
		word[0] = WORD(READY, 0, 50);
#endif
		p = 0;
		do
		:: p < ACTORS ->
			if
			:: p < PRODUCERS -> run producer(p)
			:: p >= PRODUCERS && p < PRODUCERS + CONSUMERS -> run consumer(p)
			:: else ->
#if REAPERS
				run reaper(p)
#endif
			fi;
			p++
		:: else -> break
		od;
		p = 0
	}
#ifdef ANY_END
	finished = true;                                                        /* finish:A */
#else
	d_step { producing == 0 -> finished = true };
#endif
	(ended == BIT(ACTORS) - 1);
	recover_dead(); /* of those who died last, whoever comes next */
	d_step {
		skip;
		EACH_SLOT(count_left);
		DEMAND(each_committed_is_gone, gone == committed);
		EACH_SLOT(is_free);
#if KILLS
		y = 0;
		do
		:: p < ROWS -> y = y + lost[p]; DEMAND(every_row_is_vacant, !joined[p] && lock[p] == 0 && grave_word[p] == 0); p++
		:: else -> break
		od;
		DEMAND(each_loss_counted_once, y == deaths);
		p = 0;
		do
		:: p < deaths -> DEMAND(each_loss_listed, logged[p]); p++
		:: else -> break
		od;
		p = 0
#endif
	}
	DEAD
}
