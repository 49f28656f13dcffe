/* A ring in broadcast mode: who is owed what, while readers come, go, go with messages in hand, and die.
 *
 * As in queue.pml every STEP is one access to shared memory and names its label in ring.c or recover.c; memory is
 * sequentially consistent (all of these accesses are, in ring.c). A clear_bit() is one step: only its successful
 * compare-and-swap, or the look that finds nothing to clear, has any effect.
 *
 * Shown: nobody's slot is freed or written while a reader has it in hand, also when that reader has withdrawn (`keeps`); a reader
 * that stays gets every message with a ticket from its first one on, each once and each producer's in order, and none
 * older; entries are used again by others without mixing up their bits; in the end no slot, entry or bit is left over.
 * A state in which a living process waits for ever is an invalid end state.
 * Left out: which free slot a claim prefers (here: any), burials, rows and locks (queue.pml), filters, damage, several
 * threads of one reader (handle.cpp). Who dies is reaped by one reaper at a time (queue.pml shows why), which may die as well: then
 * another one starts over.
 *
 *   PRODUCERS, MESSAGES (of each), SLOTS
 *   STAYERS    readers that subscribe, stay until all is over, and read everything
 *   VISITORS   readers that subscribe and leave, LIVES times, at any moment, perhaps with messages in hand
 *   RESIDENT   the first RESIDENT stayers are subscribed before anything happens
 *   KILLS, MORTAL: producers first, then stayers, then visitors, then the reaper
 * Mutants: each is marked at its place. */

#ifndef PRODUCERS
#define PRODUCERS 1
#endif
#ifndef STAYERS
#define STAYERS 1
#endif
#ifndef VISITORS
#define VISITORS 1
#endif
#ifndef LIVES
#define LIVES 1
#endif
#ifndef RESIDENT
#define RESIDENT 0
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
#define MORTAL 255
#endif
#ifndef ENTRIES
#define ENTRIES 2
#endif

#define ACTORS (PRODUCERS + STAYERS + VISITORS) /* and the reaper */
#define NONE 255
#define INFINITY 255

/* A slot word: state, owner plus one or mask of readers, ticket. */
#define FREE 0
#define WRITING 1
#define READY 2
#define WORD(state, who, seq) ((state) << 9 | (who) << 6 | (seq))
#define STATE(word) ((word) >> 9)
#define WHO(word) ((word) >> 6 & 7)
#define SEQ(word) ((word) & 63)
#define BIT(n) (1 << (n))

short word[SLOTS];
byte data[SLOTS]; /* the payload: which message */
byte tickets = 1;
byte is_active;
byte start[ENTRIES], owner[ENTRIES];
bit keeps[ENTRIES];

/* What really happened; no step decides by it. */
byte committed;
byte ticket_of[PRODUCERS * MESSAGES];
byte producing = PRODUCERS; /* may still commit */
byte ended;
byte unreaped;                  /* and not reaped */
#if KILLS
byte kills = KILLS;
#endif
hidden byte x, y;           /* of use within one step only */

/* What must hold; the names are what a failing run prints. */
hidden byte still_ours, untorn, in_order, none_older_than_the_first, all_owed_was_got, every_slot_is_free, every_entry_is_free;
#define DEMAND(name, condition) name = (condition); assert(name)
#define IF(condition, ...) if :: condition -> __VA_ARGS__ :: else fi

/* One step; or death before it. */
#if KILLS
#define STEP(...) if :: d_step { __VA_ARGS__ } :: d_step { kills > 0 && (MORTAL & BIT(me)) -> kills--; die() } goto dead fi
#else
#define STEP(...) d_step { __VA_ARGS__ }
#endif

inline die()
{
	IF(me < ACTORS, unreaped = unreaped | BIT(me))
}

#if SLOTS == 1
#define EACH_SLOT(step) step(0)
#define ANY_SLOT(test) (test(0))
#else
#define EACH_SLOT(step) step(0); step(1)
#define ANY_SLOT(test) (test(0) || test(1))
#endif
#if ENTRIES == 1
#define EACH_ENTRY(step) step(0)
#else
#define EACH_ENTRY(step) step(0); step(1)
#endif
#define IS_FREE(i) (STATE(word[i]) == FREE)
#define IS_WRITING(i) (STATE(word[i]) == WRITING)

/* clear:A-C */
#define HAS_BIT(i, ticket, b) (STATE(word[i]) == READY && SEQ(word[i]) == (ticket) && WHO(word[i]) & BIT(b))
#define CLEAR_BIT(i, ticket, b) \
	IF(HAS_BIT(i, ticket, b), \
		y = WHO(word[i]) & ~BIT(b); \
		word[i] = (y -> WORD(READY, y, ticket) : WORD(FREE, 0, ticket)))

