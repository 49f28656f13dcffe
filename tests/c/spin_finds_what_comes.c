/* A call that looks again and again before it sleeps finds what comes at any moment of that, and nobody hears that it waits: a
 * message, a free slot, the end, a nudge. */
#include "t.h"

#include "handle.h"

#define MOMENTS 120 /* more accesses than several looks make, so that it comes during each kind of them */
#define FIRST_LOOK 20 /* makes fewer: who is nudged before it waits is not nudged */

static rb_ring *ring, *other;
static struct rb_slot only; /* of `other` */
static void (*come)(void);
static int left; /* accesses until it comes */
static bool inside;

void rb_between(void);

void rb_between(void)
{
	if (inside || left == 0 || --left > 0)
		return;
	inside = true;
	come();
	inside = false;
}

static void begin(void (*what)(void), int moment)
{
	snprintf(t_context, sizeof(t_context), "at access %d: ", moment);
	come = what;
	left = moment;
	ring->spin_ns = T_PATIENCE_NS; /* as if it took so long to go to sleep: what comes, comes before */
	ring->taking = ring->claiming = (struct rb_patience){ 0 };
}

static void nobody_heard(void)
{
	t_equal(left, 0);
	t_equal(ring->map.control->ready.word, 0);
	t_equal(ring->map.control->freed.word, 0);
	t_equal(t_stats(ring).waits, 0);
}

static void put(void)
{
	only = t_claim(other, 7);
	t_commit(other, only);
}

static void give_back(void)
{
	t_equal(rb_release(other, &only), 0);
}

static void finish(void)
{
	t_equal(rb_finish(other), 0);
}

static void nudge(void)
{
	rb_wake(ring);
}

static int leave(void *arg)
{
	(void)arg;
	return -ECANCELED;
}

int main(void)
{
	struct rb_slot slot;

	for (int moment = 1; moment <= MOMENTS; moment++) {
		ring = t_queue(1);
		other = t_attach(ring);

		begin(put, moment);
		t_equal(t_get(ring), 7);
		nobody_heard();

		t_put(ring, 1);
		only = t_take(other);
		begin(give_back, moment);
		slot = t_claim(ring, 2);
		nobody_heard();
		t_equal(rb_abort(ring, &slot), 0);

		begin(finish, moment);
		t_equal(rb_take(ring, NULL, t_soon(), &slot), -EPIPE);
		nobody_heard();
		rb_detach(other);
		rb_detach(ring);
	}

	ring = t_queue(1);
	rb_on_pause(ring, leave, NULL);
	for (int moment = FIRST_LOOK; moment <= MOMENTS; moment++) {
		begin(nudge, moment);
		t_equal(rb_take(ring, NULL, t_soon(), &slot), -ECANCELED);
		t_equal(left, 0);
		t_equal(t_stats(ring).waits, 0);
	}
	rb_detach(ring);
	return 0;
}
