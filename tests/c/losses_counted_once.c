/* Many die, several reap at once: each loss is counted once and listed once, newest first; the list keeps the last 64. */
#include "t.h"

#define DEAD 25
#define EACH 4
#define REAPERS 3

static rb_ring *ring;
static _Atomic int *go;

static void claim_and_die(void *arg)
{
	for (uint64_t i = 0; i < EACH; i++)
		t_claim(ring, (uintptr_t)arg + i);
	raise(SIGKILL);
}

static void reap(void *arg)
{
	(void)arg;
	rb_ring *own = t_attach(ring); /* before there are any dead */
	atomic_fetch_add(go, 1);
	t_await(go, REAPERS + 1);
	for (int i = 0; i < 20; i++)
		rb_recover(own);
	rb_detach(own);
}

int main(void)
{
	pid_t reapers[REAPERS], dead[DEAD];
	struct rb_lost lost[RB_LOST_LOG + 1];
	bool listed[DEAD * EACH] = { false };

	go = t_shared(sizeof(*go));
	ring = t_create(.slots = DEAD * EACH, .slot_bytes = 64, .participants = DEAD + 2 * REAPERS + 1);
	for (int i = 0; i < REAPERS; i++)
		reapers[i] = t_child(reap, NULL);
	t_await(go, REAPERS);
	for (int i = 0; i < DEAD; i++)
		dead[i] = t_child(claim_and_die, (void *)(uintptr_t)(i * EACH));
	for (int i = 0; i < DEAD; i++)
		t_equal(t_wait(dead[i]), SIGKILL);
	atomic_fetch_add(go, 1); /* those who joined late have reaped some already */
	for (int i = 0; i < REAPERS; i++)
		t_ends_well(reapers[i]);
	rb_recover(ring);

	struct rb_stats stats = t_stats(ring);
	t_equal(stats.lost, DEAD * EACH);
	t_equal(stats.free, DEAD * EACH);
	t_equal(stats.participants, 1);
	int n = rb_get_lost(ring, lost, RB_LOST_LOG + 1);
	t_equal(n, RB_LOST_LOG);
	for (int i = 0; i < n; i++) {
		t_check(lost[i].tag < DEAD * EACH && !listed[lost[i].tag]);
		listed[lost[i].tag] = true;
		t_equal(lost[i].pid, dead[lost[i].tag / EACH]);
	}

	/* One more, alone: it comes first. */
	t_equal(t_wait(t_child(claim_and_die, (void *)(uintptr_t)1000)), SIGKILL);
	t_equal(rb_recover(ring), EACH);
	t_equal(rb_get_lost(ring, lost, EACH), EACH);
	for (int i = 0; i < EACH; i++)
		t_check(lost[i].tag >= 1000);
	t_equal(t_stats(ring).lost, (DEAD + 1) * EACH);
	rb_detach(ring);
	return 0;
}
