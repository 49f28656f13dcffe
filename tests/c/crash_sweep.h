/* Roles, and what is done to them: a role's process dies, stops or dawdles at each point that it passes, in each state of
 * the ring, while a partner lives; then the others are looked at. A role says which points it must pass in which state.
 * After t.h. */
#ifndef CRASH_SWEEP_H
#define CRASH_SWEEP_H

#include "crash.h"
#include "scene.h"

#define TRIES 3 /* a slow machine may have a bad moment, not three; a point that depends on timing may be missed */
#define END CRASH_NOWHERE
#define PARTNERS_SHARE 20
#define P(name) RB_AT_##name
#define POINTS(...) ((const int[]){ __VA_ARGS__, END })
#define IN(state) (1u << (state))
#define IN_ALL (IN(STATES) - 1)

#define JOINS P(join_opened), P(join_locked), P(join_named), P(join_written)
#define CLAIMS P(claim_owned), P(claim_labelled), P(claim_tagged)
#define COMMITS P(commit_sized), P(commit_ticketed), P(commit_published), P(commit_counted)
#define TAKES P(take_owned)
#define RELEASES P(release_freed), P(release_counted)
#define WAKES P(wake_moved), P(wake_told)
#define LEAVES P(leave_returned), P(leave_vacated), P(leave_unlocked)
#define BURIES P(bury_drafted), P(bury_noted), P(free_ticketed), P(bury_freed), P(log_drawn), P(log_voided), P(bury_logged), \
	P(bury_counted), P(bury_closed), P(reap_returned)
#define REAPS P(reap_locked), P(reap_done), P(reap_vacated), P(reap_unlocked)

/* ---- which program is to pass a point ------------------------------------------------------------------ */

enum { BY_QUEUE = 1, BY_BROADCAST = 2, BY_NAMES = 4, BY_BOTH = BY_QUEUE | BY_BROADCAST, BY_ALL = BY_BOTH | BY_NAMES };

#ifdef RINGBUF_WAIT_SEMAPHORE
#define BY_BELLS BY_BOTH
#else
#define BY_BELLS 8 /* none: futexes have no such point */
#endif

static const unsigned char sweep_programs[RB_CRASH_POINT_COUNT] = {
	[P(create_opened)] = BY_NAMES, [P(create_reserved)] = BY_NAMES, [P(create_filled)] = BY_NAMES,
	[P(create_linked)] = BY_NAMES, [P(reclaim_locked)] = BY_NAMES, [P(reclaim_unlinked)] = BY_NAMES,
	[P(attach_opened)] = BY_ALL, [P(attach_mapped)] = BY_ALL, [P(join_opened)] = BY_ALL, [P(join_alive)] = BY_NAMES,
	[P(join_locked)] = BY_ALL, [P(join_named)] = BY_ALL, [P(join_written)] = BY_ALL,
	[P(leave_returned)] = BY_ALL, [P(leave_vacated)] = BY_ALL, [P(leave_unlocked)] = BY_ALL,
	[P(leave_lifeless)] = BY_NAMES, [P(leave_last)] = BY_NAMES, [P(leave_unnamed)] = BY_NAMES,
	[P(claim_owned)] = BY_BOTH, [P(claim_labelled)] = BY_BOTH, [P(claim_tagged)] = BY_BOTH, [P(claim_counted)] = BY_QUEUE,
	[P(commit_sized)] = BY_BOTH, [P(commit_ticketed)] = BY_BOTH, [P(commit_published)] = BY_BOTH,
	[P(commit_rechecked)] = BY_BROADCAST, [P(commit_counted)] = BY_BOTH, [P(abort_freed)] = BY_BOTH,
	[P(free_ticketed)] = BY_BOTH, [P(finish_set)] = BY_BOTH,
	[P(take_owned)] = BY_BOTH, [P(release_freed)] = BY_BOTH, [P(release_counted)] = BY_BOTH,
	[P(bit_cleared)] = BY_BROADCAST, [P(subscribe_owned)] = BY_BROADCAST, [P(subscribe_active)] = BY_BROADCAST,
	[P(subscribe_started)] = BY_BROADCAST, [P(unsubscribe_announced)] = BY_BROADCAST,
	[P(unsubscribe_inactive)] = BY_BROADCAST, [P(unsubscribe_swept)] = BY_BROADCAST, [P(unsubscribe_ended)] = BY_BROADCAST,
	[P(wake_moved)] = BY_BOTH, [P(wake_told)] = BY_BOTH, [P(bell_posted)] = BY_BELLS, [P(bell_counted)] = BY_BELLS,
	[P(wait_flagged)] = BY_BOTH, [P(wait_woken)] = BY_BOTH,
	[P(reap_locked)] = BY_BOTH, [P(bury_drafted)] = BY_BOTH, [P(bury_noted)] = BY_BOTH, [P(bury_freed)] = BY_BOTH,
	[P(log_drawn)] = BY_BOTH, [P(log_voided)] = BY_BOTH, [P(bury_logged)] = BY_BOTH, [P(bury_counted)] = BY_BOTH,
	[P(bury_closed)] = BY_BOTH, [P(reap_dropped)] = BY_QUEUE, [P(reap_returned)] = BY_BOTH, [P(reap_done)] = BY_BOTH,
	[P(reap_vacated)] = BY_BOTH, [P(reap_unlocked)] = BY_BOTH,
};

