/* A process may die, stop or dawdle at any point of crash_points.def that a queue leads it by: no committed message is lost or
 * doubled, its slots come back when it is dead and not before, the others go on. */
#include "t.h"

#include "crash_sweep.h"

void rb_crash_point(enum rb_crash_point point)
{
	crash_here(point);
}

/* More than the ring holds, so that it waits for room in every state. */
static void produce(enum state in)
{
	struct rb_slot slot, kept;

	(void)in;
	for (uint64_t tag = 1; tag <= SLOTS + 2; tag++)
		t_check(put(tag, t_soon()));
	t_check(claim(20, t_soon(), &slot));
	t_check(claim(21, t_soon(), &kept));
	abandon(slot);
	ledger->fate[21] = ABORTING;
	rb_detach(ring);
	ledger->fate[21] = ABORTED;
}

/* More than the ring holds, so that it waits for messages in every state. */
static void consume(enum state in)
{
	struct rb_slot kept;

	(void)in;
	for (int i = 0; i <= SLOTS; i++)
		t_check(get(NULL, t_soon()));
	t_check(hold(NULL, t_soon(), &kept));
	rb_detach(ring);
}

/* A partner sleeps until this message comes; in a full ring, until a slot is free. */
static void wake(enum state in)
{
	if (in == FULL) {
		await_sleeper(&map.control->freed);
		t_check(get(NULL, RB_NOW) || ledger->open);
	} else {
		await_sleeper(&map.control->ready);
		t_check(put(TAG_WAKE, RB_NOW));
	}
}

static void wait_in_vain(enum state in)
{
	const struct rb_filter never = { .by_tag = true, .tag = TAG_NEVER };
	struct rb_slot slot;

	for (int i = 0; i < 3; i++) {
		if (in != FULL)
			t_equal(rb_take(ring, &never, rb_now_ns() + 2 * T_MS_NS, &slot), -ETIMEDOUT);
		else if (claim(30, rb_now_ns() + 2 * T_MS_NS, &slot))
			abandon(slot); /* the others did not wait while it was stopped */
	}
}

static void finish(enum state in)
{
	(void)in;
	await_sleeper(&map.control->ready);
	rb_finish(ring);
}

static void attach(enum state in)
{
	rb_ring *inherited = ring;

	t_equal(rb_attach_fd(rb_fd(inherited), &ring), 0);
	t_check((in == FULL && get(NULL, RB_NOW)) || put(1, t_soon()));
	rb_detach(ring);
}

static void reap(enum state in)
{
	(void)in;
	t_check(rb_recover(ring) >= 0); /* or joining has done it already */
}

#define PLAIN { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .redeliver = true }
#define DROPS { .slots = SLOTS, .slot_bytes = 64, .participants = 8 }
#define OVERWRITES { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .full = RB_OVERWRITE, .redeliver = true }
#define WITH_MESSAGES (IN_ALL & ~IN(EMPTY))

static const struct role roles[] = {
	{ .name = "producer", .options = PLAIN, .act = produce, .states = IN_ALL, .opens = P(wait_flagged), .passes = {
		{ IN_ALL, POINTS(JOINS, CLAIMS, COMMITS, P(wait_flagged), P(free_ticketed), P(abort_freed), P(reap_returned),
				 LEAVES) },
	} },
	{ .name = "overwriter", .options = OVERWRITES, .act = produce, .states = IN_ALL, .opens = END, .passes = {
		{ IN_ALL, POINTS(JOINS, CLAIMS, P(claim_counted), COMMITS, P(free_ticketed), P(abort_freed), P(reap_returned),
				 LEAVES) },
	} },
	{ .name = "consumer", .options = PLAIN, .act = consume, .states = IN_ALL, .fed = true, .opens = P(wait_flagged), .passes = {
		{ IN_ALL, POINTS(JOINS, TAKES, RELEASES, P(wait_flagged), P(reap_returned), LEAVES) },
	} },
	{ .name = "dropper", .options = DROPS, .act = consume, .states = IN_ALL, .fed = true, .opens = P(wait_flagged), .passes = {
		{ IN_ALL, POINTS(JOINS, TAKES, RELEASES, P(wait_flagged), P(free_ticketed), P(reap_dropped), P(reap_returned),
				 LEAVES) },
	} },
	{ .name = "waker of a consumer", .options = PLAIN, .act = wake, .states = IN_ALL & ~IN(FULL),
	  .partner = SLEEPS_FOR_A_TAG, .opens = END, .passes = {
		{ IN_ALL, POINTS(JOINS, CLAIMS, COMMITS, WAKES) },
	} },
	{ .name = "waker of a producer", .options = PLAIN, .act = wake, .states = IN(FULL), .partner = SLEEPS_FOR_A_SLOT,
	  .opens = END, .passes = {
		{ IN_ALL, POINTS(JOINS, TAKES, RELEASES, WAKES) },
	} },
	{ .name = "waiter", .options = PLAIN, .act = wait_in_vain, .states = IN_ALL, .opens = END, .passes = {
		{ IN_ALL, POINTS(JOINS, P(wait_flagged), P(wait_woken)) },
#ifdef RINGBUF_WAIT_SEMAPHORE
		{ IN_ALL, POINTS(P(bell_counted)) },
#endif
	} },
	{ .name = "finisher", .options = PLAIN, .act = finish, .states = IN_ALL, .partner = SLEEPS_FOR_A_TAG,
	  .opens = END, .passes = {
		{ IN_ALL, POINTS(P(finish_set), WAKES) },
#ifdef RINGBUF_WAIT_SEMAPHORE
		{ IN_ALL, POINTS(P(bell_posted)) },
#endif
	} },
	{ .name = "attacher", .options = PLAIN, .act = attach, .states = IN_ALL, .opens = END, .passes = {
		{ IN_ALL, POINTS(P(attach_opened), P(attach_mapped), JOINS, LEAVES) },
		{ IN_ALL & ~IN(FULL), POINTS(CLAIMS, COMMITS) },
		{ IN(FULL), POINTS(TAKES, RELEASES) },
	} },
	{ .name = "reaper", .options = PLAIN, .act = reap, .states = IN_ALL, .corpse = true, .opens = END, .passes = {
		{ IN_ALL, POINTS(JOINS, REAPS, BURIES) },
	} },
	{ .name = "reaper that drops", .options = DROPS, .act = reap, .states = IN_ALL, .corpse = true, .opens = END, .passes = {
		{ IN_ALL, POINTS(JOINS, REAPS, BURIES) },
		{ WITH_MESSAGES, POINTS(P(reap_dropped)) },
	} },
};

int main(int argc, char **argv)
{
	sweep_begin(argc, argv);
	sweep_roles(roles, sizeof(roles) / sizeof(roles[0]));
	sweep_end(BY_QUEUE);
	return 0;
}
