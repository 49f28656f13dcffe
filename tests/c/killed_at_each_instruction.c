/* A process may be killed after any instruction of claim, commit, abort, take, release, subscribe, unsubscribe, recover, attach and
 * detach: no committed message is lost or doubled, its slots come back, the others go on. */
#include "t.h"

#include "instruction_sweep.h"

/* One call in one kind of ring. The victim's preparations: before the ring is filled, and after. */
struct call {
	const char *name;
	struct rb_options options;
	void (*join)(void);
	void (*prepare)(void);
	void (*act)(void);
	bool corpse;       /* somebody has died before it */
	bool needs_room;   /* its preparation claims a slot */
	bool may_drop;     /* its last act may be a message dropped and not counted */
	bool long_one;     /* thousands of instructions */
};

static const struct call *call;
static enum state state;
static rb_ring *other; /* the consumer that lives, or the reader that stays */
static struct rb_slot slot;

/* ---- the victim ------------------------------------------------------------------------------------------ */

static void nothing(void) { }

static void join(void)
{
	t_check(rb_ready(ring) >= 0);
}

static void subscribe(void)
{
	t_equal(rb_subscribe(ring), 0);
}

static void claim_one(void)
{
	t_check(claim(1, RB_NOW, &slot));
}

static void try_claim(void)
{
	claim(1, RB_NOW, &slot);
}

static void commit_it(void)
{
	commit(slot);
}

static void abandon_it(void)
{
	abandon(slot);
}

static void try_hold(void)
{
	if (!hold(NULL, RB_NOW, &slot))
		slot.data = NULL;
}

static void let_it_go(void)
{
	if (slot.data)
		let_go(slot);
}

static void unsubscribe(void)
{
	t_equal(rb_unsubscribe(ring), 0);
}

static void recover(void)
{
	t_check(rb_recover(ring) >= 0);
}

static void attach(void)
{
	rb_ring *mine;

	t_equal(rb_attach_fd(rb_fd(other), &mine), 0);
}

static void hold_and_claim(void)
{
	try_hold();
	claim_one();
	ledger->fate[1] = ABORTING;
}

static void detach(void)
{
	rb_detach(ring);
	if (ledger->fate[1] == ABORTING)
		ledger->fate[1] = ABORTED;
}

static void victim(void *arg)
{
	(void)arg;
	mortal = true;
	trace_me();
	call->join();
	trace_stand();
	call->prepare();
	trace_call(call->act);
}

static void corpse(void *arg)
{
	struct rb_slot held;

	(void)arg;
	mortal = true;
	if (map.header.mode == RB_BROADCAST)
		t_equal(rb_subscribe(ring), 0);
	ledger->corpse = 1;
	t_await(&ledger->corpse, 2);
	while (map.header.mode == RB_BROADCAST && rb_ready(ring) > 1)
		t_check(get(NULL, RB_NOW));
	hold(NULL, RB_NOW, &held);
	for (uint64_t tag = TAG_CORPSE; tag < TAG_CORPSE + 2; tag++)
		claim(tag, RB_NOW, &held);
	raise(SIGKILL);
}

/* ---- the living ------------------------------------------------------------------------------------------- */

static void get_through_other(int n)
{
	rb_ring *own = ring;

	(void)n;
	ring = other;
	while (get(NULL, RB_NOW))
		;
	ring = own;
}

static void get_one_through_other(void)
{
	rb_ring *own = ring;

	ring = other;
	t_check(get(NULL, RB_NOW));
	ring = own;
}

/* A ring in its state, and a victim that stands before its call. */
static pid_t set_up(void)
{
	pid_t dead = 0;

	memset(ledger, 0, sizeof(*ledger));
	*trace_place = TRACE_BEFORE;
	ring = t_create_at(__FILE__, __LINE__, call->options);
	map = t_map(ring);
	other = t_attach(ring);
	if (map.header.mode == RB_BROADCAST)
		t_equal(rb_subscribe(other), 0);
	if (call->corpse) {
		dead = t_child(corpse, NULL);
		t_await(&ledger->corpse, 1);
	}
	pid_t pid = t_child(victim, NULL);
	trace_meet(pid);
	if (state == WRAPPING && (dead || call->join == subscribe))
		scene_fill(HALF, get_through_other); /* who reads along would have to go round along */
	else
		scene_fill(state, get_through_other);
	if (dead) {
		ledger->corpse = 2;
		t_equal(t_wait(dead), SIGKILL);
	}
	if (call->needs_room && state == FULL)
		get_one_through_other();
	trace_run(pid);
	if (state == HALF || state == FULL) { /* as if somebody slept: there is somebody to wake */
		map.control->ready.word |= 1;
		map.control->freed.word |= 1;
	}
	return pid;
}

static void move_a_round(void)
{
	for (uint64_t tag = TAG_OTHERS; tag < TAG_OTHERS + SLOTS + 1; tag++) {
		for (int64_t end = t_soon(); !put(tag, RB_NOW); usleep(200)) {
			t_check(rb_now_ns() < end);
			get_through_other(0);
		}
		for (int64_t end = t_soon(); ledger->seen[tag] == 0; get_through_other(0))
			t_check(rb_now_ns() < end);
	}
}

