/* A finished ring is not at its end while a dead consumer's message can be had again: the survivor gets it, then -EPIPE. */
#include "t.h"

static rb_ring *ring;
static _Atomic int *step;

static void take_and_hang(void *arg)
{
	(void)arg;
	t_take(ring);
	atomic_store(step, 1);
	t_hang();
}

static void outlive_a_consumer(int64_t wait_ns)
{
	struct rb_slot slot;

	ring = t_queue(2);
	atomic_store(step, 0);
	t_put(ring, 1);
	pid_t child = t_child(take_and_hang, NULL);
	t_await(step, 1);
	rb_finish(ring);
	t_equal(t_refused_take(ring), -EPIPE); /* it lives: the message is its own */
	t_kill(child);

	int64_t deadline = wait_ns == RB_NOW ? RB_NOW : rb_now_ns() + wait_ns;
	t_equal(rb_take(ring, NULL, deadline, &slot), 0);
	t_verify(&slot);
	t_equal(slot.tag, 1);
	t_equal(rb_release(ring, &slot), 0);
	t_equal(rb_take(ring, NULL, deadline, &slot), -EPIPE);
	rb_detach(ring);
}

int main(void)
{
	step = t_shared(sizeof(*step));
	outlive_a_consumer(RB_NOW);
	outlive_a_consumer(T_PATIENCE_NS);
	return 0;
}
