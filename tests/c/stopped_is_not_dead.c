/* A stopped process keeps its slots, however long others wait for them; when it goes on, its message arrives. */
#include "t.h"

static rb_ring *ring;

static void stop_in_the_middle(void *arg)
{
	(void)arg;
	struct rb_slot slot = t_claim(ring, 1);
	t_fill(&slot);
	raise(SIGSTOP);
	t_equal(rb_commit(ring, &slot, 16), 0);
}

int main(void)
{
	struct rb_slot slot;
	siginfo_t stopped = { 0 };

	ring = t_queue(1);
	pid_t child = t_child(stop_in_the_middle, NULL);
	for (int64_t end = t_soon(); stopped.si_pid == 0; usleep(200)) {
		t_equal(waitid(P_PID, (id_t)child, &stopped, WSTOPPED | WNOHANG), 0);
		t_check(rb_now_ns() < end);
	}
	t_equal(rb_recover(ring), 0);
	t_equal(rb_claim(ring, 2, RB_ANY, rb_now_ns() + 250 * T_MS_NS, &slot), -ETIMEDOUT);
	t_equal(rb_take(ring, NULL, rb_now_ns() + 150 * T_MS_NS, &slot), -ETIMEDOUT);
	t_equal(t_stats(ring).writing, 1);
	t_equal(t_stats(ring).lost, 0);

	t_check(child > 1);
	t_equal(kill(child, SIGCONT), 0);
	t_equal(t_get(ring), 1);
	t_ends_well(child);
	rb_detach(ring);
	return 0;
}