/* ---- figures ------------------------------------------------------------------------------------------ */

static struct {
	int roles, places, kills, stops, delays; /* places: role, state and point */
	bool died_at[RB_CRASH_POINT_COUNT];
	int64_t said_ns;
	bool thorough;
} sweep;

static inline void sweep_begin(int argc, char **argv)
{
	sweep.thorough = t_thorough(argc, argv);
	ledger = t_shared(sizeof(*ledger));
	for (int point = 0; point < RB_CRASH_POINT_COUNT; point++)
		if (sweep_programs[point] == 0)
			t_die(__FILE__, __LINE__, "no program is made to pass %s", crash_names[point]);
}

static inline void sweep_progress(void)
{
	if (!sweep.thorough || rb_now_ns() < sweep.said_ns + 3 * T_SECOND_NS)
		return;
	sweep.said_ns = rb_now_ns();
	fprintf(stderr, "%s%d kills, %d stops, %d delays\n", t_context, sweep.kills, sweep.stops, sweep.delays);
}

static inline void sweep_end(int program)
{
	int points = 0;

	t_context[0] = '\0';
	for (int point = 0; point < RB_CRASH_POINT_COUNT; point++) {
		points += sweep.died_at[point];
		if (sweep_programs[point] & program && !sweep.died_at[point])
			t_die(__FILE__, __LINE__, "nobody died at %s", crash_names[point]);
	}
	t_figures("points=%d roles=%d places=%d kills=%d stops=%d delays=%d", points, sweep.roles, sweep.places, sweep.kills,
		  sweep.stops, sweep.delays);
}

/* ---- roles on a ring that is there already -------------------------------------------------------------- */

struct pass {
	unsigned states;   /* in which of them these points must be passed; 0: end of the list */
	const int *points;
};

struct role {
	const char *name;
	struct rb_options options;
	void (*act)(enum state state);
	unsigned states;           /* in which of them it can act */
	bool corpse;               /* somebody has died with slots before it begins */
	bool fed;                  /* the living put messages until it ends */
	enum { CONSUMES, SLEEPS_FOR_A_TAG, SLEEPS_FOR_A_SLOT } partner;
	int opens;                 /* the partner begins, and the feeding, when it comes by here; END: not before it is gone */
	struct pass passes[4];
};

struct deed {
	enum crash_deed what;
	int point, nth;
};

static const struct role *role;
static enum state state;

static inline bool is_open(void)
{
	return ledger->open || (role->opens != END && ledger->hits[role->opens] > 0);
}

