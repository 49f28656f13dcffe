/* Who waits only ever for a moment, or not at all, finds a dead peer's slots as well as one who waits long. */
#include "t.h"

static rb_ring *ring;
static _Atomic int *step;

static void claim_and_hang(void *arg)
{
	(void)arg;
	t_claim(ring, 1);
	atomic_store(step, 1);
	t_hang();
}

static void take_and_hang(void *arg)
{
	(void)arg;
	t_take(ring);
	atomic_store(step, 1);
	t_hang();
}

static void kill_one(void (*holder)(void *arg))
{
	atomic_store(step, 0);
	pid_t child = t_child(holder, NULL);
	t_await(step, 1);
	t_kill(child);
}

/* Calls with waits of `wait_ms`, 0: none. */
static struct rb_slot get_hold(bool claims, int wait_ms)
{
	struct rb_slot slot;
	int rc;

	for (int64_t end = t_soon();; usleep(500)) {
		int64_t deadline = wait_ms ? rb_now_ns() + wait_ms * T_MS_NS : RB_NOW;
		rc = claims ? rb_claim(ring, 2, RB_ANY, deadline, &slot) : rb_take(ring, NULL, deadline, &slot);
		if (rc == 0)
			return slot;
		t_equal(rc, wait_ms ? -ETIMEDOUT : -EAGAIN);
		t_check(rb_now_ns() < end);
	}
}

int main(void)
{
	static const int waits_ms[] = { 0, 1, 20, 60 };

	step = t_shared(sizeof(*step));
	ring = t_queue(1);
	for (int i = 0; i < 4; i++) {
		snprintf(t_context, sizeof(t_context), "waiting %d ms: ", waits_ms[i]);
		kill_one(claim_and_hang);
		t_commit(ring, get_hold(true, waits_ms[i]));
		kill_one(take_and_hang);
		struct rb_slot slot = get_hold(false, waits_ms[i]);
		t_verify(&slot);
		t_equal(rb_release(ring, &slot), 0);
	}
	t_equal(t_stats(ring).lost, 4);
	rb_detach(ring);
	return 0;
}
