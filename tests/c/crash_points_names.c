/* A process may die or stop at any point of crash_points.def around a name: a dead one's name can be had, with a new and whole ring
 * under it; one that lives, also if stopped, keeps its own and takes nobody else's. */
#include "t.h"

#include "crash_sweep.h"
#include "named.h"

void rb_crash_point(enum rb_crash_point point)
{
	crash_here(point);
}

/* ---- what the roles do ---------------------------------------------------------------------------------- */

static void create_and_leave(enum state in)
{
	int rc = create();

	if (rc == -EEXIST)
		return; /* somebody had it while we were stopped */
	t_equal(rc, 0);
	scene_fill(in, get_all);
	leave();
}

static void attach_and_leave(enum state in)
{
	t_equal(rb_attach(name, &ring), 0);
	t_check(in == FULL || put(1, RB_NOW));
	ledger->partner = 1;
	t_await(&ledger->open, 1); /* whoever was there before us may have left by now */
	rb_detach(ring);
}

static void unlink_name(enum state in)
{
	(void)in;
	t_equal(rb_unlink(name), 0);
}

static void nothing(void) { }

/* ---- the roles -------------------------------------------------------------------------------------------- */

#define CREATES P(create_opened), P(create_reserved), P(create_filled), P(join_opened), P(join_alive), P(join_locked), \
	P(join_named), P(join_written), P(create_linked)
#define RECLAIMS P(reclaim_locked), P(reclaim_unlinked)
#define ATTACHES P(attach_opened), P(attach_mapped), P(join_opened), P(join_alive), P(join_locked), P(join_named), \
	P(join_written)
#define LEAVES_A_NAME LEAVES, P(leave_lifeless)
#define LEAVES_LAST LEAVES_A_NAME, P(leave_last), P(leave_unnamed)

static const struct name_role {
	const char *name;
	void (*prepare)(void);
	void (*act)(enum state state);
	enum { WE_ARE_NOT_THERE, WE_STAY, WE_LEAVE_FIRST } we;
	const int *passes;
} roles[] = {
	{ "creator", nothing, create_and_leave, WE_ARE_NOT_THERE, POINTS(CREATES, LEAVES_LAST) },
	{ "creator over the dead", leave_a_dead_ring, create_and_leave, WE_ARE_NOT_THERE, POINTS(CREATES, RECLAIMS, LEAVES_LAST) },
	{ "attacher", be_there, attach_and_leave, WE_STAY, POINTS(ATTACHES, LEAVES_A_NAME) },
	{ "last one out", be_there, attach_and_leave, WE_LEAVE_FIRST, POINTS(ATTACHES, LEAVES_LAST) },
	{ "unlinker", leave_a_dead_ring, unlink_name, WE_ARE_NOT_THERE, POINTS(RECLAIMS) },
};

static const struct name_role *playing;

static void victim(void *arg)
{
	const struct deed *deed = arg;

	mortal = true;
	crash.hits = ledger->hits;
	crash_do_at(deed->what, deed->point, deed->nth);
	playing->act(state);
}

/* ---- while it is stopped ------------------------------------------------------------------------------------ */

enum standing { TO_BE_HAD, IN_USE, BEING_REMOVED };

static enum standing standing_at(int point)
{
	if (point == P(reclaim_locked) || point == P(leave_last))
		return BEING_REMOVED;
	if (playing->we == WE_STAY)
		return IN_USE;
	if (point == P(reclaim_unlinked) || point == P(leave_lifeless) || point == P(leave_unnamed))
		return TO_BE_HAD;
	if (playing->we == WE_LEAVE_FIRST)
		return IN_USE;
	return ledger->hits[P(create_linked)] > 0 ? IN_USE : TO_BE_HAD;
}

static void use(rb_ring *with, uint64_t tag)
{
	struct rb_slot slot;

	while (rb_claim(with, tag, RB_ANY, RB_NOW, &slot) == -EAGAIN) {
		if (t_stats(with).ready == 0)
			return; /* all slots are in its hands */
		t_get(with);
	}
	t_commit(with, slot);
	while (t_get(with) != tag)
		;
}

/* Ours from now on, if it is to be had; then nobody may take it from us. */
static rb_ring *try_the_name(int point)
{
	enum standing standing = standing_at(point);
	struct rb_options options = { .name = name, .slots = SLOTS, .slot_bytes = 64, .participants = 8 };
	rb_ring *mine = NULL, *other;

	t_equal(rb_create(&options, &mine), standing == TO_BE_HAD ? 0 : -EEXIST);
	t_equal(rb_attach(name, &other), standing == BEING_REMOVED ? -ENOENT : 0);
	t_equal(rb_unlink(name), -EBUSY);
	if (standing == BEING_REMOVED)
		return NULL;
	if (playing->we != WE_STAY) /* else its messages are in the ledger */
		use(other, TAG_OTHERS);
	rb_detach(other);
	return mine;
}

