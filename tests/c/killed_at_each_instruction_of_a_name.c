/* A process may be killed after any instruction of creating, attaching to, leaving and unlinking a named ring: the name can be had
 * again, the ring under it is whole, and who was there goes on. */
#include "t.h"

#include "instruction_sweep.h"
#include "named.h"

/* One call around a name. */
struct call {
	const char *name;
	void (*before)(void);   /* ours */
	void (*prepare)(void);  /* the victim's */
	void (*act)(void);
	unsigned states;
	bool we_stay;
	bool late;              /* only in the thorough version: most of it is another call's too */
};

static const struct call *call;

/* ---- the victim ------------------------------------------------------------------------------------------ */

static void nothing(void) { }

static void create_it(void)
{
	struct rb_options options = { .name = name, .slots = SLOTS, .slot_bytes = 64, .participants = 8, .redeliver = true };

	t_equal(rb_create(&options, &ring), 0);
}

static void attach_it(void)
{
	t_equal(rb_attach(name, &ring), 0);
}

static void detach_it(void)
{
	rb_detach(ring);
}

static void unlink_it(void)
{
	t_equal(rb_unlink(name), 0);
}

static void victim(void *arg)
{
	(void)arg;
	mortal = true;
	trace_me();
	trace_stand();
	call->prepare();
	trace_call(call->act);
}

/* ---- the living ------------------------------------------------------------------------------------------- */

static pid_t set_up(void)
{
	memset(ledger, 0, sizeof(*ledger));
	*trace_place = TRACE_BEFORE;
	call->before();
	pid_t pid = t_child(victim, NULL);
	trace_meet(pid);
	trace_run(pid);
	return pid;
}

static int64_t look_after(void)
{
	int64_t began = rb_now_ns();

	if (call->we_stay)
		check_ring_goes_on();
	else
		check_name_to_be_had();
	int64_t took = rb_now_ns() - began;
	leave();
	t_equal(names_left(), 0);
	t_equal(rb_unlink(name), -ENOENT);
	return took;
}

static void kill_at(const struct trace_stop *stop, int n)
{
	int descriptors = scene_descriptors();

	(void)n;
	for (int tries = 0;; tries++) {
		pid_t pid = set_up();

		trace_lead(pid, *stop);
		trace_kill(pid);
		int64_t took = look_after();
		t_equal(scene_descriptors(), descriptors);
		if (took > sweep.slowest_ns)
			sweep.slowest_ns = took;
		if (took < T_SECOND_NS)
			return;
		if (tries == 2)
			t_die(__FILE__, __LINE__, "the others need %lld ms", (long long)(took / T_MS_NS));
	}
}

/* Only where we have it mapped ourselves; what happens in a segment without a name can be seen by nobody. */
static bool changed(void)
{
	static unsigned char before[RB_ROWS_AT + 8 * sizeof(struct rb_row) + SLOTS * sizeof(struct rb_desc)];
	bool differs = call->we_stay && memcmp(before, map.base, sizeof(before)) != 0;

	if (differs)
		memcpy(before, map.base, sizeof(before));
	return differs;
}

static void explore(struct trace_way *way)
{
	pid_t pid = set_up();

	trace_explore(pid, way, changed);
	trace_kill(pid);
	look_after();
}

/* ---- all of it ---------------------------------------------------------------------------------------------- */

#define ALL ((1u << STATES) - 1)
#define ONE (1u << HALF)

static const struct call calls[] = {
	{ "create", nothing, nothing, create_it, ONE, false, false },
	{ "create over the dead", leave_a_dead_ring, nothing, create_it, ONE, false, true },
	{ "attach by name", be_there, nothing, attach_it, ALL, true, false },
	{ "leave what others use", be_there, attach_it, detach_it, ALL, true, false },
	{ "leave as the last", leave_a_dead_ring, attach_it, detach_it, ALL, false, false },
	{ "unlink", leave_a_dead_ring, nothing, unlink_it, ALL, false, false },
};

int main(int argc, char **argv)
{
	struct trace_way way = { 0 };

#ifdef RINGBUF_WAIT_SEMAPHORE
	if (!t_thorough(argc, argv))
		t_skip("names have nothing to do with semaphores; the futex build shows it");
#endif
	sweep_begin(argc, argv);
	name = t_name();
	for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
		call = &calls[c];
		for (state = 0; state < STATES; state++) {
			if (!(call->states & 1u << state) || (!sweep.thorough && (call->late || state != HALF)))
				continue;
			explore(&way);
			sweep_calls(call->name, scene_states[state], &way, state == HALF && !call->late, kill_at);
		}
	}
	free(way.stops);
	sweep_end();
	return 0;
}
