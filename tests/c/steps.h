/* Doing something between any two instructions of a call: the call runs under the processor's single-step trap, and at
 * the n-th instruction the trap's handler does it. For n = 1, 2, ... that is every interleaving of one call with
 * one thing that happens all at once. To be kept short, a trap is slow: the calls are those of ring.h, without the
 * waiting around them. After t.h. */
#ifndef STEPS_H
#define STEPS_H

#include <ucontext.h>

#include "ring.h"

#define TRAP_FLAG 0x100

static struct {
	int at, now;
	bool on;
	void (*interfere)(void);
} steps;

#if defined(__x86_64__) && !T_SANITIZED
static void steps_trap(int signal_number, siginfo_t *info, void *context)
{
	greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];

	(void)signal_number;
	(void)info;
	*flags = steps.on ? *flags | TRAP_FLAG : *flags & ~TRAP_FLAG;
	if (steps.on && ++steps.now == steps.at) {
		steps.interfere();
		steps.on = false; /* what comes after runs at full speed */
	}
}
#endif

/* Once, before the first step. */
static inline void steps_prepare(void)
{
#if !defined(__x86_64__)
	t_skip("single steps are written for x86-64");
#elif T_SANITIZED
	t_skip("a sanitizer's runtime cannot be stepped through");
#else
	struct sigaction action = { .sa_sigaction = steps_trap, .sa_flags = SA_SIGINFO };

	t_equal(sigaction(SIGTRAP, &action, NULL), 0);
#endif
}

/* From here on steps count; `interfere` is called at the n-th. */
static inline void steps_begin(int n, void (*interfere)(void))
{
	steps.at = n;
	steps.now = 0;
	steps.interfere = interfere;
	steps.on = true;
	raise(SIGTRAP);
}

/* Returns false when the n-th step was not reached: all are done. */
static inline bool steps_end(void)
{
	steps.on = false;
	return steps.now >= steps.at;
}

#endif
