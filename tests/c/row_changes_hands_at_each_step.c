/* Wherever in a join, a reap or a leave others join, die, reap and leave: a row is one participant's, who holds its byte, and nobody's
 * slots become another's. */
#include "t.h"

#include "legal.h"
#include "ring.h"

#include <sys/syscall.h>

#define SLOTS 4

static rb_ring *ring, *newcomer, *reaper;
static struct rb_slot held; /* by the newcomer, where it has taken over a row */
static bool holds;
static struct rb_map map;
static _Atomic int *step;
static pid_t passer_by;
static bool passed;

static struct {
	int at, now;
	void (*interfere)(void);
} steps;

static void pass(void)
{
	void (*interfere)(void) = steps.interfere;

	if (!interfere || ++steps.now != steps.at)
		return;
	steps.interfere = NULL;
	interfere();
}

/* A step is an access to an atomic, or a lock: what a row says and who holds its byte change at different ones. */
void rb_between(void);

void rb_between(void)
{
	pass();
}

int fcntl(int fd, int command, ...)
{
	va_list args;

	va_start(args, command);
	long argument = va_arg(args, long);
	va_end(args);
	if (command == F_OFD_SETLK)
		pass();
	return (int)syscall(SYS_fcntl, fd, command, argument);
}

static void begin(int n, void (*interfere)(void))
{
	steps.at = n;
	steps.now = 0;
	steps.interfere = interfere;
}

/* Returns false when there is no n-th step. */
static bool end(void)
{
	steps.interfere = NULL;
	return steps.now >= steps.at;
}

static void create(uint32_t participants)
{
	ring = t_create(.slots = SLOTS, .slot_bytes = 64, .participants = participants, .redeliver = true);
	map = t_map(ring);
	newcomer = NULL;
	holds = false;
}

/* Everybody is who his row says; with the living gone, so are their rows. */
static void check_and_leave(int lost)
{
	rb_recover(ring);
	legal_owners(&map, rb_fd(ring));
	t_equal(t_stats(ring).lost, lost);
	t_equal(t_stats(ring).free, holds ? SLOTS - 1 : SLOTS);
	if (holds) {
		t_commit(newcomer, held);
		t_equal(t_get(ring), 2);
	}
	if (newcomer)
		rb_detach(newcomer);
	t_equal(t_stats(ring).participants, 1);
	t_unmap(&map);
	rb_detach(ring);
}

/* ---- somebody joins and dies, wherever another joins -------------------------------------------------------- */

static void come_claim_and_die(void *arg)
{
	(void)arg;
	t_await(step, 1);
	t_claim(t_attach(ring), 1);
	raise(SIGKILL);
}

static void let_pass(void)
{
	passed = true;
	*step = 1;
	t_equal(t_wait(passer_by), SIGKILL);
}

static bool join_at(int n)
{
	create(3);
	*step = 0;
	passed = false;
	passer_by = t_child(come_claim_and_die, NULL);
	begin(n, let_pass);
	newcomer = t_attach(ring);
	bool reached = end();
	if (!passed)
		let_pass();
	check_and_leave(1);
	return reached;
}

/* ---- somebody takes over the row, wherever another gives it up ----------------------------------------------- */

static void claim_and_die(void *arg)
{
	(void)arg;
	t_claim(t_attach(ring), 1);
	raise(SIGKILL);
}

/* There is no other row than the one in question. */
static void take_over(void)
{
	if (reaper)
		rb_recover(reaper); /* as another of its threads would */
	rb_recover(ring);
	int rc = rb_attach_fd(rb_fd(ring), &newcomer);
	t_check(rc == 0 || rc == -EUSERS);
	if (rc < 0)
		return;
	held = t_claim(newcomer, 2);
	holds = true;
}

static bool reap_at(int n)
{
	create(3);
	reaper = t_attach(ring);
	t_equal(t_wait(t_child(claim_and_die, NULL)), SIGKILL);
	begin(n, take_over);
	rb_recover(reaper);
	bool reached = end();
	legal_owners(&map, rb_fd(ring));
	rb_detach(reaper);
	reaper = NULL;
	check_and_leave(1);
	return reached;
}

static bool leave_at(int n)
{
	create(2);
	rb_ring *leaver = t_attach(ring);
	t_claim(leaver, 1);
	begin(n, take_over);
	rb_detach(leaver);
	bool reached = end();
	check_and_leave(0);
	return reached;
}

static void at_each_step(const char *what, bool (*run)(int n), int least)
{
	int n = 0;

	do
		snprintf(t_context, sizeof(t_context), "%s, step %d: ", what, ++n);
	while (run(n));
	t_check(n > least);
}

int main(void)
{
	step = t_shared(sizeof(*step));
	at_each_step("joining", join_at, 10);
	at_each_step("reaping", reap_at, 30);
	at_each_step("leaving", leave_at, 15);
	return 0;
}