/* The one who is always there: the consumer of a queue, the reader that stays of a broadcast. */
static inline void partner_process(void *arg)
{
	const struct rb_filter wake = { .by_tag = true, .tag = TAG_WAKE };
	struct rb_slot slot;

	(void)arg;
	t_context[0] = '\0';
	if (role->options.mode == RB_BROADCAST)
		t_equal(rb_subscribe(ring), 0);
	ledger->partner = 1;
	for (int n = scene_rounds(state); n > 0; n--) {
		t_check(get(NULL, t_soon()));
		ledger->partner++;
	}
	t_await(&ledger->filled, 1);
	while (role->partner == SLEEPS_FOR_A_TAG && !ledger->open && !get(&wake, rb_now_ns() + 20 * T_MS_NS) &&
	       !t_stats(ring).finished)
		;
	while (role->partner == SLEEPS_FOR_A_SLOT && !ledger->open) {
		if (!claim(TAG_OTHERS - 1, rb_now_ns() + 20 * T_MS_NS, &slot))
			continue;
		abandon(slot);
		break;
	}
	while (!is_open())
		usleep(50);
	/* What a consumer is fed is for the consumer; we take only some of it while it lives. */
	for (int n = role->fed && role->options.mode == RB_QUEUE ? PARTNERS_SHARE : TAGS; n > 0 && !ledger->gone;)
		n -= get(NULL, rb_now_ns() + T_MS_NS);
	while (!ledger->gone)
		usleep(50);
	for (bool last = false; get(NULL, last ? RB_NOW : rb_now_ns() + 2 * T_MS_NS) || !last;)
		last = ledger->over || t_stats(ring).finished;
	rb_detach(ring);
}

static inline void partner_caught_up(int n)
{
	t_await(&ledger->partner, n + 1);
}

/* In a queue with one message in hand, two claims, and none of it noticed; in broadcast as a reader with a message in hand, a
 * claim, and a message that it died committing. */
static inline void corpse_process(void *arg)
{
	bool broadcast = role->options.mode == RB_BROADCAST;
	struct rb_slot slot;

	(void)arg;
	mortal = true;
	if (broadcast)
		t_equal(rb_subscribe(ring), 0);
	ledger->corpse = 1;
	for (int n = broadcast ? scene_rounds(state) : 0; n > 0; n--)
		t_check(get(NULL, t_soon()));
	t_await(&ledger->corpse, 2);
	if (state == FULL && !broadcast) {
		t_check(get(NULL, RB_NOW));
		t_check(get(NULL, RB_NOW));
	}
	if (state != EMPTY)
		t_check(hold(NULL, RB_NOW, &slot));
	if (state == HALF)
		t_equal(rb_unsubscribe(ring), 0); /* a reader keeps what it has taken */
	if (!(state == FULL && broadcast)) {
		t_check(claim(TAG_CORPSE, RB_NOW, &slot));
		t_check(claim(TAG_CORPSE + 1, RB_NOW, &slot));
		crash_at(RB_AT_commit_published, 1);
		if (broadcast)
			commit(slot);
	}
	crash_die();
}

static inline void victim_process(void *arg)
{
	const struct deed *deed = arg;

	mortal = true;
	crash.hits = ledger->hits;
	crash_do_at(deed->what, deed->point, deed->nth);
	role->act(state);
}

/* For a victim that wakes: until somebody sleeps on this event, or has no reason to any more. */
static inline void await_sleeper(struct rb_event *event)
{
	for (int64_t end = t_soon();; usleep(50)) {
		bool asleep = event->word & 1;
#ifdef RINGBUF_WAIT_SEMAPHORE
		asleep = asleep && event->sleepers[event->word / 2 & 1] > 0;
#endif
		if (asleep || ledger->open)
			return;
		t_check(rb_now_ns() < end);
	}
}

/* ---- while it is stopped -------------------------------------------------------------------------------- */

/* Rows that are not to be touched: the victim's, and that of a corpse whose byte it holds. */
static inline bool row_is_guarded(uint32_t row, pid_t victim, pid_t corpse)
{
	uint64_t pid = atomic_load(&map.rows[row].pid);

	if (!atomic_load(&map.rows[row].joined))
		return false;
	return pid == (uint64_t)victim || (corpse > 0 && pid == (uint64_t)corpse && legal_locked(rb_fd(ring), row));
}