/* Leaves w. */
inline entitled(ticket, b)
{
	STEP(w = is_active & BIT(b));                                              /* entitled:A */
	if
	:: !w ->
#ifdef KEEPS_IGNORED /* mutant: inactive is inactive */
		w = 0;
#else
		STEP(w = keeps[b]);                                             /* entitled:C */
#endif
	:: else -> STEP(w = (start[b] <= (ticket)))                             /* entitled:B */
	fi
}

inline clear_if_unentitled(i, ticket, b)
{
	entitled(ticket, b);
	if
	:: !w -> STEP(CLEAR_BIT(i, ticket, b))
	:: else
	fi;
	w = 0
}

/* ---- producer ---- */

#define claim_any(i) :: d_step { STATE(word[i]) == FREE -> slot = i; found = WORD(WRITING, me + 1, SEQ(word[i])); word[i] = found }

#define recheck(b) \
	if \
	:: mask & BIT(b) -> clear_if_unentitled(slot, ticket, b) \
	:: else \
	fi

inline commit()
{
	STEP(data[slot] = message);
#ifdef MASK_FIRST /* mutant: who is there, then the ticket */
	STEP(mask = is_active);
	STEP(ticket = tickets; tickets++);
#else
	STEP(ticket = tickets; tickets++);                                      /* commit:E */
	STEP(mask = is_active);                                                    /* commit:F */
#endif
	STEP(DEMAND(still_ours, word[slot] == found); DEMAND(untorn, data[slot] == message); /* commit:G */
		word[slot] = (mask -> WORD(READY, mask, ticket) : WORD(FREE, 0, ticket));
		committed = committed | BIT(message); ticket_of[message] = ticket);
#ifndef NO_RECHECK /* mutant: does not look again */
	EACH_ENTRY(recheck);
#endif
	slot = 0; ticket = 0; mask = 0; found = 0
}

proctype producer(byte me)
{
	byte message = me * MESSAGES, slot, ticket, mask;
	short found, w;

	do
	:: message < (me + 1) * MESSAGES ->
		if /* claim:C */
		claim_any(0)
#if SLOTS > 1
		claim_any(1)
#endif
#if KILLS
		:: d_step { kills > 0 && (MORTAL & BIT(me)) -> kills--; die() } goto dead
#endif
		fi;
		commit();
		message++
	:: else -> break
	od;
	message = 0;
	d_step { producing--; ended = ended | BIT(me) }
dead:	skip
}

/* rb_ring_clear_unentitled() */
#define sweep_bit(entry) \
	if \
	:: mask & BIT(entry) -> clear_if_unentitled(slot, ticket, entry) \
	:: else \
	fi
#define sweep_slot(i) \
	STEP(w = word[i]; IF(STATE(w) == READY, slot = i; mask = WHO(w); ticket = SEQ(w)); w = 0); /* sweep:A */ \
	EACH_ENTRY(sweep_bit); \
	slot = 0; mask = 0; ticket = 0

/* ---- reader ---- */

/* Leaves b: our entry, and first: our first ticket. */
inline subscribe()
{
	do
	:: b == ENTRIES -> (owner[0] == 0 || owner[ENTRIES - 1] == 0); b = 0 /* -EUSERS: until one is free */
	:: b < ENTRIES ->
		STEP(w = (owner[b] == 0); IF(w, owner[b] = me + 1));            /* subscribe:A */
		if
		:: w -> break
		:: else -> b++
		fi
	od;
	w = 0;
#ifdef START_FIRST /* mutant: first ticket, then is_active */
	STEP(first = tickets);
	STEP(start[b] = first);
	STEP(is_active = is_active | BIT(b))
#else
#ifdef OWED_NOTHING_YET /* mutant: not owed anything before it has its first ticket */
	STEP(start[b] = INFINITY);
#else
	STEP(start[b] = 0);                                                     /* subscribe:B */
#endif
	STEP(is_active = is_active | BIT(b));                                         /* subscribe:C */
	STEP(first = tickets);                                                  /* subscribe:F */
	STEP(start[b] = first);                                                 /* subscribe:D */
#endif
	EACH_SLOT(sweep_slot) /* handle.c, subscribe() */
}

