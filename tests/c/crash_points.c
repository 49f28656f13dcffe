/* A process may die at any point of crash_points.def: no committed message is lost or doubled, its slots come back, the others go on.
 *
 * Each role below runs once undisturbed, to see which points it passes how often; then once for each of the first
 * passes of each point, dying there. Others live meanwhile: the parent commits, a partner takes. A point that
 * no role passes fails the test. */
#include "t.h"

#include "crash.h"

#define SLOTS 3
#define PASSES 2          /* of each point in each role: the first time, and with something behind it */
#define TRIES 3           /* a slow machine may have a bad moment, not three */
#define TAGS 4096
#define OURS 100          /* tags below are the victim's and its dead friend's, from here on the parent's */

void rb_crash_point(enum rb_crash_point point)
{
	crash_here(point);
}

/* What has become of a message, as far as its producer came. */
enum fate { UNKNOWN, CLAIMING, CLAIMED, COMMITTING, COMMITTED, ABORTING };

struct shared {
	_Atomic int hits[RB_CRASH_POINT_COUNT];
	_Atomic int fate[TAGS];
	_Atomic int seen[TAGS];
	_Atomic int step, stop;
};

struct role {
	const char *name;
	struct rb_options options;
	bool undisturbed;          /* nobody else does anything until the victim is dead */
	bool ends;                 /* it finishes the ring */
	void (*prepare)(void);
	void (*act)(void);
};

static rb_ring *ring;
static struct shared *shared;
static struct rb_map map;

/* ---- messages with a fate --------------------------------------------------------------------------- */

static bool claim(uint64_t tag, int64_t deadline_ns, struct rb_slot *slot)
{
	shared->fate[tag] = CLAIMING;
	if (rb_claim(ring, tag, RB_ANY, deadline_ns, slot) < 0) {
		shared->fate[tag] = UNKNOWN;
		return false;
	}
	shared->fate[tag] = CLAIMED;
	return true;
}

static void commit(struct rb_slot slot)
{
	shared->fate[slot.tag] = COMMITTING;
	t_commit(ring, slot);
	shared->fate[slot.tag] = COMMITTED;
}

static bool put(uint64_t tag, int64_t deadline_ns)
{
	struct rb_slot slot;

	if (!claim(tag, deadline_ns, &slot))
		return false;
	commit(slot);
	return true;
}

static bool get(int64_t deadline_ns)
{
	struct rb_slot slot;

	if (rb_take(ring, NULL, deadline_ns, &slot) < 0)
		return false;
	t_verify(&slot);
	if (map.header.mode == RB_QUEUE || !crash.hits) /* a victim that reads along is one reader more */
		shared->seen[slot.tag]++;
	t_equal(rb_release(ring, &slot), 0);
	return true;
}

/* ---- roles -------------------------------------------------------------------------------------------- */

static void nothing(void) { }

static void fill_up(void)
{
	for (uint64_t i = 0; i < SLOTS; i++)
		t_check(put(OURS + i, RB_NOW));
}

static void produce(void)
{
	struct rb_slot slot, kept;

	for (uint64_t tag = 1; tag <= 4; tag++)
		t_check(put(tag, t_soon()));
	t_check(claim(5, t_soon(), &slot));
	t_check(claim(6, t_soon(), &kept));
	shared->fate[5] = ABORTING;
	t_equal(rb_abort(ring, &slot), 0);
	shared->fate[6] = ABORTING;
	rb_detach(ring);
}

static void consume(void)
{
	struct rb_slot kept;

	for (int i = 0; i < 3; i++)
		t_check(get(t_soon()));
	t_equal(rb_take(ring, NULL, t_soon(), &kept), 0);
	rb_detach(ring);
}

/* Commit to one who sleeps, so that there is somebody to wake. */
static void wake(void)
{
	for (uint64_t tag = 1; tag <= 3; tag++) {
		for (int64_t end = rb_now_ns() + T_SECOND_NS; !(map.control->ready.word & 1) && rb_now_ns() < end;)
			usleep(50);
		t_check(put(tag, t_soon()));
	}
}