/* What of a slot's word is guarded: all of it, the bits of guarded readers, or nothing (0). */
static inline uint64_t guarded_part(uint64_t word, uint64_t rows, uint32_t readers)
{
	uint32_t who = rb_word_who(&map, word);

	if (rb_word_state(word) == RB_WRITING || rb_word_state(word) == RB_READING)
		return rows >> (who - 1) & 1 ? word : 0;
	if (rb_word_state(word) != RB_READY || map.header.mode != RB_BROADCAST || !(who & readers))
		return 0;
	return rb_word(&map, RB_READY, who & readers, rb_word_seq(&map, word));
}

struct guarded {
	uint64_t rows;
	uint32_t readers;
	uint64_t parts[SLOTS];
};

static inline struct guarded guard(pid_t victim, pid_t corpse)
{
	struct guarded guarded = { 0 };

	for (uint32_t p = 0; p < map.header.participants; p++)
		guarded.rows |= (uint64_t)row_is_guarded(p, victim, corpse) << p;
	/* Of a reader that is neither active nor keeps anything, bits are cleared by whoever sees them. */
	for (uint32_t b = 0; b < RB_READERS_MAX; b++) {
		const struct rb_reader *reader = &map.control->readers[b];
		bool guards = map.control->active >> b & 1 || reader->keeps;
		if (reader->owner != 0 && guarded.rows >> (reader->owner - 1) & 1 && guards)
			guarded.readers |= 1u << b;
	}
	for (uint32_t i = 0; i < SLOTS; i++)
		guarded.parts[i] = guarded_part(map.descs[i].word, guarded.rows, guarded.readers);
	return guarded;
}

static inline void check_not_robbed(const struct guarded *before, pid_t victim, pid_t corpse)
{
	struct guarded now = guard(victim, corpse);

	if ((now.rows & before->rows) != before->rows)
		t_die(__FILE__, __LINE__, "a stopped process's row was vacated");
	if ((now.readers & before->readers) != before->readers)
		t_die(__FILE__, __LINE__, "a stopped reader was unsubscribed");
	for (int i = 0; i < SLOTS; i++)
		if (before->parts[i] != 0 && now.parts[i] != before->parts[i])
			t_die(__FILE__, __LINE__, "a stopped process was robbed of slot %d: 0x%llx became 0x%llx", i,
			      (unsigned long long)before->parts[i], (unsigned long long)now.parts[i]);
}

/* The living move this one along, over the slots that are left. Returns false when none is by the deadline. */
static inline bool deliver(uint64_t tag, int64_t deadline_ns)
{
	if (!put(tag, deadline_ns))
		return false;
	for (int64_t end = t_soon(); ledger->seen[tag] == 0; usleep(50)) {
		if (rb_now_ns() > end)
			t_die(__FILE__, __LINE__, "message %d does not arrive", (int)tag);
		if (map.header.mode == RB_QUEUE)
			get(NULL, RB_NOW);
	}
	return true;
}

static inline int slots_in(enum rb_state wanted)
{
	int n = 0;

	for (uint32_t i = 0; i < SLOTS; i++)
		n += rb_word_state(map.descs[i].word) == wanted;
	return n;
}

static inline uint64_t go_on_without_it(uint64_t tag)
{
	bool queue = map.header.mode == RB_QUEUE;
	int moved = 0;

	rb_recover(ring);
	ledger->open = 1; /* in broadcast it is the partner that reads */
	while (queue && get(NULL, RB_NOW))
		;
	int left = slots_in(RB_FREE);
	int must = left == 0 ? 0 : queue ? SLOTS + 1 : left;
	/* The partner may have the one slot that is left in its hands, and no processor. */
	while (moved < SLOTS + 1 && deliver(tag, moved < must ? t_soon() : rb_now_ns() + T_MS_NS)) {
		tag++;
		moved++;
	}
	if (moved < must)
		t_die(__FILE__, __LINE__, "with %d slots left, the others move %d messages", left, moved);
	rb_recover(ring);
	return tag;
}