#ifdef KEEPS_LATE /* mutant: inactive first, then says that it keeps */
#define KEEPS_FIRST 0
#else
#define KEEPS_FIRST 1
#endif
#ifdef SWEEPS_HELD /* mutant: gives up also what is in its hands */
#define IN_HAND(i, seq) (false)
#else
#define IN_HAND(i, seq) (held[i] == (seq))
#endif

#define sweep_all(i) \
	STEP(w = word[i]);                                                      /* unsubscribe:B */ \
	if \
	:: STATE(w) == READY -> STEP(CLEAR_BIT(i, SEQ(w), b)) \
	:: else \
	fi; \
	w = 0
#define sweep_but_held(i) \
	STEP(w = word[i]);                                                      /* unsubscribe:B, unsubscribe:E */ \
	if \
	:: STATE(w) == READY && !IN_HAND(i, SEQ(w)) -> STEP(CLEAR_BIT(i, SEQ(w), b)) \
	:: else \
	fi; \
	w = 0

inline withdraw_keeping()
{
	if
	:: KEEPS_FIRST -> STEP(keeps[b] = 1)                                    /* unsubscribe:F */
	:: else
	fi;
	STEP(is_active = is_active & ~BIT(b));                                        /* unsubscribe:A */
	if
	:: !KEEPS_FIRST -> STEP(keeps[b] = 1)
	:: else
	fi;
	EACH_SLOT(sweep_but_held)
}

inline unsubscribe()
{
	STEP(keeps[b] = 0);                                                     /* unsubscribe:F */
	STEP(is_active = is_active & ~BIT(b));                                        /* unsubscribe:A */
#ifdef OWNER_FIRST /* mutant: lets go of the entry, then sweeps */
	STEP(owner[b] = 0);
	EACH_SLOT(sweep_all);
#else
#ifdef NO_LAST_SWEEP /* mutant: who has withdrawn has swept already */
	if
	:: withdrawn
	:: else -> EACH_SLOT(sweep_all)
	fi;
#else
	EACH_SLOT(sweep_all);
#endif
	STEP(start[b] = INFINITY);                                              /* unsubscribe:C */
	STEP(owner[b] = 0)                                                      /* unsubscribe:D */
#endif
}

#ifdef NO_HORIZON /* mutant: accepts any ticket */
#define BELOW(seq) (true)
#else
#define BELOW(seq) ((seq) < horizon)
#endif

#define look_for_message(i) \
	STEP(w = word[i]; IF(STATE(w) == READY && WHO(w) & BIT(b) && held[i] < SEQ(w), /* take:D, awaits:A */ \
		if \
		:: !BELOW(SEQ(w)) -> beyond = 1 \
		:: else -> IF(best == NONE || SEQ(w) < ticket, best = i; ticket = SEQ(w)) \
		fi); w = 0)

/* Leaves best: the slot that is in hand now, or NONE. */
inline take()
{
	do
	:: best = NONE; ticket = 0; beyond = 0;
		STEP(horizon = tickets);                                        /* take:A */
		EACH_SLOT(look_for_message);
		if
		:: best == NONE && !beyond -> break
		:: best == NONE && beyond -> skip
		:: best != NONE ->
			entitled(ticket, b);
			if
			:: w -> break
			:: else -> STEP(CLEAR_BIT(best, ticket, b))
			fi
		fi
	od;
	w = 0;
	if
	:: best != NONE ->
		STEP(held[best] = ticket; x = data[best];                       /* hold:A */
			DEMAND(still_ours, HAS_BIT(best, ticket, b));
			DEMAND(none_older_than_the_first, ticket >= first);
			DEMAND(in_order, last[x / MESSAGES] <= x);
			last[x / MESSAGES] = x + 1; seen[best] = x;
			got = got | BIT(x); out++); tried = 0
	:: else -> tried = 1
	fi;
	best = NONE; ticket = 0; beyond = 0; horizon = 0
}

#define IS_HELD(i) (seen[i] != NONE)
/* One of those in hand, any. */
#define release_it(i) \
	:: IS_HELD(i) -> \
		STEP(DEMAND(still_ours, HAS_BIT(i, held[i], b)); DEMAND(untorn, data[i] == seen[i]); \
			CLEAR_BIT(i, held[i], b);                               /* clear:B */ \
			seen[i] = NONE; out--)

inline release()
{
	if
	release_it(0)
#if SLOTS > 1
	release_it(1)
#endif
	fi
}

#define AWAITS(i) (STATE(word[i]) == READY && WHO(word[i]) & BIT(b) && held[i] < SEQ(word[i]))
#define must_have(m) DEMAND(all_owed_was_got, !(committed & BIT(m) && ticket_of[m] >= first) || got & BIT(m))
#define begin_with_none(i) seen[i] = NONE

