/* A killed producer costs its unpublished messages and nothing else: who waits for a slot gets it, the loss is named. */
#include "t.h"

static rb_ring *ring;
static _Atomic int *step;

static void claim_all_and_hang(void *arg)
{
	(void)arg;
	t_put(ring, 1);
	for (uint64_t tag = 7; tag < 9; tag++)
		t_fill(&(struct rb_slot){ .data = t_claim(ring, tag).data, .tag = tag });
	atomic_store(step, 1);
	t_hang();
}

int main(void)
{
	struct rb_lost lost[4];

	step = t_shared(sizeof(*step));
	ring = t_queue(3);
	pid_t child = t_child(claim_all_and_hang, NULL);
	t_await(step, 1);
	t_equal(rb_recover(ring), 0); /* alive */
	t_equal(t_refused_claim(ring), -EAGAIN);
	t_equal(t_stats(ring).writing, 2);
	t_kill(child);
	int64_t killed_ns = rb_now_ns();

	t_equal(t_get(ring), 1); /* published is published */
	for (uint64_t tag = 10; tag < 13; tag++)
		t_put(ring, tag); /* all three slots */
	t_check(rb_now_ns() - killed_ns < T_PATIENCE_NS / 4); /* found while waiting, not at the deadline */
	struct rb_stats stats = t_stats(ring);
	t_equal(stats.lost, 2);
	t_equal(stats.participants, 1);
	t_equal(rb_get_lost(ring, lost, 4), 2);
	t_equal(lost[0].tag + lost[1].tag, 7 + 8);
	t_equal(lost[0].pid, child);
	t_equal(lost[1].pid, child);
	t_equal(rb_get_lost(ring, lost, 1), 1);
	t_equal(rb_get_lost(ring, lost, 0), 0);
	for (uint64_t tag = 10; tag < 13; tag++)
		t_equal(t_get(ring), tag);
	t_equal(rb_recover(ring), 0);
	rb_detach(ring);
	return 0;
}