static void wait_in_vain(void)
{
	struct rb_slot slot;

	for (int i = 0; i < 2; i++)
		t_equal(rb_take(ring, NULL, rb_now_ns() + T_MS_NS, &slot), -ETIMEDOUT);
	t_check(put(1, RB_NOW));
}

static void finish(void)
{
	t_check(put(1, t_soon()));
	rb_finish(ring);
}

static void read_on(void)
{
	t_equal(rb_subscribe(ring), 0);
	for (int i = 0; i < 2; i++)
		t_check(get(t_soon()));
	struct rb_slot kept;
	t_equal(rb_take(ring, NULL, t_soon(), &kept), 0);
	t_equal(rb_unsubscribe(ring), 0); /* keeps it */
	t_equal(rb_release(ring, &kept), 0);
	t_equal(rb_unsubscribe(ring), 0);
	t_equal(rb_subscribe(ring), 0);
	rb_detach(ring);
}

/* Somebody dies with two claims, one with an unread message and one with a reader's place, and nobody has noticed. */
static void die_with_claims(void *arg)
{
	struct rb_slot slot;

	(void)arg;
	if (map.header.mode == RB_BROADCAST)
		t_equal(rb_subscribe(ring), 0);
	else
		t_equal(rb_take(ring, NULL, RB_NOW, &slot), 0);
	t_check(claim(90, RB_NOW, &slot));
	t_check(claim(91, RB_NOW, &slot));
	if (map.header.mode == RB_BROADCAST)
		commit(slot);
	raise(SIGKILL);
}

static void leave_a_corpse(void)
{
	if (map.header.mode == RB_QUEUE)
		t_check(put(OURS, RB_NOW));
	t_equal(t_wait(t_child(die_with_claims, NULL)), SIGKILL);
}

static void reap(void)
{
	t_check(rb_recover(ring) >= 0); /* or joining has done it already */
}

#define PLAIN { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .redeliver = true }
#define DROPS { .slots = SLOTS, .slot_bytes = 64, .participants = 8 }
#define OVERWRITES { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .full = RB_OVERWRITE, .redeliver = true }
#define BROADCASTS { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .mode = RB_BROADCAST }

static const struct role roles[] = {
	{ "producer", PLAIN, false, false, nothing, produce },
	{ "producer alone", OVERWRITES, true, false, fill_up, produce },
	{ "consumer", PLAIN, false, false, nothing, consume },
	{ "consumer that drops", DROPS, false, false, fill_up, consume },
	{ "waker", PLAIN, false, false, nothing, wake },
	{ "waiter", PLAIN, true, false, nothing, wait_in_vain },
	{ "finisher", PLAIN, false, true, nothing, finish },
	{ "broadcaster", BROADCASTS, false, false, nothing, produce },
	{ "reader", BROADCASTS, false, false, nothing, read_on },
	{ "reaper", PLAIN, true, false, leave_a_corpse, reap },
	{ "reaper that drops", DROPS, true, false, leave_a_corpse, reap },
	{ "reaper of a reader", BROADCASTS, true, false, leave_a_corpse, reap },
};

/* ---- one run ---------------------------------------------------------------------------------------- */

static const struct role *role;

static void act(void *arg)
{
	const int *where = arg;

	crash.hits = shared->hits;
	crash_at(where[0], where[1]);
	role->act();
}

static void partner(void *arg)
{
	(void)arg;
	if (role->options.mode == RB_BROADCAST)
		t_equal(rb_subscribe(ring), 0);
	shared->step = 1;
	for (bool over = false; get(over ? RB_NOW : rb_now_ns() + 5 * T_MS_NS) || !over;)
		over = shared->stop || t_stats(ring).finished;
	rb_detach(ring);
}

/* With nobody else left: everything that is there is taken, and then all slots at once are to be had. */
static void reach_every_slot(bool reader)
{
	struct rb_slot slots[SLOTS];
	int held = 0;

	for (int64_t end = t_soon(); held < SLOTS; ) {
		t_check(rb_now_ns() < end);
		while (!reader && get(RB_NOW))
			;
		held += rb_claim(ring, 0, RB_ANY, rb_now_ns() + 20 * T_MS_NS, &slots[held]) == 0;
	}
	for (int i = 0; i < SLOTS; i++)
		t_equal(rb_abort(ring, &slots[i]), 0);
}