static void check_still_ours(rb_ring *mine)
{
	rb_ring *other;

	if (!mine)
		return;
	t_equal(rb_attach(name, &other), 0);
	struct rb_map a = t_map(mine), b = t_map(other);
	t_equal(memcmp(a.header.id, b.header.id, sizeof(a.header.id)), 0);
	t_unmap(&a);
	t_unmap(&b);
	use(other, 1);
	rb_detach(other);
	rb_detach(mine);
	t_check(!t_name_exists(name));
}

/* ---- one run -------------------------------------------------------------------------------------------------- */

static bool to_leave; /* we are there, and go before it does */

static void leave_first(void)
{
	if (to_leave)
		leave();
	to_leave = false;
	ledger->open = 1;
}

static int attend_name(pid_t pid, const struct deed *deed)
{
	int status;

	for (int64_t end = t_soon(); waitpid(pid, &status, WNOHANG | WUNTRACED) != pid; usleep(100)) {
		if (ledger->partner)
			leave_first();
		if (rb_now_ns() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			t_die(__FILE__, __LINE__, "it does not end");
		}
	}
	if (!WIFSTOPPED(status)) {
		leave_first();
		return status;
	}
	rb_ring *mine = try_the_name(deed->point);
	sweep.stops++;
	t_check(pid > 1);
	t_equal(kill(pid, SIGCONT), 0);
	status = attend_name(pid, deed);
	check_still_ours(mine);
	return status;
}

static bool run_name(struct deed deed, int64_t *took)
{
	int descriptors = scene_descriptors();

	memset(ledger, 0, sizeof(*ledger));
	playing->prepare();
	to_leave = playing->we == WE_LEAVE_FIRST;
	int status = attend_name(t_child(victim, &deed), &deed);
	t_check(status == 0 || (status == SIGKILL && deed.what == CRASH_DIE));
	bool died = status == SIGKILL;
	int64_t began = rb_now_ns();
	int hits[RB_CRASH_POINT_COUNT];
	for (int point = 0; point < RB_CRASH_POINT_COUNT; point++)
		hits[point] = ledger->hits[point];
	if (playing->we == WE_STAY)
		check_ring_goes_on();
	else
		check_name_to_be_had();
	*took = rb_now_ns() - began;
	leave();
	t_equal(names_left(), 0);
	t_equal(rb_unlink(name), -ENOENT);
	t_equal(scene_descriptors(), descriptors);
	for (int point = 0; point < RB_CRASH_POINT_COUNT; point++)
		ledger->hits[point] = hits[point];
	sweep_progress();
	return died;
}

/* ---- all of it ---------------------------------------------------------------------------------------------- */

static bool run_name_in_time(const char *what, struct deed deed)
{
	int64_t took = INT64_MAX;
	bool died = false;

	snprintf(t_context, sizeof(t_context), "%s, ring %s, %s at %s (%d): ", playing->name, scene_states[state], what,
		 deed.point == CRASH_NOWHERE ? "no point" : crash_names[deed.point], deed.nth);
	for (int i = 0; i < TRIES && took > T_SECOND_NS; i++)
		died = run_name(deed, &took);
	if (took > T_SECOND_NS)
		t_die(__FILE__, __LINE__, "the others need %lld ms", (long long)(took / T_MS_NS));
	return died;
}

static void sweep_name(int passes)
{
	int hits[RB_CRASH_POINT_COUNT];

	run_name_in_time("undisturbed", (struct deed){ CRASH_DIE, CRASH_NOWHERE, 0 });
	for (int point = 0; point < RB_CRASH_POINT_COUNT; point++)
		hits[point] = ledger->hits[point];
	for (const int *listed = playing->passes; *listed != END; listed++)
		if (hits[*listed] == 0)
			t_die(__FILE__, __LINE__, "it does not pass %s", crash_names[*listed]);
	for (int point = 0; point < RB_CRASH_POINT_COUNT; point++) {
		sweep.places += hits[point] > 0;
		for (int nth = 1; nth <= hits[point] && nth <= passes; nth++) {
			if (!run_name_in_time("dead", (struct deed){ CRASH_DIE, point, nth }))
				t_die(__FILE__, __LINE__, "it did not come by");
			sweep.kills++;
			sweep.died_at[point] = true;
			run_name_in_time("stopped", (struct deed){ CRASH_STOP, point, nth });
		}
	}
}

int main(int argc, char **argv)
{
	sweep_begin(argc, argv);
	name = t_name();
	for (size_t r = 0; r < sizeof(roles) / sizeof(roles[0]); r++) {
		playing = &roles[r];
		sweep.roles++;
		for (state = 0; state < STATES; state++)
			sweep_name(sweep.thorough ? 3 : 1);
	}
	sweep_end(BY_NAMES);
	return 0;
}
