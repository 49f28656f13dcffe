/* A producer that dies between publishing and looking again leaves a reader's bit that nobody will release: the reaper clears it. */
#include "t.h"

#include "crash.h"

static rb_ring *ring;
static _Atomic int *step;
static bool producing;

void rb_crash_point(enum rb_crash_point point)
{
	if (producing && point == RB_AT_commit_ticketed) { /* the reader joins now: too late for this ticket, in time for the mask */
		atomic_store(step, 1);
		t_await(step, 2);
	}
	crash_here(point);
}

static void publish_and_die(void *arg)
{
	(void)arg;
	crash_at(RB_AT_commit_published, 1);
	producing = true;
	t_put(ring, 1);
}

/* So many others are readers when it joins, and no more when the producer looks who is. */
static void leave_a_bit_of_reader(int others)
{
	rb_ring *other[RB_READERS_MAX];

	ring = t_broadcast(2);
	for (int i = 0; i < others; i++) {
		other[i] = t_attach(ring);
		t_equal(rb_subscribe(other[i]), 0);
	}
	*step = 0;
	pid_t child = t_child(publish_and_die, NULL);
	t_await(step, 1);
	t_equal(rb_subscribe(ring), 0);
	for (int i = 0; i < others; i++)
		rb_detach(other[i]);
	atomic_store(step, 2);
	t_equal(t_wait(child), SIGKILL);
	t_equal(t_stats(ring).ready, 1);

	t_equal(rb_recover(ring), 1);
	t_equal(t_stats(ring).free, 2);
	t_equal(t_stats(ring).lost, 0);
	t_put(ring, 2);
	t_equal(t_get(ring), 2);
	rb_detach(ring);
}

int main(void)
{
	step = t_shared(sizeof(*step));
	leave_a_bit_of_reader(0);
	leave_a_bit_of_reader(RB_READERS_MAX - 1);
	return 0;
}