static inline uint64_t while_stopped(pid_t victim, pid_t corpse, uint64_t tag)
{
	struct guarded before = guard(victim, corpse);

	legal_words(&map);
	if (!t_stats(ring).finished)
		tag = go_on_without_it(tag);
	check_not_robbed(&before, victim, corpse);
	legal_words(&map);
	sweep.stops++;
	return tag;
}

/* ---- one run ---------------------------------------------------------------------------------------- */

/* The victim's process, from its beginning to its end; we feed it meanwhile. Returns its status and the next free tag. */
static inline int attend(pid_t victim, pid_t corpse, bool stops, uint64_t *tag)
{
	int status;

	for (int64_t end = t_soon(); waitpid(victim, &status, WNOHANG | (stops ? WUNTRACED : 0)) != victim; usleep(100)) {
		if (rb_now_ns() > end) {
			kill(victim, SIGKILL);
			waitpid(victim, &status, 0);
			t_die(__FILE__, __LINE__, "it does not end");
		}
		if (role->fed && is_open() && *tag < TAGS - 2 * SLOTS)
			*tag += put(*tag, RB_NOW);
	}
	if (!WIFSTOPPED(status))
		return status;
	*tag = while_stopped(victim, corpse, *tag);
	t_check(victim > 1);
	t_equal(kill(victim, SIGCONT), 0);
	return attend(victim, corpse, false, tag);
}

/* Slots + 1 messages, so that each slot is used again; asleep as long as it takes, or looking again and again. */
static inline void move_a_round(uint64_t tag, bool asleep)
{
	for (int i = 0; i <= SLOTS; i++, tag++)
		for (int64_t end = t_soon(); !put(tag, asleep ? end : rb_now_ns() + T_MS_NS);)
			t_check(rb_now_ns() < end);
	for (int64_t end = t_soon(); ledger->seen[tag - 1] == 0; usleep(50))
		t_check(rb_now_ns() < end);
}

static inline bool may_be_uncounted(const struct deed *deed)
{
	return deed->what == CRASH_DIE &&
	       (deed->point == P(claim_owned) || deed->point == P(claim_labelled) || deed->point == P(claim_tagged) ||
		deed->point == P(reap_dropped));
}

/* The role in its state, and what is done to it. *took: how long the others needed afterwards. Returns false when it did not come
 * by the point. */
static inline bool run(struct deed deed, int64_t *took)
{
	int descriptors = scene_descriptors();
	pid_t corpse = 0;
	uint64_t tag = TAG_OTHERS;

	memset(ledger, 0, sizeof(*ledger));
	ring = t_create_at(__FILE__, __LINE__, role->options);
	map = t_map(ring);
	pid_t partner = t_child(partner_process, NULL);
	t_await(&ledger->partner, 1);
	if (role->corpse) {
		corpse = t_child(corpse_process, NULL);
		t_await(&ledger->corpse, 1);
	}
	scene_fill(state, partner_caught_up);
	ledger->filled = 1;
	if (role->corpse) {
		ledger->corpse = 2;
		t_equal(t_wait(corpse), SIGKILL);
	}
	ledger->open = deed.what == CRASH_DELAY;
	pid_t victim = t_child(victim_process, &deed);
	int status = attend(victim, corpse, deed.what == CRASH_STOP, &tag);
	t_check(status == 0 || (status == SIGKILL && deed.what == CRASH_DIE));

	int64_t began = rb_now_ns();
	ledger->open = ledger->gone = 1;
	legal_words(&map);
	bool asleep = deed.nth == 2 || (state == HALF && (deed.point == P(claim_tagged) || deed.point == P(take_owned)));
	bool finished = t_stats(ring).finished; /* else it died before */
	if (!finished)
		move_a_round(tag, asleep);
	*took = rb_now_ns() - began;
	ledger->over = 1;
	t_ends_well(partner);
	if (finished) {
		while (map.header.mode == RB_QUEUE && get(NULL, t_soon()))
			;
		if (map.header.mode == RB_QUEUE)
			t_equal(t_refused_take(ring), -EPIPE);
	} else {
		scene_reach_every_slot(asleep);
		*took = rb_now_ns() - began;
	}
	scene_check_whole();
	scene_check_fates(may_be_uncounted(&deed));
	t_unmap(&map);
	rb_detach(ring);
	t_equal(scene_descriptors(), descriptors);
	sweep_progress();
	return deed.what == CRASH_DIE ? status == SIGKILL : deed.point == CRASH_NOWHERE || ledger->hits[deed.point] >= deed.nth;
}