proctype reader(byte me; bit resident)
{
	byte b, first, best = NONE, slot, ticket, mask, horizon, lives = LIVES;
	byte held[SLOTS];                                    /* private to this process, as in handle.c */
	bit beyond, withdrawn, tried;
	byte seen[SLOTS], last[PRODUCERS], got, out;         /* what really is in its hands, and was; `out` is handle.c's count */
	short w;

	d_step { skip; EACH_SLOT(begin_with_none); IF(me < PRODUCERS + STAYERS, lives = 1) }
	do
	:: lives > 0 ->
		lives--;
		if
		:: resident -> d_step { b = owner[0] != me + 1; first = 1 } /* init has subscribed us */
		:: else -> subscribe()
		fi;
		do
		/* once more after each success, then when there is something */
		:: out < 2 && (!tried || ANY_SLOT(AWAITS)) -> take()
		:: out > 0 -> release()
		/* a stayer leaves when nothing can come any more, and looks once more then */
		:: me < PRODUCERS + STAYERS && out == 0 && tried && producing == 0 && !ANY_SLOT(IS_WRITING) && !ANY_SLOT(AWAITS) ->
			d_step {
				x = 0;
				do
				:: x < PRODUCERS * MESSAGES -> must_have(x); x++
				:: else -> break
				od;
				x = 0
			}
			break
		:: me >= PRODUCERS + STAYERS -> break
		od;
		if
		:: out > 0 -> /* rb_unsubscribe() with slots out: handle.c */
			withdraw_keeping();
			withdrawn = 1;
			do
			:: out > 0 -> release()
			:: else -> break
			od
		:: else
		fi;
		unsubscribe();
		b = 0; first = 0; withdrawn = 0; got = 0; tried = 0
	:: else -> break
	od;
	b = 0;
	d_step { ended = ended | BIT(me) }
dead:	skip
}

/* ---- reaper: recover.c, return_all() of one dead participant ---- */

#define return_slot(i) \
	STEP(w = word[i]); \
	if \
	:: STATE(w) == WRITING && WHO(w) == p + 1 -> STEP(IF(word[i] == w, word[i] = WORD(FREE, 0, tickets); tickets++)) /* finish_burial:E */ \
	:: else \
	fi; \
	w = 0
#define end_reader(entry) \
	STEP(w = owner[entry]);                                                 /* end_readers:A */ \
	if \
	:: w == p + 1 -> w = 0; b = entry; unsubscribe(); b = 0 \
	:: else \
	fi; \
	w = 0
#if KILLS
proctype reaper(byte me)
{
	byte p, b, slot, ticket, mask;
	bit withdrawn;
	short w;

begin:
	do
	:: d_step { unreaped != 0 -> p = 0; do :: !(unreaped & BIT(p)) -> p++ :: else -> break od; w = 0 }
		EACH_SLOT(return_slot);
		EACH_ENTRY(end_reader);
#ifndef NO_REAPERS_SWEEP /* mutant: leaves the bits of a producer that died before its re-check */
		EACH_SLOT(sweep_slot);
#endif
		STEP(unreaped = unreaped & ~BIT(p); ended = ended | BIT(p); IF(p < PRODUCERS, producing--)); /* vacate:A */
		p = 0
	:: ended == BIT(ACTORS) - 1 -> break
	od;
	goto over;
dead:	p = 0; b = 0; slot = 0; ticket = 0; mask = 0; w = 0;
	goto begin; /* the next one */
over:	skip
}
#endif

#define is_free(i) DEMAND(every_slot_is_free, STATE(word[i]) == FREE)
#define is_unused(b) DEMAND(every_entry_is_free, owner[b] == 0 && keeps[b] == 0)

init
{
	byte p;

	atomic {
		do
		:: p < ACTORS ->
			if
			:: p < PRODUCERS -> run producer(p)
			:: p >= PRODUCERS && p < PRODUCERS + RESIDENT ->
				owner[p - PRODUCERS] = p + 1; start[p - PRODUCERS] = 1; is_active = is_active | BIT(p - PRODUCERS);
				run reader(p, 1)
			:: else -> run reader(p, 0)
			fi;
			p++
		:: else -> break
		od;
#if KILLS
		run reaper(ACTORS)
#endif
	}
	(ended == BIT(ACTORS) - 1);
	d_step {
		skip;
		EACH_SLOT(is_free);
		EACH_ENTRY(is_unused);
		DEMAND(every_entry_is_free, is_active == 0)
	}
}
