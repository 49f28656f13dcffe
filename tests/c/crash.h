/* Dying, stopping or dawdling at a chosen place: what the programs share that are linked with the library's crash points.
 * Such a program says
 *     void rb_crash_point(enum rb_crash_point point) { crash_here(point); }
 * After t.h. */
#ifndef CRASH_H
#define CRASH_H

#include "crash_points.h"

static const char *const crash_names[] = {
#define RB_POINT(name, state) #name,
#include "crash_points.def"
#undef RB_POINT
};

#define CRASH_NOWHERE (-1)
#define CRASH_DELAY_US 1500 /* enough for others to do a lot */

enum crash_deed { CRASH_DIE, CRASH_STOP, CRASH_DELAY };

static struct {
	int point, countdown; /* of this process; CRASH_NOWHERE: live */
	enum crash_deed deed;
	_Atomic int *hits;    /* [point], shared: how often a watched process came by; NULL: not watched */
} crash = { .point = CRASH_NOWHERE };

/* The one place where such a process ends. */
static inline void crash_die(void)
{
	raise(SIGKILL);
}

static inline void crash_here(enum rb_crash_point point)
{
	if (crash.hits)
		atomic_fetch_add(&crash.hits[point], 1);
	if ((int)point != crash.point || --crash.countdown != 0)
		return;
	if (crash.deed == CRASH_DIE)
		crash_die();
	else if (crash.deed == CRASH_STOP)
		raise(SIGSTOP);
	else
		usleep(CRASH_DELAY_US);
}

/* In a child: do it when it comes to this point for the n-th time. */
static inline void crash_do_at(enum crash_deed deed, int point, int nth)
{
	crash.deed = deed;
	crash.point = point;
	crash.countdown = nth;
}

static inline void crash_at(int point, int nth)
{
	crash_do_at(CRASH_DIE, point, nth);
}

/* Did this child die of its point (true), or did it not come by (false)? Anything else is a failure. */
static inline bool crash_died(pid_t pid)
{
	int status = t_wait(pid);

	t_check(status == 0 || status == SIGKILL);
	return status == SIGKILL;
}

#endif
