/* After fork() a child is a participant of its own: the parent's slots are not its, nor is the parent's life. */
#include "t.h"

static rb_ring *ring;
static struct rb_slot claimed, taken;
static _Atomic int *step;

static void use_the_handle(void *arg)
{
	struct rb_slot slot;
	struct rb_map map = t_map(ring);

	(void)arg;
	t_equal(t_stats(ring).participants, 1);
	t_equal(rb_commit(ring, &claimed, 16), -ESTALE);
	t_equal(rb_abort(ring, &claimed), -ESTALE);
	t_equal(rb_release(ring, &taken), -ESTALE);
	t_verify(&taken); /* its memory is still there to look at */
	t_put(ring, 3);
	t_equal(t_stats(ring).participants, 2);
	t_equal(map.rows[1].pid, getpid());
	t_equal(rb_commit(ring, &claimed, 16), -ESTALE);
	t_equal(rb_take(ring, NULL, t_soon(), &slot), 0);
	t_equal(slot.tag, 3);
	/* Not released: it ends with a message in hand. */
}

/* A parent that dies while its child lives is dead all the same, though the child never touched the ring. */
static void live_on(void *arg)
{
	(void)arg;
	prctl(PR_SET_PDEATHSIG, 0); /* it is to outlive its parent; not for long */
	atomic_store(step, 1);
	t_await(step, 2);
}

static void have_a_child_and_die(void *arg)
{
	(void)arg;
	t_claim(ring, 4);
	t_child(live_on, NULL);
	t_await(step, 1);
	raise(SIGKILL);
}

static void a_dead_parent_is_noticed(void)
{
	t_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* the grandchild will be ours to wait for */
	atomic_store(step, 0);
	t_equal(t_wait(t_child(have_a_child_and_die, NULL)), SIGKILL);
	int returned = rb_recover(ring);
	atomic_store(step, 2);
	int status;
	t_check(waitpid(-1, &status, 0) > 0);
	t_equal(status, 0);
	t_equal(returned, 1);
	t_equal(t_stats(ring).lost, 1);
}

static void subscribe_anew(void *arg)
{
	(void)arg;
	t_equal(rb_subscribe(ring), 0);
	t_put(ring, 8);
	t_equal(t_get(ring), 8);
	rb_detach(ring);
}

static void a_childs_reader_is_its_own(void)
{
	rb_ring *queue = ring;

	ring = t_broadcast(2);
	t_equal(rb_subscribe(ring), 0);
	t_put(ring, 7);
	taken = t_take(ring);
	pid_t pid = fork();
	t_check(pid >= 0);
	if (pid == 0) {
		t_equal(rb_release(ring, &taken), -ESTALE);
		t_equal(rb_unsubscribe(ring), 0);
		t_equal(rb_release(ring, &taken), -ESTALE);
		t_equal(rb_subscribe(ring), 0);
		t_equal(t_stats(ring).readers, 2);
		t_equal(t_refused_take(ring), -EAGAIN); /* 7 was before its time */
		t_equal(rb_unsubscribe(ring), 0); /* it holds nothing: at once */
		t_equal(t_stats(ring).readers, 1);
		t_equal(rb_subscribe(ring), 0);
		rb_detach(ring);
		_exit(0);
	}
	t_ends_well(pid);
	t_equal(t_stats(ring).readers, 1);
	t_equal(rb_unsubscribe(ring), 0); /* with 7 in hand */
	t_equal(rb_subscribe(ring), -EBUSY);
	t_ends_well(t_child(subscribe_anew, NULL));
	t_verify(&taken);
	t_equal(rb_release(ring, &taken), 0);
	t_equal(t_stats(ring).free, 2);
	rb_detach(ring);
	ring = queue;
}

int main(void)
{
	step = t_shared(sizeof(*step));
	ring = t_queue(4);
	t_put(ring, 1);
	taken = t_take(ring);
	claimed = t_claim(ring, 2);
	t_fill(&claimed);
	t_ends_well(t_child(use_the_handle, NULL));

	/* It took along what it held, and nothing of ours. */
	t_equal(rb_recover(ring), 1);
	t_equal(t_get(ring), 3);
	t_equal(rb_release(ring, &taken), 0);
	t_commit(ring, claimed);
	t_equal(t_get(ring), 2);
	t_equal(t_stats(ring).free, 4);
	t_equal(t_stats(ring).lost, 0);
	t_equal(t_stats(ring).participants, 1);

	a_dead_parent_is_noticed();
	a_childs_reader_is_its_own();
	rb_detach(ring);
	return 0;
}
