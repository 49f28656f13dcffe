/* Two reapers die one after the other, each anywhere, while they bury the same dead: the third counts each loss once, and lists it once. */
#include "t.h"

#include "crash.h"

#define SLOTS 4

static const enum rb_crash_point points[] = {
	RB_AT_reap_locked, RB_AT_bury_noted, RB_AT_bury_freed, RB_AT_bury_logged, RB_AT_bury_counted, RB_AT_reap_returned,
	RB_AT_reap_done,
};
#define POINTS (sizeof(points) / sizeof(points[0]))

static rb_ring *ring;

void rb_crash_point(enum rb_crash_point point)
{
	crash_here(point);
}

static void hold_and_die(void *arg)
{
	struct rb_slot slot;

	(void)arg;
	slot = t_take(ring);
	t_equal(slot.tag, 1);
	t_claim(ring, 11);
	t_claim(ring, 12);
	raise(SIGKILL);
}

static void reap_and_die(void *arg)
{
	const int *where = arg;

	crash_at(where[0], where[1]);
	rb_recover(ring);
}

/* Two claims to bury, so that a second pass of a point means something; a reaper reaps the reaper before it, too. */
static void die_twice(enum rb_crash_point first, int first_pass, enum rb_crash_point second, int second_pass)
{
	int where[2][2] = { { first, first_pass }, { second, second_pass } };
	struct rb_lost lost[RB_LOST_LOG];

	snprintf(t_context, sizeof(t_context), "dead at %s (%d), then %s (%d): ", crash_names[first], first_pass,
		 crash_names[second], second_pass);
	ring = t_create(.slots = SLOTS, .slot_bytes = 64, .participants = 8, .redeliver = true);
	t_put(ring, 1);
	t_put(ring, 2);
	pid_t dead = t_child(hold_and_die, NULL);
	t_equal(t_wait(dead), SIGKILL);
	t_check(crash_died(t_child(reap_and_die, where[0])));
	crash_died(t_child(reap_and_die, where[1])); /* it may find too little left to come by again */

	rb_recover(ring);
	struct rb_stats stats = t_stats(ring);
	t_equal(stats.lost, 2);
	t_equal(stats.free, SLOTS - 2);
	t_equal(stats.ready, 2);
	t_equal(stats.participants, 1);
	t_equal(rb_get_lost(ring, lost, RB_LOST_LOG), 2);
	t_equal(lost[0].tag + lost[1].tag, 11 + 12);
	t_check(lost[0].tag != lost[1].tag);
	t_equal(lost[0].pid, dead);
	t_equal(lost[1].pid, dead);
	t_equal(rb_recover(ring), 0);
	t_equal(t_get(ring), 1);
	t_equal(t_get(ring), 2);
	t_equal(t_refused_take(ring), -EAGAIN);
	rb_detach(ring);
}

int main(void)
{
	for (size_t a = 0; a < POINTS; a++) {
		int passes = points[a] == RB_AT_reap_locked || points[a] == RB_AT_reap_done ? 1 : 2;
		for (int pass = 1; pass <= passes; pass++)
			for (size_t b = 0; b < POINTS; b++)
				for (int second_pass = 1; second_pass <= 2; second_pass++)
					die_twice(points[a], pass, points[b], second_pass);
	}
	return 0;
}