static void go_round_once(void)
{
	uint64_t from = TAGS - SLOTS - 1;

	for (uint64_t tag = from; tag < TAGS; tag++) {
		t_check(put(tag, t_soon()));
		if (role->options.mode == RB_QUEUE)
			t_check(get(t_soon()));
		else
			shared->seen[tag] = 1; /* nobody is subscribed by now */
	}
}

static int times_lost(const struct rb_lost *lost, int n, uint64_t tag)
{
	int times = 0;

	for (int i = 0; i < n; i++)
		times += lost[i].tag == tag;
	return times;
}

static void check_fates(void)
{
	struct rb_stats stats = t_stats(ring);
	struct rb_lost lost[RB_LOST_LOG];
	int n = rb_get_lost(ring, lost, RB_LOST_LOG), unseen = 0;
	bool may_drop = !role->options.redeliver || role->options.full == RB_OVERWRITE;

	t_equal(stats.lost, n);
	t_check(times_lost(lost, n, RB_TAG_UNKNOWN) <= 1);
	for (uint64_t tag = 1; tag < TAGS; tag++) {
		int fate = shared->fate[tag], seen = shared->seen[tag], gone = times_lost(lost, n, tag);

		if (fate == COMMITTED && seen == 0 && gone == 0 && may_drop)
			unseen++;
		else if (fate == COMMITTED)
			t_check(seen == 1 && gone == 0);
		else if (fate == COMMITTING && may_drop)
			t_check(seen + gone <= 1);
		else if (fate == COMMITTING)
			t_check(seen + gone == 1);
		else if (fate == CLAIMED)
			t_check(seen == 0 && gone == 1);
		else
			t_check(seen == 0 && gone <= (fate != UNKNOWN));
	}
	if (role->options.mode == RB_QUEUE && may_drop) /* its last act, the dead one may not have counted */
		t_check((uint64_t)unseen >= stats.dropped && (uint64_t)unseen <= stats.dropped + 2);
}

static void check_survivors(void)
{
	if (role->ends) {
		struct rb_slot slot;
		if (t_stats(ring).finished) { /* else it died before */
			while (get(t_soon()))
				;
			t_equal(rb_take(ring, NULL, t_soon(), &slot), -EPIPE);
			return;
		}
	}
	reach_every_slot(role->options.mode == RB_BROADCAST);
	go_round_once();
	rb_recover(ring); /* who died without holding anything was in nobody's way */
	struct rb_stats stats = t_stats(ring);
	t_equal(stats.free, SLOTS);
	t_equal(stats.readers, 0);
	t_equal(stats.participants, 1);
}