/* ---- all of a role ------------------------------------------------------------------------------------ */

static inline bool must_pass(int point)
{
	for (const struct pass *pass = role->passes; pass->states; pass++)
		for (const int *listed = pass->points; pass->states & IN(state) && *listed != END; listed++)
			if (*listed == point)
				return true;
	return false;
}

static inline void say_where(const char *what, int point, int nth)
{
	snprintf(t_context, sizeof(t_context), "%s, ring %s, %s at %s (%d): ", role->name, scene_states[state], what,
		 point == CRASH_NOWHERE ? "no point" : crash_names[point], nth);
}

/* Returns whether it came by. */
static inline bool run_fast_enough(struct deed deed)
{
	int64_t best = INT64_MAX;
	bool came_by = false;

	for (int i = 0; i < TRIES && (best > T_SECOND_NS || !came_by); i++) {
		int64_t took;

		came_by |= run(deed, &took);
		best = took < best ? took : best;
	}
	if (best > T_SECOND_NS)
		t_die(__FILE__, __LINE__, "the others need %lld ms", (long long)(best / T_MS_NS));
	return came_by;
}

static inline void do_at_point(int point, int passes, bool stop, bool delay)
{
	bool must = must_pass(point);

	for (int nth = 1; nth <= passes; nth++) {
		say_where("dead", point, nth);
		bool died = run_fast_enough((struct deed){ CRASH_DIE, point, nth });
		if (!died && must && nth == 1)
			t_die(__FILE__, __LINE__, "it did not come by");
		sweep.kills += died;
		sweep.died_at[point] |= died;
		if (stop) {
			say_where("stopped", point, nth);
			if (!run_fast_enough((struct deed){ CRASH_STOP, point, nth }) && must && nth == 1)
				t_die(__FILE__, __LINE__, "it did not come by");
		}
		if (delay) {
			say_where("delayed", point, nth);
			sweep.delays += run_fast_enough((struct deed){ CRASH_DELAY, point, nth });
		}
	}
}

/* Undisturbed, to see which points it passes how often; then at each of them. */
static inline void sweep_state(int passes, unsigned turn)
{
	int hits[RB_CRASH_POINT_COUNT] = { 0 };
	struct deed nothing = { CRASH_DIE, CRASH_NOWHERE, 0 };

	say_where("undisturbed", CRASH_NOWHERE, 0);
	run_fast_enough(nothing);
	for (int point = 0; point < RB_CRASH_POINT_COUNT; point++) {
		hits[point] = ledger->hits[point];
		if (must_pass(point) && hits[point] == 0)
			t_die(__FILE__, __LINE__, "it does not pass %s", crash_names[point]);
	}
	for (int point = 0; point < RB_CRASH_POINT_COUNT; point++) {
		bool stop = sweep.thorough || (point + turn) % STATES == (unsigned)state; /* the short version: in one state */

		sweep.places += hits[point] > 0;
		if (hits[point] > 0)
			do_at_point(point, hits[point] < passes ? hits[point] : passes, stop, sweep.thorough);
	}
}

static inline void sweep_roles(const struct role *roles, size_t n)
{
	for (size_t r = 0; r < n; r++) {
		role = &roles[r];
		enum state plain = role->states & IN(HALF) ? HALF : FULL;
		sweep.roles++;
		for (state = 0; state < STATES; state++)
			if (role->states & IN(state) && (sweep.thorough || !T_SANITIZED || state == plain))
				sweep_state(sweep.thorough ? 3 : 1, (unsigned)r);
	}
}

#endif
