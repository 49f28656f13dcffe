/* A process may die, stop or dawdle at any point of crash_points.def that a broadcast leads it by: the reader that stays gets each
 * committed message once, what was owed to the dead is given up, and what is owed to the stopped is not. */
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

/* More than the ring holds; one message outlives the subscription, and a second subscription ends with the process. */
static void read_on(enum state in)
{
	struct rb_slot kept;

	(void)in;
	t_equal(rb_subscribe(ring), 0);
	for (int i = 0; i <= SLOTS; i++)
		t_check(get(NULL, t_soon()));
	t_check(hold(NULL, t_soon(), &kept));
	t_equal(rb_unsubscribe(ring), 0);
	let_go(kept);
	t_equal(rb_unsubscribe(ring), 0);
	t_equal(rb_subscribe(ring), 0);
	rb_detach(ring);
}

static void leave_what_is_owed(enum state in)
{
	(void)in;
	t_equal(rb_subscribe(ring), 0);
	for (int64_t end = t_soon(); rb_ready(ring) < 2; usleep(50))
		t_check(rb_now_ns() < end);
	t_equal(rb_unsubscribe(ring), 0);
}

/* A partner sleeps until this message comes. */
static void wake(enum state in)
{
	(void)in;
	await_sleeper(&map.control->ready);
	t_check(put(TAG_WAKE, RB_NOW));
}

static void wait_in_vain(enum state in)
{
	const struct rb_filter never = { .by_tag = true, .tag = TAG_NEVER };
	struct rb_slot slot;

	(void)in;
	for (int i = 0; i < 3; i++)
		t_equal(rb_take(ring, &never, rb_now_ns() + 2 * T_MS_NS, &slot), -ETIMEDOUT);
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
	t_check(put(1, RB_NOW) || in == FULL);
	rb_detach(ring);
}

static void reap(enum state in)
{
	(void)in;
	t_check(rb_recover(ring) >= 0); /* or joining has done it already */
}

#define BROADCASTS { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .mode = RB_BROADCAST }
#define SUBSCRIBES P(subscribe_owned), P(subscribe_active), P(subscribe_started)
#define UNSUBSCRIBES P(unsubscribe_announced), P(unsubscribe_inactive), P(unsubscribe_swept), P(unsubscribe_ended)

static const struct role roles[] = {
	{ .name = "producer", .options = BROADCASTS, .act = produce, .states = IN_ALL, .opens = P(wait_flagged), .passes = {
		{ IN_ALL, POINTS(JOINS, CLAIMS, COMMITS, P(commit_rechecked), P(wait_flagged), P(free_ticketed), P(abort_freed),
				 P(reap_returned), LEAVES) },
	} },
	{ .name = "reader", .options = BROADCASTS, .act = read_on, .states = IN_ALL, .fed = true, .opens = P(wait_flagged),
	  .passes = {
		{ IN_ALL, POINTS(JOINS, SUBSCRIBES, TAKES, P(wait_flagged), P(bit_cleared), RELEASES, UNSUBSCRIBES, LEAVES) },
	} },
	{ .name = "leaver", .options = BROADCASTS, .act = leave_what_is_owed, .states = IN_ALL, .fed = true,
	  .opens = P(subscribe_started), .passes = {
		{ IN_ALL, POINTS(JOINS, SUBSCRIBES, P(bit_cleared), UNSUBSCRIBES) },
	} },
	{ .name = "waker", .options = BROADCASTS, .act = wake, .states = IN_ALL & ~IN(FULL), .partner = SLEEPS_FOR_A_TAG,
	  .opens = END, .passes = {
		{ IN_ALL, POINTS(JOINS, CLAIMS, COMMITS, P(commit_rechecked), WAKES) },
	} },
	{ .name = "waiter", .options = BROADCASTS, .act = wait_in_vain, .states = IN_ALL, .opens = END, .passes = {
		{ IN_ALL, POINTS(JOINS, SUBSCRIBES, P(wait_flagged), P(wait_woken)) },
#ifdef RINGBUF_WAIT_SEMAPHORE
		{ IN_ALL, POINTS(P(bell_counted)) },
#endif
	} },
	{ .name = "finisher", .options = BROADCASTS, .act = finish, .states = IN_ALL, .partner = SLEEPS_FOR_A_TAG, .opens = END,
	  .passes = {
		{ IN_ALL, POINTS(P(finish_set), WAKES) },
#ifdef RINGBUF_WAIT_SEMAPHORE
		{ IN_ALL, POINTS(P(bell_posted)) },
#endif
	} },
	{ .name = "attacher", .options = BROADCASTS, .act = attach, .states = IN_ALL, .opens = END, .passes = {
		{ IN_ALL, POINTS(P(attach_opened), P(attach_mapped), JOINS, LEAVES) },
		{ IN_ALL & ~IN(FULL), POINTS(CLAIMS, COMMITS, P(commit_rechecked)) },
	} },
	{ .name = "reaper", .options = BROADCASTS, .act = reap, .states = IN_ALL, .corpse = true, .opens = END, .passes = {
		{ IN_ALL, POINTS(JOINS, REAPS, UNSUBSCRIBES, P(bit_cleared)) },
		{ IN_ALL & ~IN(FULL), POINTS(BURIES) },
	} },
};

int main(int argc, char **argv)
{
	sweep_begin(argc, argv);
	sweep_roles(roles, sizeof(roles) / sizeof(roles[0]));
	sweep_end(BY_BROADCAST);
	return 0;
}