static int64_t look_after(bool by_hand)
{
	int64_t began = rb_now_ns();

	legal_words(&map);
	if (by_hand) /* else whoever needs its slots looks after it, some 10 ms later */
		rb_recover(ring);
	move_a_round();
	int64_t took = rb_now_ns() - began;
	get_through_other(0);
	rb_detach(other);
	scene_reach_every_slot(false);
	scene_check_whole();
	scene_check_fates(call->may_drop);
	t_unmap(&map);
	rb_detach(ring);
	return took;
}

static void kill_at(const struct trace_stop *stop, int n)
{
	int descriptors = scene_descriptors();

	for (int tries = 0;; tries++) {
		pid_t pid = set_up();

		trace_lead(pid, *stop);
		trace_kill(pid);
		int64_t took = look_after(n % 16 != 0);
		t_equal(scene_descriptors(), descriptors);
		if (took > sweep.slowest_ns)
			sweep.slowest_ns = took;
		if (took < T_SECOND_NS)
			return;
		if (tries == 2)
			t_die(__FILE__, __LINE__, "the others need %lld ms", (long long)(took / T_MS_NS));
	}
}

static bool changed(void)
{
	static unsigned char before[RB_ROWS_AT + 8 * sizeof(struct rb_row) + SLOTS * sizeof(struct rb_desc)];
	bool differs = memcmp(before, map.base, sizeof(before)) != 0;

	if (differs)
		memcpy(before, map.base, sizeof(before));
	return differs;
}

static void explore(struct trace_way *way)
{
	pid_t pid = set_up();

	trace_explore(pid, way, changed);
	trace_kill(pid);
	look_after(true);
}

/* ---- all of it ---------------------------------------------------------------------------------------------- */

#define PLAIN { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .redeliver = true }
#define DROPS { .slots = SLOTS, .slot_bytes = 64, .participants = 8 }
#define OVERWRITES { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .full = RB_OVERWRITE, .redeliver = true }
#define BROADCASTS { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .mode = RB_BROADCAST }

static const struct call calls[] = {
	{ .name = "claim", .options = PLAIN, .join = join, .prepare = nothing, .act = try_claim },
	{ .name = "claim that overwrites", .options = OVERWRITES, .join = join, .prepare = nothing, .act = try_claim,
	  .may_drop = true },
	{ .name = "commit", .options = PLAIN, .join = join, .prepare = claim_one, .act = commit_it, .needs_room = true },
	{ .name = "abort", .options = PLAIN, .join = join, .prepare = claim_one, .act = abandon_it, .needs_room = true },
	{ .name = "take", .options = PLAIN, .join = join, .prepare = nothing, .act = try_hold },
	{ .name = "take and drop", .options = DROPS, .join = join, .prepare = nothing, .act = try_hold },
	{ .name = "release", .options = PLAIN, .join = join, .prepare = try_hold, .act = let_it_go },
	{ .name = "recover", .options = PLAIN, .join = join, .prepare = nothing, .act = recover, .corpse = true },
	{ .name = "recover and drop", .options = DROPS, .join = join, .prepare = nothing, .act = recover, .corpse = true,
	  .may_drop = true },
	{ .name = "attach", .options = PLAIN, .join = nothing, .prepare = nothing, .act = attach, .long_one = true },
	{ .name = "detach", .options = PLAIN, .join = join, .prepare = hold_and_claim, .act = detach, .needs_room = true, .long_one = true },
	{ .name = "claim to broadcast", .options = BROADCASTS, .join = join, .prepare = nothing, .act = try_claim },
	{ .name = "commit to readers", .options = BROADCASTS, .join = join, .prepare = claim_one, .act = commit_it,
	  .needs_room = true },
	{ .name = "abort in broadcast", .options = BROADCASTS, .join = join, .prepare = claim_one, .act = abandon_it,
	  .needs_room = true },
	{ .name = "take as a reader", .options = BROADCASTS, .join = subscribe, .prepare = nothing, .act = try_hold },
	{ .name = "release as a reader", .options = BROADCASTS, .join = subscribe, .prepare = try_hold, .act = let_it_go },
	{ .name = "subscribe", .options = BROADCASTS, .join = join, .prepare = nothing, .act = subscribe },
	{ .name = "unsubscribe", .options = BROADCASTS, .join = subscribe, .prepare = nothing, .act = unsubscribe },
	{ .name = "unsubscribe with a message", .options = BROADCASTS, .join = subscribe, .prepare = try_hold,
	  .act = unsubscribe },
	{ .name = "recover a reader", .options = BROADCASTS, .join = join, .prepare = nothing, .act = recover, .corpse = true },
	{ .name = "detach as a reader", .options = BROADCASTS, .join = subscribe, .prepare = try_hold, .act = detach },
};

int main(int argc, char **argv)
{
	struct trace_way way = { 0 };

	sweep_begin(argc, argv);
	for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
		call = &calls[c];
		for (state = 0; state < STATES; state++) {
			explore(&way);
			sweep_calls(call->name, scene_states[state], &way, !call->long_one || state == HALF, kill_at);
		}
	}
	free(way.stops);
	sweep_end();
	return 0;
}
