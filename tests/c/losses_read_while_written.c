/* Wherever in reading the list of losses another is written over the oldest, and wherever in writing one the list is read: each entry
 * is a loss that took place, with the tag and the pid that belong together. */
#include "t.h"

#define SLOTS RB_LOST_LOG
#define FIRST 1000 /* tag of the first that is written over another */
#define MOST 8000

static rb_ring *ring, *reaper;
static pid_t producers[MOST]; /* of losses from FIRST on */
static pid_t first_producer;  /* of those that fill the list, 1 to RB_LOST_LOG */
static int turn;

static struct {
	int at, now;
	void (*interfere)(void);
} steps;

void rb_between(void);

void rb_between(void)
{
	void (*interfere)(void) = steps.interfere;

	if (!interfere || ++steps.now != steps.at)
		return;
	steps.interfere = NULL;
	interfere();
}

static void claim_and_die(void *arg)
{
	const uint64_t *tags = arg; /* the first, and how many */
	rb_ring *own = t_attach(ring);

	for (uint64_t i = 0; i < tags[1]; i++)
		t_claim(own, tags[0] + i);
	raise(SIGKILL);
}

static pid_t lose(uint64_t first, uint64_t n)
{
	pid_t pid = t_child(claim_and_die, (uint64_t[]){ first, n });

	t_equal(t_wait(pid), SIGKILL);
	return pid;
}

static void reap(void)
{
	t_equal(rb_recover(reaper), 1);
}

static void read_list(void)
{
	struct rb_lost lost[RB_LOST_LOG];
	int n = rb_get_lost(ring, lost, RB_LOST_LOG);

	t_check(n >= (int)RB_LOST_LOG - 2); /* not those that are being written */
	for (int i = 0; i < n; i++) {
		uint64_t tag = lost[i].tag;

		t_check((tag >= 1 && tag <= RB_LOST_LOG) || (tag >= FIRST && tag < FIRST + (uint64_t)turn));
		t_equal(lost[i].pid, tag < FIRST ? first_producer : producers[tag - FIRST]);
		for (int k = 0; k < i; k++)
			t_check(lost[k].tag != tag);
	}
}

static bool at_step(int n, void (*call)(void), void (*interfere)(void))
{
	t_check(turn < MOST);
	producers[turn] = lose(FIRST + (uint64_t)turn, 1);
	turn++;
	steps.at = n;
	steps.now = 0;
	steps.interfere = interfere;
	call();
	steps.interfere = NULL;
	rb_recover(reaper);
	return steps.now >= n;
}

int main(void)
{
	int n = 0;

	ring = t_queue(SLOTS);
	reaper = t_attach(ring);
	first_producer = lose(1, RB_LOST_LOG);
	t_equal(rb_recover(reaper), RB_LOST_LOG);
	do
		snprintf(t_context, sizeof(t_context), "written at step %d: ", ++n);
	while (at_step(n, read_list, reap));
	t_check(n > 5 * (int)RB_LOST_LOG);
	n = 0;
	do
		snprintf(t_context, sizeof(t_context), "read at step %d: ", ++n);
	while (at_step(n, reap, read_list));
	t_check(n > (int)RB_LOST_LOG);
	rb_detach(reaper);
	rb_detach(ring);
	return 0;
}