/* The victim runs its role, dying at a point or not; then the others are looked at. How long did they take? */
static int64_t run(int point, int nth)
{
	int where[] = { point, nth };
	pid_t with = 0;

	memset(shared, 0, sizeof(*shared));
	ring = t_create_at(__FILE__, __LINE__, role->options);
	map = t_map(ring);
	role->prepare();
	if (!role->undisturbed) {
		with = t_child(partner, NULL);
		t_await(&shared->step, 1);
	}
	pid_t victim = t_child(act, where);
	siginfo_t ended = { 0 };
	for (uint64_t tag = OURS + SLOTS; ended.si_pid == 0; usleep(200)) {
		if (!role->undisturbed && tag < TAGS - SLOTS - 1)
			tag += put(tag, RB_NOW);
		t_equal(waitid(P_PID, (id_t)victim, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
	}
	if (!crash_died(victim) && point != CRASH_NOWHERE && role->undisturbed)
		t_die(__FILE__, __LINE__, "it did not come by again");

	int64_t began = rb_now_ns();
	if (role->options.mode == RB_BROADCAST && role->undisturbed)
		shared->seen[91] = 1; /* the one reader died */
	shared->stop = 1;
	if (with > 0)
		t_ends_well(with);
	check_survivors();
	int64_t took = rb_now_ns() - began;
	check_fates();
	t_unmap(&map);
	rb_detach(ring);
	return took;
}

/* ---- roles around a name ------------------------------------------------------------------------------ */

static const char *name;

static struct rb_options named(void)
{
	return (struct rb_options){ .name = name, .slots = SLOTS, .slot_bytes = 64, .participants = 8, .redeliver = true };
}

static void create(void)
{
	struct rb_options options = named();

	ring = t_create_at(__FILE__, __LINE__, options);
}

static void create_and_leave(void)
{
	create();
	rb_detach(ring);
}

static void unlink_name(void)
{
	t_equal(rb_unlink(name), 0);
}

static void die_as_creator(void *arg)
{
	(void)arg;
	create();
	raise(SIGKILL);
}

static void leave_a_name(void)
{
	t_equal(t_wait(t_child(die_as_creator, NULL)), SIGKILL);
	t_check(t_name_exists(name));
}

static const struct role name_roles[] = {
	{ .name = "creator", .prepare = nothing, .act = create_and_leave },
	{ .name = "creator after the dead", .prepare = leave_a_name, .act = create_and_leave },
	{ .name = "unlinker", .prepare = leave_a_name, .act = unlink_name },
};

/* Whatever the victim left: the name can be had, the ring under it is new and whole, and goes when we go. */
static int64_t run_name(int point, int nth)
{
	int where[] = { point, nth };

	memset(shared, 0, sizeof(*shared));
	role->prepare();
	t_equal(crash_died(t_child(act, where)), point != CRASH_NOWHERE);
	int64_t began = rb_now_ns();
	create();
	t_equal(t_stats(ring).participants, 1);
	for (uint64_t tag = 1; tag <= SLOTS + 1; tag++) {
		t_check(put(tag, t_soon()));
		t_check(get(t_soon()));
	}
	rb_ring *other;
	t_equal(rb_attach(name, &other), 0);
	rb_detach(other);
	rb_detach(ring);
	t_check(!t_name_exists(name));
	t_equal(rb_unlink(name), -ENOENT);
	return rb_now_ns() - began;
}

/* ---- all of it ---------------------------------------------------------------------------------------- */

static bool reached[RB_CRASH_POINT_COUNT];

static void die_everywhere(const struct role *which, int64_t (*run_role)(int point, int nth))
{
	int hits[RB_CRASH_POINT_COUNT];

	role = which;
	snprintf(t_context, sizeof(t_context), "%s undisturbed: ", role->name);
	run_role(CRASH_NOWHERE, 0);
	for (int point = 0; point < RB_CRASH_POINT_COUNT; point++)
		hits[point] = shared->hits[point];
	for (int point = 0; point < RB_CRASH_POINT_COUNT; point++) {
		reached[point] |= hits[point] > 0;
		for (int nth = 1; nth <= hits[point] && nth <= PASSES; nth++) {
			int64_t best = INT64_MAX;

			snprintf(t_context, sizeof(t_context), "%s dead at %s (%d): ", role->name, crash_names[point], nth);
			for (int i = 0; i < TRIES && best > T_SECOND_NS; i++) {
				int64_t took = run_role(point, nth);
				best = took < best ? took : best;
			}
			if (best > T_SECOND_NS)
				t_die(__FILE__, __LINE__, "the others need %lld ms", (long long)(best / T_MS_NS));
		}
	}
}

int main(void)
{
	shared = t_shared(sizeof(*shared));
	name = t_name();
	for (size_t r = 0; r < sizeof(roles) / sizeof(roles[0]); r++)
		die_everywhere(&roles[r], run);
	for (size_t r = 0; r < sizeof(name_roles) / sizeof(name_roles[0]); r++)
		die_everywhere(&name_roles[r], run_name);
	t_context[0] = '\0';
	for (int point = 0; point < RB_CRASH_POINT_COUNT; point++)
		if (!reached[point])
			t_die(__FILE__, __LINE__, "no role comes by %s", crash_names[point]);
	return 0;
}
