/* Two reapers die one after the other, each anywhere, while they bury the same dead: the third counts each loss once, lists it once,
 * and returns everything else, whether it is redelivered, dropped or owed to readers. */
#include "t.h"

#include "crash.h"
#include "legal.h"

#define SLOTS 4

/* Twice: a dead one has two claims. */
static const enum rb_crash_point points[] = {
	RB_AT_reap_locked, RB_AT_bury_drafted, RB_AT_bury_noted, RB_AT_free_ticketed, RB_AT_bury_freed, RB_AT_log_drawn,
	RB_AT_log_voided, RB_AT_bury_logged, RB_AT_bury_counted, RB_AT_bury_closed, RB_AT_reap_dropped, RB_AT_reap_returned,
	RB_AT_unsubscribe_announced, RB_AT_unsubscribe_inactive, RB_AT_bit_cleared, RB_AT_unsubscribe_swept,
	RB_AT_unsubscribe_ended, RB_AT_reap_done, RB_AT_reap_vacated, RB_AT_reap_unlocked,
};
#define POINTS (sizeof(points) / sizeof(points[0]))

static const struct kind {
	const char *name;
	struct rb_options options;
} kinds[] = {
	{ "redelivering", { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .redeliver = true } },
	{ "dropping", { .slots = SLOTS, .slot_bytes = 64, .participants = 8 } },
	{ "broadcasting", { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .mode = RB_BROADCAST } },
};

static const struct kind *kind;
static rb_ring *ring;
static _Atomic int *step;

void rb_crash_point(enum rb_crash_point point)
{
	crash_here(point);
}

static void hold_and_die(void *arg)
{
	(void)arg;
	if (kind->options.mode == RB_BROADCAST)
		t_equal(rb_subscribe(ring), 0);
	*step = 1;
	t_await(step, 2);
	t_equal(t_take(ring).tag, 1);
	t_claim(ring, 11);
	t_claim(ring, 12);
	crash_die();
}

static void reap_and_die(void *arg)
{
	const int *where = arg;

	crash_at(where[0], where[1]);
	rb_recover(ring);
}

/* With a reader that stays, in broadcast: the messages are to reach it. */
static pid_t prepare(rb_ring **reader)
{
	ring = t_create_at(__FILE__, __LINE__, kind->options);
	*reader = t_attach(ring);
	*step = 0;
	if (kind->options.mode == RB_BROADCAST)
		t_equal(rb_subscribe(*reader), 0);
	pid_t dead = t_child(hold_and_die, NULL);
	t_await(step, 1);
	t_put(ring, 1);
	t_put(ring, 2);
	*step = 2;
	t_equal(t_wait(dead), SIGKILL);
	return dead;
}

static void check_losses(pid_t dead)
{
	struct rb_lost lost[RB_LOST_LOG];
	int n = rb_get_lost(ring, lost, RB_LOST_LOG);

	t_equal(t_stats(ring).lost, 2);
	t_equal(n, 2);
	t_equal(lost[0].tag + lost[1].tag, 11 + 12);
	t_check(lost[0].tag != lost[1].tag);
	t_equal(lost[0].pid, dead);
	t_equal(lost[1].pid, dead);
	t_equal(rb_get_lost(ring, lost, 2), 2); /* room for both, though one may be listed twice */
}

/* Returns how many of the two died. */
static int die_twice(enum rb_crash_point first, int first_pass, enum rb_crash_point second, int second_pass)
{
	int where[2][2] = { { first, first_pass }, { second, second_pass } };
	bool drops = kind->options.mode == RB_QUEUE && !kind->options.redeliver;
	rb_ring *reader;

	snprintf(t_context, sizeof(t_context), "%s, dead at %s (%d), then %s (%d): ", kind->name, crash_names[first], first_pass,
		 crash_names[second], second_pass);
	pid_t dead = prepare(&reader);
	struct rb_map map = t_map(ring);
	int deaths = crash_died(t_child(reap_and_die, where[0]));
	deaths += crash_died(t_child(reap_and_die, where[1])); /* it may find too little left to come by again */
	legal_words(&map);

	rb_recover(ring);
	struct rb_stats stats = t_stats(ring);
	legal_owners(&map, rb_fd(ring));
	t_equal(stats.free, drops ? SLOTS - 1 : SLOTS - 2);
	t_equal(stats.ready, drops ? 1 : 2);
	t_equal(stats.participants, 2);
	check_losses(dead);
	t_check(stats.dropped <= drops); /* a reaper's last act may not be counted */
	t_equal(rb_recover(ring), 0);
	if (!drops)
		t_equal(t_get(reader), 1);
	t_equal(t_get(reader), 2);
	t_equal(t_refused_take(reader), -EAGAIN);
	t_equal(t_stats(ring).free, SLOTS);
	t_unmap(&map);
	rb_detach(reader);
	rb_detach(ring);
	return deaths;
}

int main(int argc, char **argv)
{
	bool thorough = t_thorough(argc, argv);
	int died[3][POINTS] = { { 0 } }, kills = 0, pairs = 0;
	unsigned turn = 0;

	step = t_shared(sizeof(*step));
	for (size_t k = 0; k < 3; k++)
		for (size_t a = 0; a < POINTS; a++)
			for (int pass = 1; pass <= 2; pass++)
				for (size_t b = 0; b < POINTS; b++)
					for (int second_pass = 1; second_pass <= 2; second_pass++) {
						if (!thorough && (pass > 1 || second_pass > 1 || T_SANITIZED) && turn++ % 5 != 0)
							continue;
						kind = &kinds[k];
						int deaths = die_twice(points[a], pass, points[b], second_pass);
						died[k][a] += deaths > 0;
						kills += deaths;
						pairs++;
					}
	t_context[0] = '\0';
	for (size_t a = 0; a < POINTS; a++)
		if (died[0][a] + died[1][a] + died[2][a] == 0)
			t_die(__FILE__, __LINE__, "no reaper died at %s", crash_names[points[a]]);
	t_figures("pairs=%d kills=%d", pairs, kills);
	return 0;
}
